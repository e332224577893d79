//===- DnnConvolution.h - engines of the stand-in, and what they compute -===//
#ifndef TCC_TEST_EMULATION_DRIVER_DNNCONVOLUTION_H
#define TCC_TEST_EMULATION_DRIVER_DNNCONVOLUTION_H

#include "test/emulation/driver/StandIn.h"

namespace tcc::emulation {

/// A convolution that a finalized operation describes.
struct DnnProblem {
  enum Direction { Forward, Data, Filter } direction = Forward;
  struct Tensor {
    int64_t uid = 0, alignment = 0;
    cuda::api::cudnnDataType_t type = cuda::api::CUDNN_DATA_FLOAT;
    std::vector<int64_t> dims, strides;

    int64_t elements() const;
    uint64_t bytes() const { return static_cast<uint64_t>(elements()) * (type == cuda::api::CUDNN_DATA_FLOAT ? 4 : 2); }
  } x, w, y, bias;
  /// The operation on the sums before they are rounded to y's type.
  enum Finish { Sums, Bias } finish = Sums;
  cuda::api::cudnnDataType_t between = cuda::api::CUDNN_DATA_FLOAT; ///< of the virtual tensors
  std::vector<int64_t> strides, dilations, before, after;
  float alpha = 1, beta = 0;

  const Tensor &result() const { return direction == Forward ? y : direction == Data ? x : w; }
  bool channelsLast() const { return x.strides[1] == 1 && x.dims[1] > 1; }
  /// Products that make an element of the result.
  int64_t terms() const;
  /// Why no engine computes it; "" if some engine does.
  std::string wrong() const;
};

/// An engine of the stand-in; NVIDIA's engines differ.
struct DnnEngineRule {
  int64_t index;
  std::vector<cuda::api::cudnnBackendNumericalNote_t> notes;
  std::vector<cuda::api::cudnnBackendBehaviorNote_t> behavior;
  int64_t tiles;  ///< values of its one knob, the parts of the sum; 0: it has no knob
  uint64_t ticks; ///< time with tile 1; tile 2 takes half of it
  bool runs;      ///< false: heuristics list it, but no plan can be made of it
};
/// Engines for graphs of several operations (DnnGraph.h); all others are for convolutions.
enum DnnGraphEngine : int64_t { kDnnGraphGreedy = 20, kDnnGraphNever, kDnnGraphFused, kDnnGraphSlow };
const std::vector<DnnEngineRule> &dnnEngines();
const DnnEngineRule *findDnnEngine(int64_t index);
bool hasNote(const DnnEngineRule &engine, cuda::api::cudnnBackendNumericalNote_t note);

/// An engine, and the value of its knob.
struct DnnConfiguration {
  int64_t engine = 0, tile = 0;
};
/// The engines that heuristics of a mode list.
std::vector<DnnConfiguration> dnnHeuristics(const DnnProblem &problem, cuda::api::cudnnBackendHeurMode_t mode);
uint64_t dnnWorkspace(const DnnProblem &problem, const DnnConfiguration &configuration);

/// A submitted convolution, as it runs.
struct DnnWork {
  DnnProblem problem;
  DnnConfiguration configuration;
  void *x = nullptr, *w = nullptr, *y = nullptr, *bias = nullptr, *workspace = nullptr;

  void *of(const DnnProblem::Tensor &tensor) const {
    return &tensor == &problem.x ? x : &tensor == &problem.w ? w : &tensor == &problem.bias ? bias : y;
  }
  /// Touches the operands, fills the workspace with NaN, convolves.
  std::optional<Fault> run(uint32_t work) const;
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_DNNCONVOLUTION_H
