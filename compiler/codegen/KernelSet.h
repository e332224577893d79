//===- KernelSet.h - the distinct kernels of a plan -------------*- C++ -*-===//
//
// Fused regions that are equal but for names and locations are one kernel: twelve layers, one kernel; so are those that
// differ in dimensions a kernel walks as one (the update of a [768, 3072] and a [3072, 768] weight). Symbols follow from
// the region's text, so they do not depend on the order of requests.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_KERNELSET_H
#define TCC_CODEGEN_KERNELSET_H

#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/Status.h"
#include "runtime/plan/plan.pb.h"

#include "mlir/IR/Block.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tcc {
class Profile;
namespace cache {
class ContentStore;
}
} // namespace tcc

namespace tcc::codegen {

class KernelSet {
public:
  /// Code is looked for in `store`, if there is one, and kept there.
  explicit KernelSet(std::string target, Profile *profile = nullptr, cache::ContentStore *store = nullptr);
  /// Ends what was begun and not asked for.
  ~KernelSet();

  struct Kernel {
    std::string symbol;
    int64_t tiles;
  };
  /// The kernel of a region, added if it is new.
  Kernel add(train::FusedOp fused);

  /// Begins to compile what was added so far, in the background. The set reads copies of its own, so the program may be
  /// changed meanwhile. Kernels that nobody asks for any more stay in the code.
  void start();

  /// Compiles all kernels, in parallel, into one shared object; empty where there are none. Error: a diagnostic was
  /// emitted, or an internal one.
  plan::Expected<std::string> compile();

  /// What each kernel may touch, by symbol.
  std::vector<plan::KernelSignature> signatures() const;

  size_t size() const { return kernels.size(); }

private:
  struct Entry {
    std::unique_ptr<mlir::Block> holder; ///< a copy of the region, its operands arguments of the block
    train::FusedOp fused;
    plan::KernelSignature signature;
    bool endsModule = false; ///< the next kernel begins another one
    bool started = false;
  };
  struct Unit;
  struct Batch;

  plan::Expected<std::string> compileUnit(const Unit &unit) const;

  std::string target;
  Profile *profile;
  cache::ContentStore *store;
  std::map<std::string, Entry> kernels; ///< by text, dimensions merged
  std::map<std::string, Entry *> asked; ///< by the text of the region as it was
  std::vector<std::unique_ptr<Batch>> batches;
};

} // namespace tcc::codegen

#endif // TCC_CODEGEN_KERNELSET_H
