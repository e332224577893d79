//===- StreamCopy.cpp - copies that leave the caches alone ----------------===//
#include "support/StreamCopy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__) && !defined(TCC_PORTABLE)
#include <emmintrin.h>
#endif

void tcc::copyPastCaches(void *to, const void *from, size_t bytes) {
#if defined(__SSE2__) && !defined(TCC_PORTABLE)
  auto *target = static_cast<char *>(to);
  auto *source = static_cast<const char *>(from);
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % 16);
  std::memcpy(target, source, head);
  const size_t whole = head + ((bytes - head) & ~size_t(63));
  for (size_t i = head; i < whole; i += 64) {
    __m128i words[4];
    for (size_t k = 0; k < 4; ++k)
      words[k] = _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + i + 16 * k));
    for (size_t k = 0; k < 4; ++k)
      _mm_stream_si128(reinterpret_cast<__m128i *>(target + i + 16 * k), words[k]);
  }
  _mm_sfence();
  to = target + whole;
  from = source + whole;
  bytes -= whole;
#endif
  std::memcpy(to, from, bytes);
}
