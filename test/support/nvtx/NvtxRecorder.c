/* A profiler for tests: writes the begin and end of each range, with the number of its thread, to the file NVTX_RECORD.
 * The tables are declared here again, from the documentation alone, so that a mistake in support/Trace.cpp shows. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void (*Function)(void);
typedef struct {
  size_t bytes;
  int (*moduleFunctions)(int module, Function ***table, unsigned *size);
} Callbacks;
typedef struct {
  size_t bytes;
  uint32_t version, reserved;
  void (*setInjectionVersion)(uint32_t version);
} VersionInfo;

static FILE *record;

static int push(const char *text) {
  fprintf(record, "push %d %s\n", (int)gettid(), text);
  return 0;
}
static int pop(void) {
  fprintf(record, "pop %d\n", (int)gettid());
  return 0;
}

int InitializeInjectionNvtx2(const void *(*table)(uint32_t id)) {
  static const unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7}; /* number of functions of each module, plus one */
  const Callbacks *callbacks = table(1);
  const VersionInfo *info = table(3);
  if (!callbacks || callbacks->bytes < sizeof(Callbacks) || !info || info->bytes < sizeof(VersionInfo) ||
      info->version != 3 || table(2))
    return 0;
  info->setInjectionVersion(3);
  Function **core = NULL, **found;
  for (int module = 0; module < 8; ++module) {
    unsigned size = 0;
    found = NULL;
    const int known = module > 0 && module < 7;
    if (callbacks->moduleFunctions(module, &found, &size) != known)
      return 0;
    if (!known)
      continue;
    if (size != sizes[module] || found[0] || found[size])
      return 0;
    for (unsigned i = 1; i < size; ++i)
      if (!found[i] || *found[i])
        return 0;
    if (module == 1)
      core = found;
  }
  record = fopen(getenv("NVTX_RECORD"), "w");
  if (!record)
    return 0;
  setlinebuf(record);
  *core[9] = (Function)push;
  if (!getenv("NVTX_WITHOUT_POP"))
    *core[11] = (Function)pop;
  return 1;
}
