//===- Element.h - how ops describe one element to a loop nest --*- C++ -*-===//
//
// A fusible op is a function from an index to an element. The loop nest calls it with coordinates and gets back a
// value: a scalar, or a vector of lanes that run along one dimension of the kernel's iteration space. Operands are
// requested at coordinates in turn, whether they are in memory or computed inside the same kernel. The scalar program
// is the same with one lane and with many, in the body of a loop and in its masked tail.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_ELEMENT_H
#define TCC_DIALECT_ELEMENT_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace tcc::train {

class FusedOp;

namespace names {
/// unit, on ops with the trait HasNearForm: results are rounded to 16 bits, or are softmax weights of 16-bit scores, so
/// a machine's own approximations will do (NearFunctions.h)
inline constexpr llvm::StringLiteral kOfNarrow = "train.of_narrow";
} // namespace names

/// One coordinate of an element, for all lanes: base + l·laneStride for lane l, or lanes[l] if it depends on data.
struct Coord {
  mlir::Value base;       ///< i64; null if `lanes` is set
  int64_t laneStride = 0; ///< distance of neighbouring lanes
  mlir::Value lanes;      ///< vector of i64: any coordinates
};

/// The type in which `lanes` elements of a stored type are computed: a scalar, or a vector of several. f16 and bf16
/// become f32, unsigned integers signless ones.
mlir::Type laneTypeOf(mlir::Type element, int64_t lanes);

/// Builds the elements of one op. Arithmetic on values works on scalars and vectors alike; types are named by their
/// element type. Types f16 and bf16 are computed in f32 and rounded after each op: bodies see f32.
class ElementBuilder {
public:
  ElementBuilder(mlir::OpBuilder &builder, mlir::Location loc) : builder(builder), loc(loc) {}
  virtual ~ElementBuilder() = default;

  mlir::OpBuilder &builder;
  mlir::Location loc;

  /// Number of lanes; 1 means values are scalars.
  virtual int64_t lanes() const = 0;
  /// Operand `operand` of the op being emitted, at `coords` (one per dimension of the operand).
  virtual mlir::Value operand(unsigned operand, llvm::ArrayRef<Coord> coords) = 0;
  /// The same for lanes with `predicate` (i1 per lane); other lanes get `otherwise` and access no memory.
  virtual mlir::Value operandIf(unsigned operand, llvm::ArrayRef<Coord> coords, mlir::Value predicate,
                                mlir::Value otherwise) = 0;
  /// for i = lower; i < upper; i += 1, carrying `inits` (scalars or lane vectors). Inside, operand() may use i.
  virtual llvm::SmallVector<mlir::Value>
  loop(int64_t lower, int64_t upper, mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value i, mlir::ValueRange carried)> body) = 0;

  /// True if the machine has approximations of its own for ops that tolerate them (NearFunctions.h): of 2^x within 2
  /// units in the last place, and of 1/x within 1. Both are of f32, and flush subnormal numbers to zero.
  virtual bool approximates() const { return false; }
  virtual mlir::Value approximatePowerOfTwo(mlir::Value /*x*/) { return nullptr; }
  virtual mlir::Value approximateReciprocal(mlir::Value /*x*/) { return nullptr; }

  /// The type of a value whose elements are `element`: itself, or a vector of lanes. f16 and bf16 become f32.
  mlir::Type laneType(mlir::Type element) const;
  mlir::Value floatConstant(mlir::Type element, double value);
  mlir::Value intConstant(mlir::Type element, int64_t value);
  /// A floating-point or integer constant of type `element`.
  mlir::Value constant(mlir::Type element, double value);
  /// A scalar repeated in every lane; vectors pass through.
  mlir::Value splat(mlir::Value scalar);

  // Coordinates.
  /// A coordinate that is the same in every lane.
  Coord uniform(int64_t value);
  Coord uniform(mlir::Value i64);
  /// The coordinate as an i64 per lane.
  mlir::Value coordValue(const Coord &coord);
  /// A coordinate from an integer value per lane (data-dependent); sign-extends to i64.
  Coord coordFromValue(mlir::Value integer);
  /// coord·scale + offset.
  Coord affine(const Coord &coord, int64_t scale, int64_t offset);
  /// left + right.
  Coord add(const Coord &left, const Coord &right);
  /// i1 per lane: 0 ≤ coord < size.
  mlir::Value inBounds(const Coord &coord, int64_t size);
};

/// The addresses of a tensor's elements: (i, j, …) at offset + i·strides[0] + j·strides[1] + …, counted in
/// elements.
struct StridedLayout {
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides;
};

/// The memory of a tensor that a loop's body computes, in row-major order.
struct BodyPlace {
  enum Kind { Operand, Result, Scratch } kind;
  unsigned number = 0; ///< of the operand or the result
  mlir::Value offset;  ///< i64: of its first element, in elements; in scratch, in bytes
};

/// Threads of a lane group: one for each bit of a ballot's word.
inline constexpr int64_t kGroupThreads = 32;

/// The number type of products by a lane group's tile instructions; F32 is the sum of two numbers of TF32. None: no
/// tiles.
enum class TileNumbers { None, BF16, F16, TF32, F32 };

/// Builds one tile of a kernel whose loops are the op's own.
class LoopBuilder {
public:
  LoopBuilder(mlir::OpBuilder &builder, mlir::Location loc) : builder(builder), loc(loc) {}
  virtual ~LoopBuilder() = default;

  mlir::OpBuilder &builder;
  mlir::Location loc;

  /// Lanes of a full vector for elements of this type.
  virtual int64_t lanes(mlir::Type element) const = 0;
  /// The layout of an operand, or a result: dense in row-major order, unless the op accepts other layouts
  /// (LoopKernel::acceptsLayout). Linear indices below refer to that layout's memory.
  virtual const StridedLayout &layout(unsigned operand) const = 0;
  virtual const StridedLayout &resultLayout(unsigned result) const = 0;
  /// Loads `count` (1: a scalar) elements of operand `operand` from linear element index `index` (i64).
  /// `active` (i64, or null for all): only lanes below it are read.
  virtual mlir::Value load(unsigned operand, mlir::Value index, int64_t count = 1, mlir::Value active = nullptr) = 0;
  /// Stores a scalar or a vector to result `result` at linear element index `index`.
  virtual void store(unsigned result, mlir::Value index, mlir::Value value, mlir::Value active = nullptr) = 0;
  /// Reads back from result `result` (for ops that update in place).
  virtual mlir::Value loadResult(unsigned result, mlir::Value index, int64_t count = 1,
                                 mlir::Value active = nullptr) = 0;
  /// Prefetches an element of an operand, or of a result that will be written. This is only a hint, so `index` may be
  /// out of bounds.
  virtual void prefetch(unsigned operand, mlir::Value index) = 0;
  virtual void prefetchResult(unsigned result, mlir::Value index) = 0;
  /// for i in [lower, upper) by step, carrying `inits`.
  virtual llvm::SmallVector<mlir::Value>
  loop(mlir::Value lower, mlir::Value upper, int64_t step, mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value i, mlir::ValueRange carried)> body) = 0;
  /// Carries `inits` through `step` as long as `test` of them (an i1) holds.
  virtual llvm::SmallVector<mlir::Value>
  repeat(mlir::ValueRange inits, llvm::function_ref<mlir::Value(mlir::ValueRange carried)> test,
         llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange carried)> step) = 0;
  /// The results of `body` if `condition` (an i1) holds, else `otherwise`, of the same types.
  virtual llvm::SmallVector<mlir::Value> when(mlir::Value condition,
                                              llvm::function_ref<llvm::SmallVector<mlir::Value>()> body,
                                              mlir::ValueRange otherwise) = 0;
  mlir::Value index(int64_t value);

  // For a tile that the threads of a lane group compute together (LoopKernel::emitGroupTile). All threads must reach
  // the last two functions.
  /// This thread's number in the tile, an i64.
  virtual mlir::Value thread() = 0;
  /// An i32 whose bit t is the `condition` (an i1) of thread t.
  virtual mlir::Value ballot(mlir::Value condition) = 0;
  /// The `value` of the thread of number `thread`, an i32.
  virtual mlir::Value ofThread(mlir::Value value, mlir::Value thread) = 0;

  // Products of tiles by all threads of a lane group, and rows of words for them. A word has 32 bits: two neighbouring
  // numbers of 16 bits, or one number rounded to TF32.
  /// Adds the product of two tiles to this thread's four f32 of a tile of 16 x 8 sums. `left` is the thread's four
  /// words of a tile of 16 x 16 (TF32: 16 x 8), `right` its two words of one of 16 x 8 (8 x 8). The instructions
  /// mma.m16n8k16 and mma.m16n8k8 define which thread has which elements.
  virtual llvm::SmallVector<mlir::Value> multiplyTile(TileNumbers numbers, mlir::ValueRange sums, mlir::ValueRange left,
                                                      mlir::ValueRange right) = 0;
  /// Two f32, rounded to bf16 or f16 (nearest even), in the lower and the upper half of a word.
  virtual mlir::Value roundToWord(TileNumbers numbers, mlir::Value lower, mlir::Value upper) = 0;
  /// An f32 rounded to TF32 (nearest, ties away from 0), in a word.
  virtual mlir::Value roundToTf32(mlir::Value value) = 0;
  /// The word of the upper or lower halves of two words.
  virtual mlir::Value halvesOf(mlir::Value first, mlir::Value second, bool upper) = 0;
  /// Loads `count` words (i32) from element `index` of an operand on, whose address is a multiple of `alignment` bytes.
  virtual llvm::SmallVector<mlir::Value> loadRow(unsigned operand, mlir::Value index, int64_t count,
                                                 int64_t alignment) = 0;
  /// Stores words from element `index` of a result on.
  virtual void storeRow(unsigned result, mlir::Value index, mlir::ValueRange words, int64_t alignment) = 0;

  // In a tile that several groups compute together (LoopKernel::getTileGroups): memory that a block's threads share.
  // All threads must reach meetBlock.
  /// Reserves `bytes` of shared memory, at most 48 KiB. Must precede everything else in the tile.
  virtual void reserveBlockMemory(int64_t bytes) = 0;
  /// Starts copying 16 bytes from element `index` of an operand, whose address is a multiple of `alignment` (4, 8 or
  /// 16), to byte `offset`, a multiple of 16. Reads only the first `bytes` of them (an i64, null: all); the others
  /// become 0.
  virtual void copyToBlock(unsigned operand, mlir::Value index, int64_t alignment, mlir::Value offset,
                           mlir::Value bytes) = 0;
  /// Waits for all threads and their copies: afterwards copied data may be read, and data read before be overwritten.
  virtual void meetBlock() = 0;
  /// `count` words from byte `offset` on, a multiple of their size.
  virtual llvm::SmallVector<mlir::Value> loadBlockMemory(mlir::Value offset, int64_t count) = 0;

  /// Loads from the tile's scratch (LoopKernel::getScratchBytes) as if it were an array of `element`; 16-bit types are
  /// read as f32.
  virtual mlir::Value loadScratch(mlir::Type element, mlir::Value index, int64_t count = 1,
                                  mlir::Value active = nullptr) = 0;
  virtual void storeScratch(mlir::Type element, mlir::Value index, mlir::Value value, mlir::Value active = nullptr) = 0;

  /// Runs all tiles of a fused region without a LoopKernel, whose inputs and results are in the given memory.
  virtual void runRegion(FusedOp region, llvm::ArrayRef<BodyPlace> inputs, llvm::ArrayRef<BodyPlace> results) = 0;

  // Products of pairs of bf16, at machine levels with an instruction for them. A word is two neighbours in 32 bits.
  virtual bool multipliesPairs() const = 0;
  /// Loads words (i32) of an operand of 16-bit elements; `index` and `active` count words.
  virtual mlir::Value loadWords(unsigned operand, mlir::Value index, int64_t count = 1,
                                mlir::Value active = nullptr) = 0;
  /// Adds to each f32 sum (4, 8, or a multiple of 16 lanes) the products of the lower and of the upper halves of its
  /// words of `left` and `right`. Subnormal numbers count as zeros.
  virtual mlir::Value addPairs(mlir::Value sums, mlir::Value left, mlir::Value right) = 0;
  /// Rounds a multiple of 32 lanes of f32 to bf16 (i16), nearest even; subnormal numbers become zeros.
  virtual mlir::Value roundToPairs(mlir::Value values) = 0;
};

} // namespace tcc::train

#endif // TCC_DIALECT_ELEMENT_H
