//===- Modules.h - a plan's kernels on a card ----------------------------===//
//
// A plan holds PTX, which the driver compiles for its card, and possibly machine code of one architecture. If the card
// has this architecture and the driver accepts the code, it is used and nothing is compiled.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_MODULES_H
#define TCC_RUNTIME_CUDA_MODULES_H

#include "runtime/cuda/Card.h"
#include "runtime/cuda/Step.h"
#include "runtime/plan/PlanFile.h"

#include <vector>

namespace tcc::cuda {

/// The versions of driver and card that a plan's code objects require. Error: one is not PTX.
Expected<PtxNeeds> needsOf(const plan::PlanReader &reader);

/// The modules of one card, whose context is current.
class Modules {
public:
  explicit Modules(const DriverLibrary &driver) : driver(driver) {}
  ~Modules();
  Modules(const Modules &) = delete;
  Modules &operator=(const Modules &) = delete;

  /// Loads all code objects. Error, with the driver's log: it accepts neither machine code nor PTX of one.
  Status load(const plan::PlanReader &reader, const Card &card);

  /// Sets a step's kernel and launch. Error: no such kernel, or the card supports fewer threads.
  Status find(const plan::KernelCall &call, Step &step) const;

private:
  Status loadObject(const plan::PlanReader &reader, const plan::CodeObject &object, const Card &card);
  /// Loads an image of zero-terminated PTX, or of machine code.
  api::CUresult loadImage(const void *image, std::string &log);

  const DriverLibrary &driver;
  std::vector<api::CUmodule> modules; ///< by code object
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_MODULES_H
