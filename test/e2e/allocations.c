// Preloaded into trun: counts heap allocations outside library calls, and the bytes that each library call (an execution of
// a oneDNN primitive) asks for. Writes "allocations executions largest_bytes_in_an_execution" to the file named by
// TCC_ALLOCATIONS when the process ends.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_ullong allocations, executions, largest;
static __thread int executing __attribute__((tls_model("initial-exec")));
static __thread size_t executing_bytes __attribute__((tls_model("initial-exec")));

static void count(size_t size) {
  if (executing)
    executing_bytes += size;
  else
    atomic_fetch_add(&allocations, 1);
}

int dnnl_primitive_execute(const void *primitive, void *stream, int number, const void *arguments) {
  static int (*next)(const void *, void *, int, const void *);
  if (!next)
    next = (int (*)(const void *, void *, int, const void *))dlsym(RTLD_NEXT, "dnnl_primitive_execute");
  executing = 1;
  executing_bytes = 0;
  int status = next(primitive, stream, number, arguments);
  executing = 0;
  atomic_fetch_add(&executions, 1);
  unsigned long long before = largest;
  while (executing_bytes > before && !atomic_compare_exchange_weak(&largest, &before, executing_bytes))
    ;
  return status;
}

void *malloc(size_t size) {
  count(size);
  return __libc_malloc(size);
}
void *calloc(size_t number, size_t size) {
  count(number * size);
  return __libc_calloc(number, size);
}
void *realloc(void *old, size_t size) {
  count(size);
  return __libc_realloc(old, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  count(size);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **result, size_t alignment, size_t size) {
  count(size);
  *result = __libc_memalign(alignment, size);
  return *result ? 0 : ENOMEM;
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("TCC_ALLOCATIONS");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file)
    return;
  fprintf(file, "%llu %llu %llu\n", allocations, executions, largest);
  fclose(file);
}
