//===- KernelSet.h - the distinct kernels of a plan -------------*- C++ -*-===//
//
// Fused regions that are equal but for names and locations are one kernel: twelve layers, one kernel. Symbols follow
// from the region's text, so they do not depend on the order of requests.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_KERNELSET_H
#define TCC_CODEGEN_KERNELSET_H

#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/Status.h"

#include <map>
#include <string>
#include <vector>

namespace tcc::codegen {

class KernelSet {
public:
  explicit KernelSet(std::string target) : target(std::move(target)) {}

  struct Kernel {
    std::string symbol;
    int64_t tiles;
  };
  /// The kernel of a region, added if it is new. The region must outlive compile().
  Kernel add(train::FusedOp fused);

  /// Compiles all kernels, in parallel, into one shared object. Error: a diagnostic was emitted, or an internal one.
  plan::Expected<std::string> compile();

  size_t size() const { return kernels.size(); }

private:
  struct Entry {
    train::FusedOp fused;
    std::string symbol;
    int64_t tiles;
  };
  std::string target;
  std::map<std::string, Entry> kernels; // by text
};

} // namespace tcc::codegen

#endif // TCC_CODEGEN_KERNELSET_H
