//===- SelectKernels.cpp - calls of the target ----------------------------===//
//
// Each op that the target has a call for gets the call's descriptor; no later pass changes that choice. A product whose
// right matrix is stored in 4 or 8 bits reads the codes where the target has a call that unpacks them: then no kernel
// widens the matrix in memory.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SELECTKERNELSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// The operand of a cast to bf16 if it is a parameter or a view of one; else null.
Value roundedParameter(CastOp cast) {
  if (!elementTypeOf(cast.getResult()).isBF16() || !elementTypeOf(cast.getInput()).isF32())
    return nullptr;
  Value source = cast.getInput();
  while (auto reshape = source.getDefiningOp<ReshapeOp>())
    source = reshape->getOperand(0);
  return isa<BlockArgument>(source) ? cast.getInput() : Value();
}

/// Makes products read the f32 parameter instead of its bf16 copy, if the calls of all the copy's readers can round
/// operands while reading: no kernel writes the copy, and none is kept from the forward to the backward pass.
void readInPlace(func::FuncOp function, const target::Target &target) {
  for (auto cast : llvm::make_early_inc_range(function.getOps<CastOp>())) {
    Value source = roundedParameter(cast), copy = cast.getResult();
    llvm::SmallVector<OpOperand *> uses;
    for (OpOperand &use : copy.getUses())
      uses.push_back(&use);
    auto reads = [&](OpOperand *use) {
      auto product = dyn_cast<MatMulOp>(use->getOwner());
      if (!product || use->getOperandNumber() != 1 || product.getLhs() == copy)
        return false;
      use->set(source);
      return target.call(product).has_value();
    };
    if (!source || uses.empty())
      continue;
    if (llvm::all_of(uses, reads))
      cast.erase();
    else
      for (OpOperand *use : uses)
        use->set(copy);
  }
}

/// How codes, blocks, scales and zero points lie along one dimension of a value.
struct CodesAlong {
  int64_t stride = 0, block = 1, scale = 0, zero = 0;
};
/// A matrix in 4 or 8 bits behind views, and behind a cast to bf16.
struct Codes {
  Value bytes, scales, zeros, nested;
  FourBitCode code;
  uint64_t block = 0; ///< 0: `dims` have blocks of their own
  llvm::SmallVector<CodesAlong> dims = {};
};

Codes codesOf(UnpackOp unpack) {
  Codes codes{unpack.getBytes(), unpack.getScales(), unpack.getZeros(),
              unpack.getNested(), unpack.getCode(), unpack.getBlock()};
  for (size_t d = 0; d < unpack.getShape().size(); ++d) {
    auto at = [&](llvm::ArrayRef<int64_t> list) { return list.empty() ? 0 : list[d]; };
    codes.dims.push_back(
        {at(unpack.getStrides()), at(unpack.getBlocks()), at(unpack.getScaleStrides()), at(unpack.getZeroStrides())});
  }
  return codes;
}

/// i8 elements times a scale for each index of some dims.
std::optional<Codes> codesOf(MulOp product) {
  auto steps = product.getLhs().getDefiningOp<CastOp>();
  auto factors = product.getRhs().getDefiningOp<BroadcastOp>();
  if (!steps || !factors || !elementTypeOf(steps.getInput()).isSignlessInteger(8) ||
      !elementTypeOf(product.getResult()).isF32())
    return std::nullopt;
  llvm::ArrayRef<int64_t> shape = shapeOf(steps.getInput()), scales = shapeOf(factors.getInput());
  if (shape.size() != scales.size())
    return std::nullopt;
  Codes codes{steps.getInput(), factors.getInput(), Value(), Value(), FourBitCode::int8};
  codes.dims.resize(shape.size());
  int64_t stride = 1, scale = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d], scale *= scales[d])
    codes.dims[d] = {stride, scales[d] == 1 ? shape[d] : 1, scales[d] == 1 ? 0 : scale, 0};
  return codes;
}

std::optional<Codes> codesOf(Value value) {
  if (auto unpack = value.getDefiningOp<UnpackOp>(); unpack && !unpack.getIndices())
    return codesOf(unpack);
  if (auto product = value.getDefiningOp<MulOp>())
    return codesOf(product);
  // The call rounds as the cast does; the product's other factor is bf16, too.
  if (auto cast = value.getDefiningOp<CastOp>())
    return elementTypeOf(value).isBF16() && elementTypeOf(cast.getInput()).isF32() ? codesOf(cast.getInput())
                                                                                   : std::nullopt;
  Operation *view = value.getDefiningOp();
  auto reshape = dyn_cast_or_null<ReshapeOp>(view);
  auto transpose = dyn_cast_or_null<TransposeOp>(view);
  if (!reshape && !transpose)
    return std::nullopt;
  std::optional<Codes> codes = codesOf(view->getOperand(0));
  if (!codes)
    return std::nullopt;
  Codes viewed = *codes;
  viewed.dims.clear();
  if (transpose) {
    for (int64_t dim : transpose.getPermutation())
      viewed.dims.push_back(codes->dims[size_t(dim)]);
    return viewed;
  }
  // Only extents of 1 may come and go.
  llvm::ArrayRef<int64_t> from = shapeOf(view->getOperand(0)), to = shapeOf(value);
  size_t at = 0;
  for (int64_t extent : to) {
    while (at < from.size() && from[at] == 1)
      ++at;
    if (extent == 1) {
      viewed.dims.push_back({});
      continue;
    }
    if (at == from.size() || from[at] != extent)
      return std::nullopt;
    viewed.dims.push_back(codes->dims[at++]);
  }
  return viewed;
}

void readCodes(func::FuncOp function, const target::Target &target) {
  for (auto product : llvm::make_early_inc_range(function.getOps<MatMulOp>())) {
    std::optional<Codes> codes = codesOf(product.getRhs());
    if (!codes || product.getAddend() || shapeOf(product.getRhs())[0] != 1)
      continue;
    CodesAlong k = codes->dims[1], n = codes->dims[2];
    if (product.getTransB())
      std::swap(k, n);
    OpBuilder builder(product);
    using Pair = llvm::SmallVector<int64_t, 2>;
    const bool grid = codes->block == 0;
    auto reader = MatMulUnpackOp::create(
        builder, product.getLoc(), product.getType(), product.getLhs(), codes->bytes, codes->scales, codes->zeros,
        codes->nested, codes->code, codes->block, Pair{k.stride, n.stride}, product.getTransA(),
        grid ? Pair{k.block, n.block} : Pair(), grid ? Pair{k.scale, n.scale} : Pair(),
        codes->zeros ? Pair{k.zero, n.zero} : Pair());
    if (!target.call(reader)) {
      reader.erase();
      continue;
    }
    reader->setDiscardableAttrs(product->getDiscardableAttrDictionary());
    product.getResult().replaceAllUsesWith(reader.getResult());
    product.erase();
  }
  eraseDeadOps(function);
}

struct SelectKernels : impl::SelectKernelsPassBase<SelectKernels> {
  using SelectKernelsPassBase::SelectKernelsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry) || !library)
      return;
    const target::Target *target = target::targetOf(function);
    if (!target) {
      function.emitError() << "select-kernels needs a target; set-target names one";
      return signalPassFailure();
    }
    readInPlace(function, *target);
    readCodes(function, *target);
    for (Operation &op : function.getBody().front()) {
      std::optional<target::Call> call = target->call(&op);
      if (!call)
        continue;
      op.setAttr(names::kCall, CallAttr::get(&getContext(), call->text()));
      op.setAttr(names::kScratch, target::scratchOf(&getContext(), *call));
    }
  }
};

} // namespace

} // namespace tcc::train
