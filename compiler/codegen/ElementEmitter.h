//===- ElementEmitter.h - elements of a fused region ------------*- C++ -*-===//
//
// Values of a fused region, element by element: loads and stores of memory operands with masks, memoised per
// coordinates and loop scope. With one lane, values are scalars, as in the code of a GPU thread.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_ELEMENTEMITTER_H
#define TCC_CODEGEN_ELEMENTEMITTER_H

#include "compiler/dialect/TrainDialect.h"

#include <map>
#include <tuple>
#include <vector>

namespace tcc::codegen {

/// A tensor in memory: its first element and its type.
struct Memory {
  mlir::Value pointer;
  mlir::RankedTensorType type;
};

class ElementEmitter : public train::ElementBuilder {
public:
  using Coords = llvm::SmallVector<train::Coord>;

  ElementEmitter(mlir::OpBuilder &builder, mlir::Location loc) : ElementBuilder(builder, loc) { scopes.emplace_back(); }

  int64_t lanes() const override { return laneCount; }
  mlir::Value operand(unsigned operand, llvm::ArrayRef<train::Coord> coords) override;
  mlir::Value operandIf(unsigned operand, llvm::ArrayRef<train::Coord> coords, mlir::Value predicate,
                        mlir::Value otherwise) override;
  bool approximates() const override { return onCard; }
  mlir::Value approximatePowerOfTwo(mlir::Value x) override;
  mlir::Value approximateReciprocal(mlir::Value x) override;
  llvm::SmallVector<mlir::Value>
  loop(int64_t lower, int64_t upper, mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)> body) override;

  /// Emits a loop over [lower, upper) by step, with a scope of its own.
  llvm::SmallVector<mlir::Value>
  loop(mlir::Value lower, mlir::Value upper, int64_t step, mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)> body);

  /// The element(s) of `value` at `coords`, in its computing type (f32 for 16-bit floats).
  mlir::Value get(mlir::Value value, llvm::ArrayRef<train::Coord> coords);

  mlir::Value load(const Memory &memory, llvm::ArrayRef<train::Coord> coords);
  void store(const Memory &memory, llvm::ArrayRef<train::Coord> coords, mlir::Value value);

  /// Runs `body` with another number of lanes and mask (null: all lanes), in a scope of its own.
  void withLanes(int64_t lanes, mlir::Value mask, llvm::function_ref<void()> body);
  /// i1 per lane: lane < count (i64).
  mlir::Value laneMask(mlir::Value count);

  mlir::Value i64(int64_t value);
  /// The value rounded to `element` if that is a 16-bit float, so that bits do not depend on whether it is stored.
  mlir::Value rounded(mlir::Value value, mlir::Type element);

  /// Memory of region arguments.
  llvm::DenseMap<mlir::Value, Memory> memories;
  /// Results of staged reductions for the current row, valid at `rowCoords`.
  llvm::DenseMap<mlir::Operation *, mlir::Value> rowValues;
  Coords rowCoords;
  llvm::SmallVector<bool> reducedDims;
  /// The counter of a loop with a stride of rows, if any. Vector loads and stores then prefetch the cache lines of
  /// later iterations, since the hardware prefetcher does not cross pages.
  mlir::Value jumpingCounter;
  /// The code is for a card's thread: one instruction rounds to bf16 (NaN becomes canonical), branches are cheap.
  bool onCard = false;
  /// The first op that cannot be computed inside a kernel, if any.
  mlir::Operation *failed = nullptr;

private:
  using CoordKey = std::tuple<const void *, int64_t, int64_t, int64_t, const void *>;
  struct Key {
    const void *value;
    const void *mask;
    int64_t lanes;
    std::vector<CoordKey> coords;
    auto operator<=>(const Key &) const = default;
  };
  static CoordKey coordKey(const train::Coord &coord);
  bool atRow(llvm::ArrayRef<train::Coord> coords) const;
  mlir::Value compute(mlir::Operation *op, unsigned result, llvm::ArrayRef<train::Coord> coords);
  mlir::Value pointerTo(const Memory &memory, mlir::Value offset);
  /// `index`, or 0 if the mask excludes every lane: excluded lanes may point anywhere.
  mlir::Value insideIfAny(mlir::Value index);
  void prefetchAhead(const Memory &memory, llvm::ArrayRef<train::Coord> coords, bool forWriting);
  mlir::Value fromStored(mlir::Value stored, mlir::Type element);
  mlir::Value toStored(mlir::Value value, mlir::Type element);
  /// The bits of the bf16 that a scalar f32 was widened from; null if it may have to be rounded. LLVM does not know
  /// that rounding leaves such a number as it is, and the card's assembler rounds in pairs only what is stored at once.
  mlir::Value narrowed(mlir::Value value);
  /// Element offset of coords: a uniform base and a lane stride, or a vector of offsets.
  train::Coord offsetOf(mlir::RankedTensorType type, llvm::ArrayRef<train::Coord> coords);

  int64_t laneCount = 1;
  mlir::Value mask;        // i1 per lane; null: all
  bool predicated = false; // the mask may exclude every lane, and excluded lanes may be out of bounds
  mlir::Operation *current = nullptr;
  std::vector<std::map<Key, mlir::Value>> scopes;
};

/// Prefetches the cache line of an address into the second-level cache.
void prefetchLine(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value address, bool forWriting);
/// The type an element is stored as: i8 for i1, signless integers, itself otherwise.
mlir::Type storedType(mlir::Type element);
/// Rounds an f32 (scalar or vector) to bf16, ties to even, NaN stays NaN; returns the bits as i16.
mlir::Value roundToBf16Bits(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_ELEMENTEMITTER_H
