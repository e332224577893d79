/* Is linked with -z nodelete: the loader never unloads it. */
#include <stdint.h>

void pinned(void *const *pointers, int64_t begin, int64_t end, void *scratch) {}
