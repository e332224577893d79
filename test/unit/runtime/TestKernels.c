/* Kernels as tcc makes them: out = in0 + in1 on tiles of 16 f32 values, and in place out = 2 * in. */
#include <stdint.h>

void add(void *const *pointers, int64_t begin, int64_t end, void *scratch) {
  const float *a = (const float *)pointers[0], *b = (const float *)pointers[1];
  float *out = (float *)pointers[2];
  for (int64_t i = begin * 16; i < end * 16; ++i)
    out[i] = a[i] + b[i];
}

void twice(void *const *pointers, int64_t begin, int64_t end, void *scratch) {
  const float *in = (const float *)pointers[0];
  float *out = (float *)pointers[1];
  for (int64_t i = begin * 16; i < end * 16; ++i)
    out[i] = 2 * in[i];
}
