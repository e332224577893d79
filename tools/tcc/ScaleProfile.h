//===- ScaleProfile.h - times and bytes of a plan's programs ----*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_SCALEPROFILE_H
#define TCC_TOOLS_TCC_SCALEPROFILE_H

#include "tools/tcc/Cluster.h"

#include <vector>

namespace tcc::report {

/// A program of an update on one device, by the roofline of the cluster's devices. Times count from its beginning and
/// leave out instructions that write parameters or optimizer state: these wait for sums and come last.
struct ScaleProgram {
  struct Gradient {
    double ready = 0;   ///< when its last term is computed
    uint64_t bytes = 0; ///< bytes that are sent
  };
  struct Parameter {
    double forward = 0, backward = -1; ///< first use in each pass; −1: none
    uint64_t elements = 0;
  };
  /// Bytes of the arena during instructions [first, last].
  struct Span {
    int32_t first = 0, last = 0;
    uint64_t bytes = 0;
  };

  double runs = 1;     ///< in an update; less for a phase that does not run at every step
  bool clips = false;  ///< its update waits for the norm of all gradients
  uint64_t updatedElements = 0; ///< of parameters
  double passSeconds = 0, updateSeconds = 0;
  std::vector<Gradient> gradients;   ///< by time; only in programs that sum them over ranks
  std::vector<Parameter> parameters; ///< by first use
  std::vector<uint64_t> liveBytes;   ///< of the arena, at each instruction
  std::vector<Span> doneGradients;   ///< gradients that wait for their update
  std::vector<Span> copies;          ///< copies of parameters in another type
  uint64_t arenaBytes = 0;

  /// The arena if only the fraction `kept` of every done gradient remains, and `copied` of every copy: it shrinks as
  /// its live bytes do.
  uint64_t arenaWith(double kept, double copied) const;
};

/// The programs of an update.
std::vector<ScaleProgram> profileScale(const plan::Plan &plan, const Cluster &cluster);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_SCALEPROFILE_H
