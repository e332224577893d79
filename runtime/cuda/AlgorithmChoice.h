//===- AlgorithmChoice.h - choose a library's algorithm for each call -----===//
//
// Calls with equal descriptions share an algorithm: the one that the run recorded, else the first of the library's
// list, untimed. With `tune` it is the fastest of the list: each is run several times between events, in the plan's
// memory before that is initialised, and its least time counts.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_ALGORITHMCHOICE_H
#define TCC_RUNTIME_CUDA_ALGORITHMCHOICE_H

#include "runtime/Algorithms.h"
#include "runtime/cuda/BlasProduct.h"
#include "runtime/cuda/DnnCall.h"
#include "runtime/cuda/DriverLibrary.h"

namespace tcc::cuda {

template <LibraryCall Call> class AlgorithmChoice {
public:
  using Algorithm = typename Call::Algorithm;

  /// `noun` ("convolution") and `machine`, the card, are for messages. References must outlive the choice.
  AlgorithmChoice(const char *noun, std::string version, const DriverLibrary &driver, api::CUstream stream,
                  std::string machine, const runtime::Algorithms &recorded, bool tune);

  /// "cuDNN 9.26.0".
  std::string libraryName() const { return std::string(Call::kLibrary) + " " + version; }

  /// Error, with advice: the record was written with another version of the library.
  Status compareLibrary() const;

  /// Finds the call's algorithm. Error: there is none, the recorded one is not accepted, or the card failed.
  Status find(Call &call);
  /// The same, and sets it.
  Status choose(Call &call);

  /// All algorithms chosen so far.
  const std::map<std::string, runtime::Algorithm> &taken() const { return chosen; }

private:
  Expected<Algorithm> fromRecord(const Call &call, const runtime::Algorithm &algorithm) const;
  Expected<Algorithm> fastest(Call &call, double &seconds) const;
  /// The least time of several runs.
  Expected<double> secondsOf(const Call &call, api::CUevent begin, api::CUevent end) const;
  Status fillOperands(const Call &call) const;

  const char *noun;
  std::string version;
  const DriverLibrary &driver;
  api::CUstream stream;
  std::string machine;
  const runtime::Algorithms &recorded;
  bool tune;
  std::map<std::string, runtime::Algorithm> chosen;
  struct Known {
    Algorithm algorithm;
    bool ran;
  };
  std::map<std::string, Known> byText;
};

extern template class AlgorithmChoice<BlasProduct>;
extern template class AlgorithmChoice<DnnCall>;

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_ALGORITHMCHOICE_H
