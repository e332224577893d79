//===- BlasChoice.h - which of cuBLASLt's algorithms a product takes -----===//
//
// Products that the library is told the same of share an algorithm: the one that the run recorded, else the first of
// the library's list, untimed. With `tune` the fastest of the list: each is run several times between events, in the
// plan's memory before that has its values, and the least time counts.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_BLASCHOICE_H
#define TCC_RUNTIME_CUDA_BLASCHOICE_H

#include "runtime/Algorithms.h"
#include "runtime/cuda/BlasProduct.h"
#include "runtime/cuda/DriverLibrary.h"

namespace tcc::cuda {

class BlasChoice {
public:
  /// `machine` names the card for the record. References must outlive the choice.
  BlasChoice(const BlasLibrary &library, const DriverLibrary &driver, api::CUstream stream, std::string machine,
             const runtime::Algorithms &recorded, bool tune);

  /// Error, with a way out: another version of the library wrote the record.
  Status compareLibrary() const;

  /// Gives the product its algorithm. Error: there is none, the recorded one is not accepted, or the card failed.
  Status choose(BlasProduct &product);

  /// All that were given so far.
  const runtime::Algorithms &taken() const { return chosen; }

private:
  Expected<BlasAlgorithm> fromRecord(const BlasProduct &product, const runtime::Algorithm &algorithm) const;
  Expected<BlasAlgorithm> fastest(BlasProduct &product, double &seconds) const;
  /// The least time of several runs.
  Expected<double> secondsOf(const BlasProduct &product, api::CUevent begin, api::CUevent end) const;
  std::string aboutOf(const api::cublasLtMatmulAlgo_t &algo) const;
  std::string libraryName() const { return "cuBLASLt " + library.version(); }

  const BlasLibrary &library;
  const DriverLibrary &driver;
  api::CUstream stream;
  const runtime::Algorithms &recorded;
  bool tune;
  runtime::Algorithms chosen;
  std::map<std::string, BlasAlgorithm> byText;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_BLASCHOICE_H
