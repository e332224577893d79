//===- Target.h - what a machine can do, as the compiler sees it -*- C++ -*-===//
//
// The interface by which general passes ask about the machine that a plan is made for. A target is one level of one
// kind of machine ("cpu:v4"). Its answers depend on the level and on shapes, never on the machine that compiles, so
// that equal inputs give equal plans everywhere.
//
// The module names its target (attribute train.target); passes find it by targetOf(). Kinds are registered by
// registerTarget(): a new kind needs no change to a pass.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_TARGET_H
#define TCC_COMPILER_TARGET_TARGET_H

#include "compiler/target/CodeModel.h"
#include "compiler/target/CostModel.h"
#include "compiler/dialect/Attention.h"
#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include "mlir/IR/Operation.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
}

namespace tcc::target {

/// Features of a target that passes use.
struct Capabilities {
  bool multipliesTf32 = false; ///< products of f32 may have their operands rounded to TF32
  bool multipliesBf16 = false; ///< has instructions for bf16 products; else operands are widened
  bool multipliesF16 = false;  ///< likewise for f16
  bool rowsToKernels = false;  ///< a call may hand rows of a product to a kernel, such as a gradient's to its update
  bool readsNumbersEarly = false; ///< the host reads numbers of an entry while its later instructions run
  bool runsBeside = false;     ///< an instruction may still run while later ones do, within one stream
  /// Convolutions of 16 bits give weight gradients in 16 bits, and no f32 sums.
  bool roundsConvolutionGradients = false;
  bool keepsOnHost = false;    ///< its device has memory of its own, and copies to the host and back beside other work
  bool collectives = false;    ///< its device runs collectives between ranks
  bool scattersInOneTree = false; ///< its reduce-scatter sums in Communicator.h's tree, like an all-reduce
  bool updatesRows = true;     ///< updates only the rows of sparse embedding gradients (update-rows)
  bool sharesLaunches = false; ///< small kernels may share a launch (train.joined)
  bool runsLoops = false;      ///< a loop that one thread runs is no slower than a kernel for each step
  bool attendsInOneOp = true;  ///< attention as one op has kernels that keep the machine busy; else it is not fused
  bool attentionTiles = false; ///< has attention kernels for lane groups, for suitable heads (suitsTiles)
  train::AttentionCalls attentionCalls; ///< the heads whose attention its library computes; call() knows its gradient
  int64_t chunkBytes = int64_t(64) << 20; ///< of a chunk of rows of a large product; set by compiler.chunk_bytes
  int64_t leastRowwiseBytes = 0; ///< least bytes of a gradient whose rows go to a kernel; a smaller one stays in caches
  int64_t reductionUnits = 0;  ///< rows that keep the machine busy; reductions of fewer are split; 0: never
  uint32_t slots = 0;          ///< fixed number of scratch slots in use at a time; 0: that of --threads
  plan::Plan::Execution execution{}; ///< how its device runs instructions; by default as a processor does
};

/// A library call that a target chose.
struct Call {
  plan::Instruction instruction;   ///< the complete descriptor; operands and scratch are not set
  uint64_t scratchSlotBytes = 0;   ///< of each slot
  uint64_t scratchSharedBytes = 0; ///< before the slots
  uint64_t scratchSlots = 1;       ///< most slots that can be used at a time: the number of tiles
  uint64_t partialBytes = 0;       ///< size of the last operand, the partial sums; 0: no such operand
  uint64_t reorderedBytes = 0;     ///< activation bytes whose copy takes as long as the other layout would save
  bool readsInPlace = false;       ///< it reads operands in place, and copies none into another layout

  /// Bytes of scratch with `slots` tiles in flight.
  uint64_t scratchBytes(uint64_t slots) const {
    return scratchSharedBytes + scratchSlotBytes * std::min(slots, scratchSlots);
  }

  /// The text of the attribute #train.call; parseCall() reads it.
  std::string text() const;
};

/// The attribute #train.scratch of a call.
train::ScratchAttr scratchOf(mlir::MLIRContext *context, const Call &call);

/// The descriptor in #train.call. Error: text that is no descriptor.
Expected<plan::Instruction> parseCall(const std::string &text);

/// Points of the pipeline at which a target may add passes of its own.
enum class Stage {
  Composites, ///< once composites are core ops, before zero fills are elided: calls for ops that are still whole
  Layouts,    ///< after layouts are assigned, before products are added to sums: other ways to compute an op
  Views,   ///< once loop kernels absorb the views around them, before saved values are chosen: what such kernels read
  Kernels, ///< once kernels are formed, before reductions are split
  Parts,   ///< once reductions are split
  Order,   ///< once instructions have an order, before their scratch is weighed and memory is planned
};

/// Optional passes that command line and recipe allow.
struct Wishes {
  bool fuse = true;           ///< compiler.fuse: ops share kernels
  bool libraryKernels = true; ///< false: generated kernels for everything
  bool overlap = true;        ///< compiler.overlap: instructions share the machine
  bool winograd = true, pointwiseConvolutions = true;
  std::string epilogues = "auto";      ///< compiler.epilogues: how far values may differ from those of kernels
  std::string attentionCalls = "both"; ///< compiler.attention_calls
  bool budget = false;                 ///< the plan has a memory budget, or is made for several
};

class Target {
public:
  explicit Target(std::string name) : level(std::move(name)) {}
  virtual ~Target() = default;

  /// The full name, as in plans: "cpu:v4".
  const std::string &name() const { return level; }

  virtual const Capabilities &capabilities() const = 0;
  virtual const CostModel &costs() const = 0;

  /// Operations per nanosecond of an op on the nominal machine; `isCall`: as a call, not as a generated kernel.
  virtual double flopsPerNs(mlir::Operation *op, bool isCall) const;

  /// The processor that kernels are generated for.
  virtual const CodeModel &code() const = 0;

  /// The call that an op (interface LibraryCall) becomes. Nothing if the target has none for its types and shapes; a
  /// kernel is then generated. Thread-safe.
  virtual std::optional<Call> call(mlir::Operation *op) const = 0;

  /// An alternative to `chosen` that needs at most `bytes` of scratch for `slots` tiles in flight, or as little as
  /// possible; it takes little more time and gives the same bits. Nothing if there is none.
  virtual std::optional<Call> lighterCall(mlir::Operation *, const plan::Instruction & /*chosen*/, uint64_t /*slots*/,
                                          uint64_t /*bytes*/) const {
    return std::nullopt;
  }

  virtual void addPasses(Stage stage, mlir::OpPassManager &passes, const Wishes &wishes) const = 0;

  /// Name and version of the library that calls run on, for Plan.library; empty if there is none.
  virtual std::string library() const { return ""; }

private:
  std::string level;
};

/// A kind of machine: the part of a target's name before ':'.
struct TargetKind {
  std::string name;
  std::vector<std::string> levels; ///< full names, least first
  bool hasOwnMemory = false; ///< plans run in a device's memory, whose size the machine that compiles does not know

  /// The level for a name without one: the best of this machine. Error: this machine supports none.
  Expected<std::string> (*defaultLevel)(bool bf16Products);
  std::unique_ptr<const Target> (*create)(const std::string &level);
};

/// Registers a kind; the first one is the default. A second kind of the same name is ignored.
void registerTarget(const TargetKind &kind);

/// The full name of a target: "" and "cpu" get this machine's level. Error: an unknown name; the message lists the
/// known ones.
Expected<std::string> resolveTarget(const std::string &asked, bool bf16Products);

/// The kind of a target, or of a kind's name; null for an unknown one. It is valid until another kind is registered.
const TargetKind *findKind(llvm::StringRef name);

/// A target by its full name; null for an unknown one. It lives as long as the process.
const Target *findTarget(llvm::StringRef name);

/// The full name of the first target with a feature, in the order of registration; "" if none has it.
std::string firstTargetWith(bool Capabilities::*feature);

/// unit, on a module: its products of f32 round their operands to TF32, as its target does (multipliesTf32).
inline constexpr llvm::StringLiteral kTf32Attribute = "train.tf32";

/// unit, on a module: convolutions are generated kernels, even where the target's library computes them.
inline constexpr llvm::StringLiteral kConvolutionKernelsAttribute = "train.convolution_kernels";

/// i64, on a module: bytes of the slices in which a target may compute gradients (compiler.slice_bytes); 0: no slices.
/// Absent: the target's own choice.
inline constexpr llvm::StringLiteral kSliceBytesAttribute = "train.slice_bytes";

/// f64, on a module: bytes that its machine copies to the host in a nanosecond (offload.bytes_per_second). Absent: the
/// target's own rate.
inline constexpr llvm::StringLiteral kHostBytesAttribute = "train.host_bytes_per_ns";

/// The attribute of a module that names its target.
inline constexpr llvm::StringLiteral kTargetAttribute = "train.target";

/// The target of the module around `op`; null if it names no known one.
const Target *targetOf(mlir::Operation *op);

/// The costs of the module's target; default costs if it names none.
const CostModel &costsOf(mlir::Operation *op);

/// Target::flopsPerNs of the module's target, or by default costs.
double flopsPerNsOf(mlir::Operation *op, bool isCall);

} // namespace tcc::target

#endif // TCC_COMPILER_TARGET_TARGET_H
