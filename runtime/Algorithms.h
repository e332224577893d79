//===- Algorithms.h - what a library chose for the calls of a plan -------===//
//
// A plan says what a library call computes, and its bounds. Where several of the library's algorithms fit, the device
// takes one when it loads the plan. Another algorithm may give other bits, so a run records the algorithms and a resume
// takes the same.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_ALGORITHMS_H
#define TCC_RUNTIME_ALGORITHMS_H

#include <map>
#include <string>

namespace tcc::runtime {

/// The algorithm of one call.
struct Algorithm {
  std::string code;   ///< as the device that wrote it reads it back
  std::string about;  ///< for people
  double seconds = 0; ///< the least time that was measured; 0: not timed

  bool operator==(const Algorithm &other) const { return code == other.code; }
};

/// The algorithms of all calls; empty on a device whose plans name every implementation.
struct Algorithms {
  std::string library;                    ///< with version: only the same one reads the codes
  std::string machine;                    ///< that they were chosen on
  std::map<std::string, Algorithm> calls; ///< by the call's description: equal calls share an algorithm
  std::string source;                     ///< the file that they were read from, for messages

  bool empty() const { return library.empty(); }
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_ALGORITHMS_H
