//===- Modules.h - a plan's kernels on a card ----------------------------===//
//
// A plan holds PTX, which the driver compiles for its card, and perhaps machine code of one architecture. That is taken
// where the card has this architecture and the driver accepts it: then nothing is compiled.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_MODULES_H
#define TCC_RUNTIME_CUDA_MODULES_H

#include "runtime/cuda/Card.h"
#include "runtime/cuda/Step.h"
#include "runtime/plan/PlanFile.h"

#include <vector>

namespace tcc::cuda {

/// What the code objects of a plan ask of driver and card. Error: one is no PTX.
Expected<PtxNeeds> needsOf(const plan::PlanReader &reader);

/// Of one card, whose context is current.
class Modules {
public:
  explicit Modules(const DriverLibrary &driver) : driver(driver) {}
  ~Modules();
  Modules(const Modules &) = delete;
  Modules &operator=(const Modules &) = delete;

  /// Loads all code objects. Error: the driver takes neither machine code nor PTX of one; with the driver's log.
  Status load(const plan::PlanReader &reader, const Card &card);

  /// Gives a step its kernel and launch. Error: no such kernel, or the card runs fewer threads.
  Status find(const plan::KernelCall &call, Step &step) const;

private:
  Status loadObject(const plan::PlanReader &reader, const plan::CodeObject &object, const Card &card);
  /// An image of PTX, which ends with a zero, or of machine code.
  api::CUresult loadImage(const void *image, std::string &log);

  const DriverLibrary &driver;
  std::vector<api::CUmodule> modules; ///< by code object
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_MODULES_H
