/* Arc4random.c - glibc 2.36's arc4random for portable builds. LLVM's archives call it for the names of temporary files;
 * without this definition the loaders of older systems refuse tcc. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
    abort();
  return value;
}
