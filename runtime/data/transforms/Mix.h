//===- Mix.h - mixup and cutmix of a batch ---------------------------------===//
//
// A batch is mixed with itself, shifted by one sample: sample i with i − 1, the first with the last. Mixup: Zhang et
// al., mixup: beyond empirical risk minimization, 2017; cutmix: Yun et al., 2019; both as torchvision's v2 transforms.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_MIX_H
#define TCC_RUNTIME_DATA_TRANSFORMS_MIX_H

#include "runtime/data/transforms/Random.h"
#include "runtime/data/transforms/Resample.h"
#include "support/recipe/Transforms.h"

#include <optional>

namespace tcc::runtime {

/// How one batch is mixed.
struct Mixture {
  double share = 1;       ///< weight of each sample's own target
  std::optional<Box> box; ///< cutmix: the part that is copied from the previous sample; mixup: none
};

/// Draws the mixture of a batch; nothing if it is not mixed.
std::optional<Mixture> chooseMixture(const recipe::TransformSpec &spec, uint32_t height, uint32_t width,
                                     Random &random);

/// Mixes `count` samples of `elements` values each by `share`; `spare` is memory.
void blendSamples(std::span<float> values, uint64_t count, double share, std::vector<float> &spare);
/// Copies `box` of each sample, of planes of height × width, to the next sample.
void moveBoxes(std::span<float> values, uint64_t count, uint32_t height, uint32_t width, const Box &box,
               std::vector<float> &spare);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_MIX_H
