// Preloaded into trun: appends every anonymous mapping ("+ address bytes") and every unmapping ("- address bytes") that
// the program's own code asks for to the file named by TCC_MAPPINGS. Mappings that a library makes for itself (oneDNN:
// pages for the code that it generates) are not listed: the object that the calling code belongs to decides.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void note(char sign, void *address, size_t bytes) {
  const char *path = getenv("TCC_MAPPINGS");
  if (!path)
    return;
  char line[64];
  int length = snprintf(line, sizeof line, "%c %zu %zu\n", sign, (size_t)address, bytes);
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (file < 0 || write(file, line, (size_t)length) != length)
    abort();
  close(file);
}

static int is_the_program(void *caller) {
  Dl_info info;
  return dladdr(caller, &info) && info.dli_fname && !strstr(info.dli_fname, ".so");
}
static void *map(void *address, size_t bytes, int protection, int flags, int file, off_t offset, void *caller) {
  void *result = (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
  if (result != MAP_FAILED && (flags & MAP_ANONYMOUS) && is_the_program(caller))
    note('+', result, bytes);
  return result;
}
void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return map(address, bytes, protection, flags, file, offset, __builtin_return_address(0));
}
void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return map(address, bytes, protection, flags, file, offset, __builtin_return_address(0));
}
int munmap(void *address, size_t bytes) {
  note('-', address, bytes);
  return (int)syscall(SYS_munmap, address, bytes);
}
