//===- Common.h - helpers of the mathematical passes ------------*- C++ -*-===//
//
// Names of the attributes that carry information between passes and to emit, and helpers that several passes use.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_COMMON_H
#define TCC_PASSES_COMMON_H

#include "compiler/dialect/Builders.h"
#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::train {

namespace names {
// On arguments and results.
inline constexpr llvm::StringLiteral kName = "train.name";              ///< string: graph input or output
inline constexpr llvm::StringLiteral kSampleAxis = "train.sample_axis"; ///< i64; -1: a constant
inline constexpr llvm::StringLiteral kInner = "train.inner"; ///< unit, on a result: only loss.of needs it
inline constexpr llvm::StringLiteral kLength =
    "train.length"; ///< string, on an argument: the symbolic dimension of the first axis of a sample
inline constexpr llvm::StringLiteral kPresence =
    "train.presence"; ///< unit, on an argument: 1 for a sample, 0 for a slot of the batch without one
inline constexpr llvm::StringLiteral kIndexRanges = "train.index_ranges"; ///< dictionaries: legal index values
inline constexpr llvm::StringLiteral kVariable = "train.variable";      ///< string: the variable whose value it is
inline constexpr llvm::StringLiteral kGradientOf = "train.gradient_of"; ///< string: a parameter
inline constexpr llvm::StringLiteral kScalars = "train.scalars";        ///< unit; on the module: names, in order
inline constexpr llvm::StringLiteral kCounters = "train.counters";      ///< unit: the counters of random numbers
// On functions.
inline constexpr llvm::StringLiteral kEntry = "train.entry";        ///< string
inline constexpr llvm::StringLiteral kDims = "train.dims"; ///< dictionary of i64: values of symbolic dimensions; also
                                                           ///< on the module of a shape, or of the only one
inline constexpr llvm::StringLiteral kGradientScale = "train.gradient_scale"; ///< f64, on @backward: see differentiate
inline constexpr llvm::StringLiteral kLossName = "train.loss_name"; ///< string: the graph's loss output, or "loss"
// On ops.
inline constexpr llvm::StringLiteral kGather = "train.gather"; ///< i64, on all_gather: its number for its parameter
// On the module.
inline constexpr llvm::StringLiteral kRecipe = "train.recipe";   ///< dictionary: see RecipeAttribute.h
inline constexpr llvm::StringLiteral kEntries = "train.entries"; ///< strings: entries to build; absent: all possible
inline constexpr llvm::StringLiteral kShapeNumbers =
    "train.shape_numbers"; ///< dictionary of i64, on the module of a shape: its number among the shapes of an entry
inline constexpr llvm::StringLiteral kUnused = "train.unused_parameters"; ///< dictionaries: name, reason, node, cut
inline constexpr llvm::StringLiteral kGroups =
    "train.groups"; ///< dictionaries: name, lr_scale, weight_decay, parameters
inline constexpr llvm::StringLiteral kPhases = "train.phases"; ///< dictionaries: groups, scalars; none: one optimizer
inline constexpr llvm::StringLiteral kZeroFillKept = "train.zero_fill_kept"; ///< dictionaries: parameter, bytes, reason
inline constexpr llvm::StringLiteral kZeroFillElided = "train.zero_fill_elided"; ///< the same
inline constexpr llvm::StringLiteral kAdapters =
    "train.adapters"; ///< dictionaries: of, a, b, input_first, not_peft, dims
inline constexpr llvm::StringLiteral kRanks = "train.ranks";       ///< i64: ranks that state is sharded over
inline constexpr llvm::StringLiteral kPrefetch = "train.prefetch"; ///< i64: parallel.prefetch
inline constexpr llvm::StringLiteral kRunsBeside = "train.runs_beside"; ///< unit: collectives overlap instructions
inline constexpr llvm::StringLiteral kNotes = "train.notes"; ///< dictionaries: kind, subject, text
// Kinds of notes, and variables.
inline constexpr llvm::StringLiteral kStopNote = "stop_gradient";   ///< subject: the node; text: its mark
inline constexpr llvm::StringLiteral kWhole =
    "train.whole"; ///< type, on a variable that holds one rank's shard: the type of all shards together
inline constexpr llvm::StringLiteral kScale = "train.scale"; ///< string, of an i8 variable: the variable of its scales
inline constexpr llvm::StringLiteral kFourBits =
    "train.four_bits"; ///< dictionary, of a ui8 variable with scales: code (string), block, dims, strides
inline constexpr llvm::StringLiteral kNestedScale =
    "train.nested_scale"; ///< string, of one whose scales are nested: the variable of their numbers
inline constexpr llvm::StringLiteral kOnHost = "train.on_host";     ///< unit, on a variable: it is kept on the host
inline constexpr llvm::StringLiteral kOfPhase = "train.of_phase";   ///< unit, of a variable: some phase trains it
inline constexpr llvm::StringLiteral kStages = "train.stages"; ///< i64 bits, of a parameter: the stages that train it
inline constexpr llvm::StringLiteral kHeld = "tcc.stopped/";        ///< prefix of the variables that hold-stops adds
inline constexpr llvm::StringLiteral kHoldStops = "tcc.stopped/hold"; ///< f64: above 0, stopped values are held
} // namespace names

/// The ONNX node's name that a location carries; empty if it has none.
llvm::StringRef nodeName(mlir::Location loc);

/// @forward, @loss or @backward of the module; null if it is absent.
mlir::func::FuncOp lookupFunction(mlir::ModuleOp module, llvm::StringRef name);

/// True if the module is compiled for this entry, as `tcc --entry` names it.
bool builds(mlir::ModuleOp module, llvm::StringRef entry);

/// Trainable parameters in the order of the module.
std::vector<VariableOp> trainableParameters(mlir::ModuleOp module);

/// Lists a parameter as proven to get no gradient; the first reason stays. `cut`: the MLIR name of the op that passes
/// no gradient on although the loss depends on its result.
void addUnusedParameter(mlir::ModuleOp module, llvm::StringRef name, llvm::StringRef reason, llvm::StringRef node,
                        llvm::StringRef cut = "");
bool isUnusedParameter(mlir::ModuleOp module, llvm::StringRef name);

/// Adds a note about `subject`, a node or a parameter, to the report, unless it is there already.
void addNote(mlir::ModuleOp module, llvm::StringRef kind, llvm::StringRef subject, llvm::StringRef text);
/// Adds several notes (subject, text) of one kind.
void addNotes(mlir::ModuleOp module, llvm::StringRef kind,
              llvm::ArrayRef<std::pair<std::string, std::string>> subjectsAndTexts);

/// Bytes of a resident arena: every variable that it holds, each at an aligned offset.
uint64_t residentBytes(mlir::ModuleOp module, bool onHost = false);
/// Those of one variable.
uint64_t residentBytes(VariableOp variable);

/// Removes ops whose results nobody reads, last to first. Returns how many.
int64_t eraseDeadOps(mlir::func::FuncOp function);

/// True if the value is a constant of zeros.
bool isZeroFill(mlir::Value value);

/// The product behind a value and its reshapes, if it has no other reader; else null.
MatMulOp soleProduct(mlir::Value value);

/// The value of a floating-point constant whose elements are all equal; nullopt otherwise.
std::optional<double> splatOf(mlir::Value value);

/// Replaces a stop by its operand, and also a select between the two, which the importer writes for branches that may
/// not be taken; the canonicalizer erases that select.
void eraseStop(StopGradientOp stop);

/// The sum of all elements, of rank 0. Inner dimensions first, one row per index of the outermost one, so that a kernel
/// has rows to run in parallel.
Expr sumAll(const Expr &value);

} // namespace tcc::train

#endif // TCC_PASSES_COMMON_H
