//===- Algorithms.h - algorithms that a library chose for a plan's calls -===//
//
// A plan specifies what a library call computes, and its bounds. If several of the library's algorithms fit, the device
// chooses one when it loads the plan. Another algorithm may give other bits, so a run records its algorithms and a
// resume uses the same.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_ALGORITHMS_H
#define TCC_RUNTIME_ALGORITHMS_H

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::runtime {

/// The algorithm of one call.
struct Algorithm {
  std::string code;   ///< the device's encoding, which only that device reads
  std::string about;  ///< description for reports
  double seconds = 0; ///< the least time that was measured; 0: not timed

  bool operator==(const Algorithm &other) const { return code == other.code; }
};

/// The algorithms of all calls; empty on a device whose plans name every implementation.
struct Algorithms {
  std::string library;                    ///< name and version, which the codes depend on; several with kSeparator
  std::string machine;                    ///< on which they were chosen
  std::map<std::string, Algorithm> calls; ///< by the call's description: equal calls share an algorithm
  std::vector<std::string> notes;         ///< for the user, what computes a part of the plan that has two ways, and why
  std::string source;                     ///< the file that they were read from, or kFirstRank, for messages

  /// The value of `source` if rank 0 chose the algorithms and sent them to all ranks of the job.
  static constexpr const char *kFirstRank = "rank 0";

  static constexpr const char *kSeparator = ", ";

  bool empty() const { return library.empty(); }

  /// Name and version, "cuDNN 9.26.0", of the library of this name; empty if the calls do not need it.
  std::string libraryNamed(std::string_view name) const {
    for (size_t at = 0; at < library.size();) {
      const size_t end = std::min(library.find(kSeparator, at), library.size());
      if (std::string_view one = std::string_view(library).substr(at, end - at);
          one.starts_with(name) && one.substr(name.size()).starts_with(' '))
        return std::string(one);
      at = end + std::string_view(kSeparator).size();
    }
    return "";
  }
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_ALGORITHMS_H
