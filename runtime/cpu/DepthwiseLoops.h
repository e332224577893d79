//===- DepthwiseLoops.h - 16 channels at a time --------------------------===//
#ifndef TCC_RUNTIME_CPU_DEPTHWISELOOPS_H
#define TCC_RUNTIME_CPU_DEPTHWISELOOPS_H

#include <cstdint>

namespace tcc::runtime::depthwise {

/// The offset of a tap's source, in elements from that of the line's first result, and the tap's number.
struct Tap {
  int64_t at, number;
};

/// Results of one line, channels `begin` to `end`. Pitches in elements; bf16 where narrow, else f32.
struct Line {
  bool narrowSource, narrowResult;
  const char *source; ///< channel 0 of the element that the first result reads by a tap at 0
  int64_t sourcePitch;
  const Tap *taps;
  int64_t tapCount;
  const float *weights; ///< [number of the tap][channel]
  int64_t weightPitch;
  char *result;
  int64_t resultAt, resultPitch; ///< of channel 0 of the first result; to the next result
  int64_t planePitch;            ///< from channel to channel; 0: channels are contiguous
  int64_t pixels, begin, end;
};
void correlate(const Line &line);

/// sums[number of the tap][channel] += source[pixel + tap][channel] · gradient[pixel][channel], over the pixels of a
/// line in order.
struct GradientLine {
  bool narrow;
  const char *source;
  int64_t sourcePitch;
  const char *gradient;
  int64_t gradientPitch, planePitch; ///< to the next pixel; to the next channel
  const Tap *taps;
  int64_t tapCount;
  float *sums;
  int64_t sumPitch, pixels, channels;
};
void addProducts(const GradientLine &line);

/// The functions above at one machine level (Vectors.h).
struct DepthwiseKernels {
  decltype(&depthwise::correlate) correlate;
  decltype(&depthwise::addProducts) addProducts;
};
namespace baseline {
extern const DepthwiseKernels kDepthwise;
}
namespace avx2 {
extern const DepthwiseKernels kDepthwise;
}
namespace avx512 {
extern const DepthwiseKernels kDepthwise;
}

} // namespace tcc::runtime::depthwise

#endif // TCC_RUNTIME_CPU_DEPTHWISELOOPS_H
