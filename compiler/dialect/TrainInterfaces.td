//===- TrainInterfaces.td - interfaces that ops implement -----------------===//
#ifndef TCC_DIALECT_TRAININTERFACES_TD
#define TCC_DIALECT_TRAININTERFACES_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/Interfaces.td"

def Train_Differentiable : OpInterface<"Differentiable"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    The op's vector-Jacobian product in terms of other ops. An op that has no derivative (comparisons, integer ops) carries
    the trait `NotDifferentiable` instead.
  }];
  let methods = [
    InterfaceMethod<[{
        Builds the gradients of the operands. `resultGradients[i]` is null where nothing flows into result i, else of its
        type. Set `operandGradients[j]` (operand j's type), or leave it null where there is none (integers). Unused
        gradients are removed as dead code.
      }],
      "void", "buildGradient",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$resultGradients,
           "::llvm::SmallVectorImpl<::mlir::Value> &":$operandGradients)>
  ];
}

def Train_Cost : OpInterface<"Cost"> {
  let cppNamespace = "::tcc::train";
  let description = "The cost of executing the op.";
  let methods = [
    InterfaceMethod<"Floating-point (or integer) operations of one execution.", "double", "getFlops", (ins)>,
    InterfaceMethod<"True if recomputing the result costs no more than reading it: a fused kernel may repeat it.",
      "bool", "isCheapToRecompute", (ins), "", "return false;">
  ];
}

def Train_Fusible : OpInterface<"Fusible"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    The op as a function from an index to an element, for generated loop nests. One scalar program
    per op; lanes of a vector run the same one.
  }];
  let methods = [
    InterfaceMethod<[{
        Maps result coordinates to the coordinates of operand `operand` that one result element reads; a null map if it
        reads several elements, or if data selects the element (gather, windows, loops).
      }],
      "::mlir::AffineMap", "getOperandMap", (ins "unsigned":$operand)>,
    InterfaceMethod<[{
        True if a result element reads at most one element of operand `operand`, selected by its position or by data.
      }],
      "bool", "readsOneElement", (ins "unsigned":$operand), "", "return bool($_op.getOperandMap(operand));">,
    InterfaceMethod<[{
        The inverse of getOperandMap for an op that only moves elements: maps the coordinates of an element of operand
        `operand` to those of its one copy in result 0; a null map if elements have no copy, or several.
      }],
      "::mlir::AffineMap", "getResultMap", (ins "unsigned":$operand), "", [{
        // Compare sizes, too: a slice that drops the end also has the identity map.
        ::mlir::AffineMap map = $_op.getOperandMap(operand);
        auto elements = [](::mlir::Value v) { return ::llvm::cast<::mlir::ShapedType>(v.getType()).getNumElements(); };
        bool all = elements($_op->getResult(0)) == elements($_op->getOperand(operand));
        return map && all && map.isPermutation() ? ::mlir::inversePermutation(map) : ::mlir::AffineMap();
      }]>,
    InterfaceMethod<[{
        True if each aligned group of `count` neighbouring result elements along dimension `dim` reads an aligned group
        of neighbours of operand `operand` along the same dimension (counted from the last), or a single element if its
        extent there is 1. Not called for pointwise ops, for which it holds.
      }],
      "bool", "readsNeighbours", (ins "unsigned":$operand, "unsigned":$dim, "int64_t":$count), "", [{
        (void)operand, (void)dim, (void)count;
        return false;
      }]>,
    InterfaceMethod<"Emits result element(s) `coords` of result `result`: a scalar, or a vector of lanes.",
      "::mlir::Value", "emitElement",
      (ins "::tcc::train::ElementBuilder &":$builder, "unsigned":$result, "::llvm::ArrayRef<::tcc::train::Coord>":$coords)>
  ];
}

defvar Train_readsOneElement = "bool readsOneElement(unsigned) { return true; }";

def Train_Reducible : OpInterface<"Reducible"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    A reduction over some dimensions of operand 0, which keep extent 1 in the result. The shape alone determines its
    tree: see compiler/codegen/IterationSpace.h.
  }];
  let methods = [
    InterfaceMethod<"Reduced dimensions, ascending.", "::llvm::SmallVector<int64_t>", "getReducedDims", (ins)>,
    InterfaceMethod<"Neutral element in the accumulator's type (a scalar, or a vector of lanes).", "::mlir::Value", "emitIdentity",
      (ins "::tcc::train::ElementBuilder &":$builder)>,
    InterfaceMethod<"Combines two partial results.", "::mlir::Value", "emitCombine",
      (ins "::tcc::train::ElementBuilder &":$builder, "::mlir::Value":$left, "::mlir::Value":$right)>
  ];
}

def Train_LoopKernel : OpInterface<"LoopKernel"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    An op that emits its own loop nest (scatter, scan): it is the only op of its kernel. Tiles are independent of one another.
  }];
  let methods = [
    InterfaceMethod<"Number of independent tiles, from shapes alone.", "int64_t", "getTileCount", (ins)>,
    InterfaceMethod<"Emits one tile.", "void", "emitTile", (ins "::tcc::train::LoopBuilder &":$builder, "::mlir::Value":$tile)>,
    InterfaceMethod<[{
        Number of tiles if the threads of a lane group (kGroupThreads) compute a tile together, from shapes alone; 0: the
        op has no such loops, and each thread runs emitTile.
      }],
      "int64_t", "getGroupTileCount", (ins), "", "return 0;">,
    InterfaceMethod<"Lane groups that compute such a tile together: 1, or those of a block.", "int64_t", "getTileGroups", (ins), "", "return 1;">,
    InterfaceMethod<"Emits one tile as a thread of a lane group runs it. Such tiles have no scratch.",
      "void", "emitGroupTile", (ins "::tcc::train::LoopBuilder &":$builder, "::mlir::Value":$tile), "",
      "(void)builder, (void)tile; llvm_unreachable(\"the op has no loops for lane groups\");">,
    InterfaceMethod<"Operand whose memory result 0 takes over and updates, or -1.", "int", "getInPlaceOperand", (ins), "", "return -1;">,
    InterfaceMethod<"Bytes of scratch that a tile needs; a multiple of 64.", "int64_t", "getScratchBytes", (ins), "", "return 0;">,
    InterfaceMethod<[{
        The least scratch that a tile can need at little cost in time, with the same tiles and the same bits.
      }],
      "int64_t", "getLeastScratchBytes", (ins), "", "return ::llvm::cast<LoopKernel>($_op.getOperation()).getScratchBytes();">,
    InterfaceMethod<"Makes a tile need at most `bytes` of scratch, or `getLeastScratchBytes`.",
      "void", "shrinkScratch", (ins "int64_t":$bytes), "", "(void)bytes;">,
    InterfaceMethod<[{
        True if the loops address operand `number` (or the result of that number) by LoopBuilder::layout, and support
        this layout: fold-strides may then absorb surrounding transposes and slices.
      }],
      "bool", "acceptsLayout", (ins "bool":$isResult, "unsigned":$number, "const ::tcc::train::StridedLayout &":$layout), "",
      "return false;">,
    InterfaceMethod<[{
        The operand type of the multiplications that bound the op: bf16 if it multiplies pairs of them
        (LoopBuilder::multipliesPairs), else f32 or f64.
      }],
      "::mlir::Type", "getProductType", (ins "bool":$multipliesPairs), "",
      "return ::mlir::Float32Type::get($_op->getContext());">
  ];
}

def Train_LibraryCall : OpInterface<"LibraryCall"> {
  let cppNamespace = "::tcc::train";
  let description = "The plan instruction of an op for which its target has a call, of a library or of its own.";
  let methods = [
    InterfaceMethod<"Fills shapes, types and flags of the call; the target decides the rest (implementation, tiles, scratch).",
      "void", "buildCall", (ins "::tcc::plan::Instruction &":$instruction)>,
    InterfaceMethod<"Operand whose memory result 0 takes over and updates, or -1.", "int", "getInPlaceOperand", (ins), "", "return -1;">,
    InterfaceMethod<"Appends kernels that compute the same as the call, in the order of their launches, as regions whose operands are arguments of the block. Appends none if only the library computes it.",
      "void", "buildKernels", (ins "::mlir::Block &":$holder), "", "(void)holder;">
  ];
}

def Train_Autocast : OpInterface<"Autocast"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    An op that is worth computing in a 16-bit type under mixed precision: it reads each element often and accumulates in f32.
    autocast casts the operands named here; result 0 comes out in the 16-bit type, other results keep theirs.
  }];
  let methods = [
    InterfaceMethod<"Operands to cast: all of result 0's element type unless said otherwise.", "::llvm::SmallVector<unsigned>",
      "getAutocastOperands", (ins), "", [{
        ::llvm::SmallVector<unsigned> operands;
        ::mlir::Type element = ::mlir::getElementTypeOrSelf($_op->getResult(0).getType());
        for (auto [index, operand] : ::llvm::enumerate($_op->getOperands()))
          if (::mlir::getElementTypeOrSelf(operand.getType()) == element)
            operands.push_back(unsigned(index));
        return operands;
      }]>
  ];
}

def Train_Reference : OpInterface<"Reference"> {
  let cppNamespace = "::tcc::train";
  let description = "A naive evaluator, obviously right: the oracle of every kernel test; it also folds constants.";
  let methods = [
    InterfaceMethod<"Computes the results (allocated, of the result types) from the operands.", "void", "evaluate",
      (ins "::llvm::ArrayRef<::tcc::train::HostTensor>":$operands, "::llvm::MutableArrayRef<::tcc::train::HostTensor>":$results)>
  ];
}

def Train_Decomposable : OpInterface<"Decomposable"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    A composite, which decompose-composites replaces by core ops. It is kept whole up to differentiation, because its
    own gradient is better than that of its parts.
  }];
  let methods = [
    InterfaceMethod<"Builds the op from core ops; one value per result.", "::llvm::SmallVector<::mlir::Value>", "decompose",
      (ins "::mlir::OpBuilder &":$builder)>
  ];
}

def Train_ModeDependent : OpInterface<"ModeDependent"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    An op whose training and inference forms differ (dropout, batch norm). The op itself is the training form; entries
    in inference mode take the result of buildInference, and write no state.
  }];
  let methods = [
    InterfaceMethod<"Builds the op's inference form from its operands; one value per result, of its type.",
      "::llvm::SmallVector<::mlir::Value>", "buildInference", (ins "::mlir::OpBuilder &":$builder)>
  ];
}

def Train_StraightThrough : OpInterface<"StraightThrough"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    An op whose gradient is not its derivative: the gradient passes unchanged to its first operand where buildPassing is
    true. For the gradient check, hold-stops replaces the op's value by one with that derivative.
  }];
  let methods = [
    InterfaceMethod<"Builds an i1 tensor of the result's shape: true where the gradient passes.",
      "::mlir::Value", "buildPassing", (ins "::mlir::OpBuilder &":$builder)>
  ];
}

def Train_Collective : OpInterface<"Collective"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    An op that all ranks of a job compute together: result i of every rank depends on operand i of every rank. It has no
    kernel, and is not folded for constants, since a rank does not know the operands of others. All ranks execute the
    same collectives in the same order, and none is recomputed.
  }];
  let methods = [
    InterfaceMethod<"Fills the plan's instruction.", "void", "buildCollective", (ins "::tcc::plan::Instruction &":$instruction)>,
    InterfaceMethod<"Result i has operand i's type, and may overwrite it.",
      "bool", "isInPlace", (ins), "", "return true;">,
    InterfaceMethod<"A naive evaluator: each rank's results (allocated) from each rank's operands.", "void", "evaluateRanks",
      (ins "::llvm::ArrayRef<::std::vector<::tcc::train::HostTensor>>":$operands,
           "::llvm::MutableArrayRef<::std::vector<::tcc::train::HostTensor>>":$results)>
  ];
}

/// The op has no derivative: no gradient flows through it.
def Train_NotDifferentiable : NativeOpTrait<"NotDifferentiable"> { let cppNamespace = "::tcc::train"; }
/// The result has the operands' shape, element by element (Fusible with identity maps).
def Train_Pointwise : NativeOpTrait<"Pointwise"> { let cppNamespace = "::tcc::train"; }
/// Has a form by a machine's approximations, for results that are rounded to 16 bits (names::kOfNarrow).
def Train_HasNearForm : NativeOpTrait<"HasNearForm"> { let cppNamespace = "::tcc::train"; }
/// Elements of the result are unchanged elements of operand 0, or zeros: rounding before or after is the same.
def Train_HandsOutElements : NativeOpTrait<"HandsOutElements"> { let cppNamespace = "::tcc::train"; }
/// Same bytes under another shape: no instruction is emitted.
def Train_View : NativeOpTrait<"View"> { let cppNamespace = "::tcc::train"; }

#endif // TCC_DIALECT_TRAININTERFACES_TD
