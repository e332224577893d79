/* Arc4random.c - glibc 2.36's arc4random for standalone builds. libarchive calls it for encrypted archives, LLVM for
 * the names of temporary files; without these definitions the loaders of older systems refuse what contains the two. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

__attribute__((visibility("hidden"))) void arc4random_buf(void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = getrandom((char *)to + done, bytes - done, 0);
    if (count < 0 && errno != EINTR)
      abort();
    done += count > 0 ? (size_t)count : 0;
  }
}

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  arc4random_buf(&value, sizeof value);
  return value;
}
