// Preloaded into trun: appends every anonymous mapping ("+ address bytes") and every unmapping ("- address bytes") that the
// program asks for to the file named by TCC_MAPPINGS. What the C library maps for itself does not pass here.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  void *result = (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
  if (result != MAP_FAILED && (flags & MAP_ANONYMOUS))
    note('+', result, bytes);
  return result;
}
void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(address, bytes, protection, flags, file, offset);
}
int munmap(void *address, size_t bytes) {
  note('-', address, bytes);
  return (int)syscall(SYS_munmap, address, bytes);
}
