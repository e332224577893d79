/* NoPolly.c - lld's link-time optimisation names Polly, of which Debian has no archive. Kernels are linked from machine code,
 * so that nothing calls this. */
#include <stdlib.h>

void noPolly(void) __asm__("_Z18getPollyPluginInfov");
__attribute__((visibility("hidden"))) void noPolly(void) { abort(); }
