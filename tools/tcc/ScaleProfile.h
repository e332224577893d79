//===- ScaleProfile.h - what a plan tells about its steps -------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_SCALEPROFILE_H
#define TCC_TOOLS_TCC_SCALEPROFILE_H

#include "tools/tcc/Cluster.h"

#include <vector>

namespace tcc::report {

/// A program of an update on one device, by the roofline of the cluster's devices. Times count from its beginning,
/// instructions that write parameters or optimizer state left out: these wait for sums and come last.
struct ScaleProgram {
  struct Gradient {
    double ready = 0;   ///< when its last term is there
    uint64_t bytes = 0; ///< on its way
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

  double runs = 1;     ///< in an update; of a phase that not every step has, less
  bool clips = false;  ///< its update waits for the norm of all gradients
  uint64_t updatedElements = 0; ///< of parameters
  double passSeconds = 0, updateSeconds = 0;
  std::vector<Gradient> gradients;   ///< by time; only where they are summed
  std::vector<Parameter> parameters; ///< by first use
  std::vector<uint64_t> liveBytes;   ///< of the arena, at each instruction
  std::vector<Span> doneGradients;   ///< wait for their update
  std::vector<Span> copies;          ///< of parameters, in another type
  uint64_t arenaBytes = 0;

  /// The arena if `kept` of every done gradient remains, and `copied` of every copy: as much smaller as its live bytes.
  uint64_t arenaWith(double kept, double copied) const;
};

/// The programs of an update.
std::vector<ScaleProgram> profileScale(const plan::Plan &plan, const Cluster &cluster);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_SCALEPROFILE_H
