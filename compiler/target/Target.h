//===- Target.h - what a machine can do, as the compiler sees it -*- C++ -*-===//
//
// All that the general passes ask about the machine that a plan is made for. A target is one level of one kind of
// machine ("cpu:v4"). Its answers follow from the level and from shapes, never from the machine that compiles, so that
// equal inputs give equal plans everywhere.
//
// The module names its target (attribute train.target); passes find it by targetOf(). Kinds are registered by
// registerTarget(): a new kind needs no change to a pass.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_TARGET_H
#define TCC_COMPILER_TARGET_TARGET_H

#include "compiler/target/CodeModel.h"
#include "compiler/target/CostModel.h"
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

/// What passes apply.
struct Capabilities {
  bool multipliesTf32 = false; ///< products of f32 may have their operands rounded to TF32
  bool multipliesBf16 = false; ///< bf16 products have instructions of their own; else their operands are widened
  bool multipliesF16 = false;  ///< likewise
  bool rowsToKernels = false;  ///< a call may hand rows of a product to a kernel: gradients go into updates row by row
  bool runsBeside = false;     ///< an instruction may still run while later ones do, within one stream
  bool roundsConvolutionGradients = false; ///< convolutions of 16 bits give weight gradients in 16 bits, and no f32 sums
  bool collectives = false;    ///< its device runs all-reduces and broadcasts between ranks
  bool scattersInOneTree = false; ///< a reduce-scatter adds in the tree of Communicator.h, as an all-reduce does where it must
  bool epilogues = false;      ///< a call may finish a product as MatMulEpilogueOp says: call() knows which
  bool runsLoops = false;      ///< a loop as one kernel, which one thread runs, takes no longer than its steps one by one
  bool attendsInOneOp = true;  ///< attention as one op has kernels that keep the machine busy; else it stays as the graph has it
  bool attentionTiles = false; ///< attention has kernels for warps where heads suit them (suitsTiles)
  bool attentionCalls = false; ///< its library computes attention where suitsCalls says so: call() knows its gradient
  int64_t productRowBytes = 0; ///< rows of matrices that are a multiple of it keep tensor cores fed; 0: any
  int64_t chunkBytes = int64_t(64) << 20; ///< of a large product of rows, a part: compiler.chunk_bytes unless the recipe has it
  int64_t leastRowwiseBytes = 0; ///< of a gradient whose rows go to a kernel: a smaller one stays in caches until read
  int64_t reductionUnits = 0;  ///< rows that keep the machine busy: fewer and longer ones are cut into parts; 0: never
  uint32_t slots = 0;          ///< of scratch, a fixed number that may be in use at a time; 0: as many as --threads says
};

/// A call as the target makes it.
struct Call {
  plan::Instruction instruction;   ///< the complete descriptor; operands and scratch are not set
  uint64_t scratchSlotBytes = 0;   ///< for each slot
  uint64_t scratchSharedBytes = 0; ///< before the slots
  uint64_t scratchSlots = 1;       ///< as many as can be used: the tiles
  uint64_t partialBytes = 0;       ///< size of the last operand, the partial sums; 0: no such operand
  uint64_t reorderedBytes = 0;     ///< of activations that could be copied into another layout in the time that it would save
  bool readsInPlace = false;       ///< it reads operands in place, and copies none into another layout

  /// Of so many tiles in flight.
  uint64_t scratchBytes(uint64_t slots) const { return scratchSharedBytes + scratchSlotBytes * std::min(slots, scratchSlots); }

  /// For the attribute #train.call, and back.
  std::string text() const;
};

/// For the attribute #train.scratch.
train::ScratchAttr scratchOf(mlir::MLIRContext *context, const Call &call);

/// The descriptor in #train.call. Error: text that is none.
Expected<plan::Instruction> parseCall(const std::string &text);

/// Where a target adds passes of its own to the pipeline.
enum class Stage {
  Layouts, ///< once layouts are assigned, before products are added to sums: other ways to compute an op
};

/// What a recipe leaves to choose from.
struct Wishes {
  bool winograd = true, pointwiseConvolutions = true;
};

class Target {
public:
  explicit Target(std::string name) : level(std::move(name)) {}
  virtual ~Target() = default;

  /// As plans name it: "cpu:v4".
  const std::string &name() const { return level; }

  virtual const Capabilities &capabilities() const = 0;
  virtual const CostModel &costs() const = 0;

  /// Operations that the nominal machine makes of an op in a nanosecond; `isCall`: it is a call, not a generated kernel.
  virtual double flopsPerNs(mlir::Operation *op, bool isCall) const;

  /// What fused regions become code for.
  virtual const CodeModel &code() const = 0;

  /// The call that an op (interface LibraryCall) becomes; nothing where the target has none for its types and shapes, and
  /// a kernel is generated. May be called from several threads.
  virtual std::optional<Call> call(mlir::Operation *op) const = 0;

  /// A call of `op` that needs at most `bytes` of scratch for `slots` tiles in flight, or as little as it can, in place of
  /// `chosen`; it costs little more time and gives the same bits. Nothing where there is none.
  virtual std::optional<Call> lighterCall(mlir::Operation *, const plan::Instruction & /*chosen*/, uint64_t /*slots*/,
                                          uint64_t /*bytes*/) const {
    return std::nullopt;
  }

  virtual void addPasses(Stage stage, mlir::OpPassManager &passes, const Wishes &wishes) const = 0;

  /// Name and version of the library that calls run on, for Plan.library; empty where there is none.
  virtual std::string library() const { return ""; }

private:
  std::string level;
};

/// A kind of machine: the part of a target's name before ':'.
struct TargetKind {
  std::string name;
  std::vector<std::string> levels; ///< full names, least first

  /// The level that is compiled for where a name has none. Error: this machine runs none.
  Expected<std::string> (*defaultLevel)(bool bf16Products);
  std::unique_ptr<const Target> (*create)(const std::string &level);
};

/// Makes a kind known; the first one is the default. A second one of the same name is ignored.
void registerTarget(const TargetKind &kind);

/// The full name of a target: "" and "cpu" become this machine's level of it. Error: an unknown name, with those
/// that exist.
Expected<std::string> resolveTarget(const std::string &asked, bool bf16Products);

/// A target by its full name; null for an unknown one. It lives as long as the process.
const Target *findTarget(llvm::StringRef name);

/// unit, on a module: its products of f32 round their operands to TF32, as its target does (multipliesTf32).
inline constexpr llvm::StringLiteral kTf32Attribute = "train.tf32";

/// unit, on a module: convolutions are generated kernels, even where the target's library computes them.
inline constexpr llvm::StringLiteral kConvolutionKernelsAttribute = "train.convolution_kernels";

/// i64, on a module: bytes of the slices in which a target may compute gradients (compiler.slice_bytes); 0: it stores
/// all of them. Absent: the target's own choice.
inline constexpr llvm::StringLiteral kSliceBytesAttribute = "train.slice_bytes";

/// The attribute of a module that names its target.
inline constexpr llvm::StringLiteral kTargetAttribute = "train.target";

/// The target of the module around `op`; null where it names none that is known.
const Target *targetOf(mlir::Operation *op);

/// The costs of the module's target; those of a nominal machine where it names none.
const CostModel &costsOf(mlir::Operation *op);

/// Operations a nanosecond of the op, by the same machine.
double flopsPerNsOf(mlir::Operation *op, bool isCall);

} // namespace tcc::target

#endif // TCC_COMPILER_TARGET_TARGET_H
