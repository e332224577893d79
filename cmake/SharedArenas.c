/* Linked into sanitized builds in place of AddressSanitizer's functions of the same name: see Sanitize.cmake. */
#include <stddef.h>

void __wrap___asan_poison_memory_region(const volatile void *address, size_t bytes) {
  (void)address;
  (void)bytes;
}

void __wrap___asan_unpoison_memory_region(const volatile void *address, size_t bytes) {
  (void)address;
  (void)bytes;
}
