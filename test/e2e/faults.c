// Preloaded into trun: counts the calls that change files under TCC_FAULT_ROOT or make this folder, and makes one of them go wrong.
//   TCC_FAULT_AT      which call, from 1; 0: none, count alone
//   TCC_FAULT_ACTION  error:ERRNO (that call fails), errors:ERRNO (it and all that follow), short (a write takes half),
//                     kill (SIGKILL before it; a write takes half first), signal:NUMBER (raised before it),
//                     squeeze:KIB (from it on the address space may grow by so much and no more)
//   TCC_FAULT_LOG     file that gets the number of calls when the process ends
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_DESCRIPTORS = 4096 };
static atomic_int calls;
static atomic_char tracked[MOST_DESCRIPTORS];
static char root[PATH_MAX], action[64];
static char making[PATH_MAX + 8]; // prefix of the temporary name under which the folder is made
static int target, number;

#define NEXT(name, result, ...)                                                                                        \
  static result (*next)(__VA_ARGS__);                                                                                  \
  if (!next)                                                                                                           \
  next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
  const char *value = getenv("TCC_FAULT_ROOT");
  snprintf(root, sizeof root, "%s", value ? value : "/nowhere");
  const char *slash = strrchr(root, '/');
  snprintf(making, sizeof making, "%.*s/.%s.tcc-", (int)(slash - root), root, slash + 1);
  value = getenv("TCC_FAULT_ACTION");
  snprintf(action, sizeof action, "%s", value ? value : "");
  const char *colon = strchr(action, ':');
  number = colon ? atoi(colon + 1) : 0;
  value = getenv("TCC_FAULT_AT");
  target = value ? atoi(value) : 0;
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("TCC_FAULT_LOG");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file)
    return;
  fprintf(file, "%d\n", calls);
  fclose(file);
}

static int below(const char *path) {
  char whole[PATH_MAX * 2];
  if (path[0] != '/') {
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here))
      return 0;
    snprintf(whole, sizeof whole, "%s/%s", here, path);
    path = whole;
  }
  size_t length = strlen(root);
  return (strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0)) ||
         strncmp(path, making, strlen(making)) == 0;
}

static void squeeze(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%ld", &pages) == 1) {
    rlim_t bytes = (rlim_t)pages * 4096 + ((rlim_t)number << 10);
    setrlimit(RLIMIT_AS, &(struct rlimit){bytes, RLIM_INFINITY});
  }
  if (file)
    fclose(file);
}

static int is(const char *name) { return strncmp(action, name, strlen(name)) == 0; }

/// Counts a call. 1: the call must fail, errno is set; 2: the write must write half (with kill, the process then dies).
static int fault(int isWrite) {
  int call = ++calls;
  if (target == 0 || call < target || (call > target && !is("errors:")))
    return 0;
  if (is("error")) {
    errno = number;
    return 1;
  }
  if (is("signal:"))
    raise(number);
  else if (is("squeeze:"))
    squeeze();
  else if (isWrite)
    return 2;
  else if (is("kill"))
    raise(SIGKILL);
  return 0;
}

static int track(int descriptor, int on) {
  if (descriptor >= 0 && descriptor < MOST_DESCRIPTORS)
    tracked[descriptor] = on;
  return descriptor;
}
static int isTracked(int descriptor) {
  return descriptor >= 0 && descriptor < MOST_DESCRIPTORS && tracked[descriptor];
}

static int changes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_DIRECTORY)); }

#define OPEN(name)                                                                                                     \
  int name(const char *path, int flags, ...) {                                                                         \
    NEXT(name, int, const char *, int, ...);                                                                           \
    va_list list;                                                                                                      \
    va_start(list, flags);                                                                                             \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;                                            \
    va_end(list);                                                                                                      \
    int ours = below(path) && changes(flags);                                                                          \
    if (ours && !(flags & O_DIRECTORY) && fault(0) == 1)                                                               \
      return -1;                                                                                                       \
    return track(next(path, flags, mode), ours);                                                                       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                   \
  int name(int folder, const char *path, int flags, ...) {                                                             \
    NEXT(name, int, int, const char *, int, ...);                                                                      \
    va_list list;                                                                                                      \
    va_start(list, flags);                                                                                             \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;                                            \
    va_end(list);                                                                                                      \
    int ours = (folder == AT_FDCWD ? below(path) : isTracked(folder)) && changes(flags);                               \
    if (ours && !(flags & O_DIRECTORY) && fault(0) == 1)                                                               \
      return -1;                                                                                                       \
    return track(next(folder, path, flags, mode), ours);                                                               \
  }
OPENAT(openat)
OPENAT(openat64)

int close(int descriptor) {
  NEXT(close, int, int);
  track(descriptor, 0);
  return next(descriptor);
}

static size_t half(size_t bytes) { return bytes > 1 ? bytes / 2 : bytes; }

ssize_t write(int descriptor, const void *data, size_t bytes) {
  NEXT(write, ssize_t, int, const void *, size_t);
  int wrong = isTracked(descriptor) ? fault(1) : 0;
  if (wrong == 1)
    return -1;
  ssize_t count = next(descriptor, data, wrong ? half(bytes) : bytes);
  if (wrong && is("kill"))
    raise(SIGKILL);
  return count;
}
#define PWRITE(name)                                                                                                   \
  ssize_t name(int descriptor, const void *data, size_t bytes, off_t offset) {                                         \
    NEXT(name, ssize_t, int, const void *, size_t, off_t);                                                             \
    int wrong = isTracked(descriptor) ? fault(1) : 0;                                                                  \
    if (wrong == 1)                                                                                                    \
      return -1;                                                                                                       \
    ssize_t count = next(descriptor, data, wrong ? half(bytes) : bytes, offset);                                       \
    if (wrong && is("kill"))                                                                                           \
      raise(SIGKILL);                                                                                                  \
    return count;                                                                                                      \
  }
PWRITE(pwrite)
PWRITE(pwrite64)
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
  NEXT(writev, ssize_t, int, const struct iovec *, int);
  return isTracked(descriptor) && fault(0) == 1 ? -1 : next(descriptor, parts, count);
}
ssize_t copy_file_range(int in, off64_t *inOffset, int out, off64_t *outOffset, size_t bytes, unsigned flags) {
  NEXT(copy_file_range, ssize_t, int, off64_t *, int, off64_t *, size_t, unsigned);
  return isTracked(out) && fault(0) == 1 ? -1 : next(in, inOffset, out, outOffset, bytes, flags);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t bytes) {
  NEXT(sendfile, ssize_t, int, int, off_t *, size_t);
  return isTracked(out) && fault(0) == 1 ? -1 : next(out, in, offset, bytes);
}

#define ON_DESCRIPTOR(name, parameters, arguments, types)                                                              \
  int name parameters {                                                                                                \
    NEXT(name, int, types);                                                                                            \
    return isTracked(descriptor) && fault(0) == 1 ? -1 : next arguments;                                               \
  }
#define TYPES(...) __VA_ARGS__
ON_DESCRIPTOR(fsync, (int descriptor), (descriptor), TYPES(int))
ON_DESCRIPTOR(fdatasync, (int descriptor), (descriptor), TYPES(int))
ON_DESCRIPTOR(ftruncate, (int descriptor, off_t bytes), (descriptor, bytes), TYPES(int, off_t))
ON_DESCRIPTOR(ftruncate64, (int descriptor, off64_t bytes), (descriptor, bytes), TYPES(int, off64_t))
ON_DESCRIPTOR(fallocate, (int descriptor, int mode, off_t begin, off_t bytes), (descriptor, mode, begin, bytes),
              TYPES(int, int, off_t, off_t))

#define ON_PATH(name, parameters, arguments, types)                                                                    \
  int name parameters {                                                                                                \
    NEXT(name, int, types);                                                                                            \
    return below(path) && fault(0) == 1 ? -1 : next arguments;                                                         \
  }
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode), TYPES(const char *, mode_t))
ON_PATH(rename, (const char *path, const char *to), (path, to), TYPES(const char *, const char *))
ON_PATH(link, (const char *path, const char *to), (path, to), TYPES(const char *, const char *))
ON_PATH(symlink, (const char *path, const char *to), (path, to), TYPES(const char *, const char *))
ON_PATH(unlink, (const char *path), (path), TYPES(const char *))
ON_PATH(rmdir, (const char *path), (path), TYPES(const char *))
ON_PATH(remove, (const char *path), (path), TYPES(const char *))
ON_PATH(linkat, (int folder, const char *path, int toFolder, const char *to, int flags),
        (folder, path, toFolder, to, flags), TYPES(int, const char *, int, const char *, int))
ON_PATH(renameat, (int folder, const char *path, int toFolder, const char *to), (folder, path, toFolder, to),
        TYPES(int, const char *, int, const char *))
ON_PATH(renameat2, (int folder, const char *path, int toFolder, const char *to, unsigned flags),
        (folder, path, toFolder, to, flags), TYPES(int, const char *, int, const char *, unsigned))
ON_PATH(mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode), TYPES(int, const char *, mode_t))
int unlinkat(int folder, const char *path, int flags) {
  NEXT(unlinkat, int, int, const char *, int);
  int ours = folder == AT_FDCWD ? below(path) : isTracked(folder);
  return ours && fault(0) == 1 ? -1 : next(folder, path, flags);
}
