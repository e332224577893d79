//===- KernelSet.h - the distinct kernels of a plan -------------*- C++ -*-===//
//
// Fused regions that differ only in names and locations are one kernel: twelve layers, one kernel. So are regions that
// become equal when dimensions are merged (the update of a [768, 3072] and a [3072, 768] weight). Symbols follow from
// the region's text, so they do not depend on the order of requests.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_KERNELSET_H
#define TCC_CODEGEN_KERNELSET_H

#include "compiler/codegen/KernelEmitter.h"
#include "compiler/dialect/Joined.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/target/CodeModel.h"
#include "support/Status.h"
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
  /// `store`, if given, caches the code of kernels.
  explicit KernelSet(target::CodeModel model, Profile *profile = nullptr, cache::ContentStore *store = nullptr);
  /// Stops background compilation whose result was not collected.
  ~KernelSet();

  /// Gives alike kernels for workers one body (SharedBodies.h). Call before `start`.
  void shareAlike() { shares = !model.threaded(); }

  struct Kernel {
    std::string symbol;
    KernelWork work;
  };
  /// The kernel of a region, added if it is new.
  Kernel add(train::FusedOp fused);
  /// The kernel of regions that share a launch, added if it is new.
  Kernel add(train::JoinedOp joined);
  /// The kernels that compute the same as a library's call, in the order of their launches; none if only the library
  /// computes it. `call` is the op, or the region that has its call.
  std::vector<Kernel> addKernelsOf(mlir::Operation *call);

  /// Starts compiling the kernels added so far, in the background. The set has its own copies of regions, so the
  /// program may change meanwhile. Code of kernels that the program no longer uses is kept.
  void start();

  /// Compiles all kernels, in parallel, into one shared object, or for warps one text of PTX; empty if there are none.
  /// Error: a diagnostic was emitted, or an internal one.
  Expected<std::string> compile();

  /// The memory that each kernel may touch, by symbol.
  std::vector<plan::KernelSignature> signatures() const;

  size_t size() const { return kernels.size(); }
  /// True if kernels share a launch.
  bool joins() const;

private:
  struct Entry {
    std::unique_ptr<mlir::Block> holder; ///< copies of the regions, their operands arguments of the block
    train::FusedOp fused;                ///< the one region
    std::vector<JoinedProgram> programs; ///< or those that share a launch
    plan::KernelSignature signature;
    KernelWork work;
    bool endsModule = false; ///< the next kernel begins another one
    bool started = false;
  };
  /// A copy of a region with merged dimensions, in a holder.
  static train::FusedOp hold(train::FusedOp fused, mlir::Block &holder);
  /// Adds the kernel of a text; `entry` is complete except for its symbol and signature.
  Entry *insert(std::string text, Entry entry, llvm::function_ref<plan::KernelSignature(llvm::StringRef symbol)> sign);
  struct Unit;
  struct Batch;

  Expected<std::string> compileUnit(const Unit &unit) const;

  target::CodeModel model;
  Profile *profile;
  cache::ContentStore *store;
  bool shares = false;
  std::map<std::string, Entry> kernels; ///< by text, dimensions merged
  std::map<std::string, Entry *> asked; ///< by the text of the region before merging
  std::vector<std::unique_ptr<Batch>> batches;
};

} // namespace tcc::codegen

#endif // TCC_CODEGEN_KERNELSET_H
