//===- FuseUpdates.cpp - weight gradients row by row inside updates -------===//
#include "compiler/dialect/Views.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/OpOrder.h"
#include "passes/fusion/Fusion.h"
#include "passes/memory/EntryProblem.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FUSEUPDATESPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// A product, the views between it and its reader, and the number of the reader's operand.
struct Gradient {
  MatMulOp product;
  SmallVector<Operation *> views; ///< the last one first
  unsigned operand;
};

/// The product behind an operand of the kernel, if neither it nor a view of it has another reader.
std::optional<Gradient> gradientOf(FusedOp kernel, unsigned operand, int64_t leastBytes) {
  Gradient gradient{nullptr, {}, operand};
  Value value = soleRootOf(kernel->getOperand(operand), &gradient.views);
  if (!value)
    return std::nullopt;
  gradient.product = value.getDefiningOp<MatMulOp>();
  bool fits = gradient.product && gradient.product->hasAttr(names::kCall) && !gradient.product.getAddend() &&
              tensorBytes(value.getType()) >= leastBytes && kernel.readsByTiles(operand);
  return fits ? std::optional(gradient) : std::nullopt;
}

/// False if fusing would keep more bytes alive: the kernel also waits for other values computed after the product, and
/// the product's operands, kept until then, are together with the scratch larger than the gradient that fusing removes.
bool keepsLess(Gradient &gradient, FusedOp kernel, const OpOrder &order, int64_t scratchBytes = 0) {
  auto bytesOf = [](Value value) { return tensorBytes(value.getType()); };
  bool waits = llvm::any_of(llvm::enumerate(kernel->getOperands()), [&](auto operand) {
    Operation *op = rootOf(operand.value()).getDefiningOp();
    return op && operand.index() != gradient.operand && order.isBefore(gradient.product, op) &&
           tensorTypeOf(operand.value()).getNumElements() > 1; // the optimizer's scalars are computed early
  });
  return !waits || bytesOf(gradient.product.getLhs()) + bytesOf(gradient.product.getRhs()) + scratchBytes <=
                       bytesOf(gradient.product.getResult());
}

/// Builds one instruction from the product and the kernel, in front of the kernel. The original ops remain.
RowwiseOp wrap(Gradient &gradient, FusedOp kernel) {
  SmallVector<Value> operands(gradient.product->getOperands());
  for (auto [number, operand] : llvm::enumerate(kernel->getOperands()))
    if (number != gradient.operand)
      operands.push_back(operand);
  OpBuilder builder(kernel);
  Location loc = FusedLoc::get(builder.getContext(), {gradient.product.getLoc(), kernel.getLoc()});
  auto rowwise = RowwiseOp::create(builder, loc, kernel->getResultTypes(), operands);
  Block *body = builder.createBlock(&rowwise.getBody());
  SmallVector<Value> inner;
  for (Value operand : operands)
    inner.push_back(body->addArgument(operand.getType(), operand.getLoc()));
  auto product = cast<MatMulOp>(builder.clone(*gradient.product));
  for (StringRef planned : {names::kCall, names::kScratch})
    product->removeAttr(planned);
  product->setOperands(ValueRange(inner).take_front(2));
  IRMapping views;
  views.map(gradient.product.getResult(), product.getResult());
  Value rows = product.getResult();
  for (Operation *view : llvm::reverse(gradient.views))
    rows = builder.clone(*view, views)->getResult(0);
  // The rows are the kernel's first operand.
  SmallVector<Value> kernelOperands{rows};
  llvm::append_range(kernelOperands, ValueRange(inner).drop_front(2));
  auto rowKernel = FusedOp::create(builder, kernel.getLoc(), kernel->getResultTypes(), kernelOperands);
  kernel.getBody().cloneInto(&rowKernel.getBody(), views);
  Block &region = rowKernel.getBody().front();
  BlockArgument was = region.getArgument(gradient.operand);
  if (gradient.operand > 0) {
    BlockArgument first = region.insertArgument(0u, was.getType(), was.getLoc());
    was.replaceAllUsesWith(first);
    region.eraseArgument(gradient.operand + 1);
  }
  YieldOp::create(builder, loc, rowKernel->getResults());
  return rowwise;
}

/// True if the target multiplies row by row, the kernel supports tiles of that size, and less memory is kept. Scratch
/// counts only on targets with a fixed number of slots, where it may be as large as much of the gradient.
bool isPossible(RowwiseOp rowwise, Gradient &gradient, FusedOp kernel, const OpOrder &order,
                const target::Target &target) {
  std::optional<target::Call> call = target.call(rowwise);
  if (!call)
    return false;
  const uint32_t slots = target.capabilities().slots;
  if (slots && !keepsLess(gradient, kernel, order, int64_t(call->scratchBytes(slots))))
    return false;
  const plan::MatmulCall &matmul = call->instruction.matmul();
  if (!rowwise.getKernel().setTileElements(matmul.tile_m() * matmul.n()))
    return false;
  rowwise->setAttr(names::kCall, CallAttr::get(rowwise.getContext(), call->text()));
  rowwise->setAttr(names::kScratch, target::scratchOf(rowwise.getContext(), *call));
  return true;
}

struct FuseUpdates : impl::FuseUpdatesPassBase<FuseUpdates> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    const target::Target *target = target::targetOf(function);
    if (!target || !target->capabilities().rowsToKernels)
      return;
    llvm::DenseMap<Value, StringRef> newState = newStateOf(function);
    OpOrder order(function.getBody().front());
    for (auto kernel : llvm::make_early_inc_range(function.getOps<FusedOp>())) {
      if (llvm::none_of(kernel->getResults(), [&](Value result) { return newState.contains(result); }))
        continue;
      for (unsigned operand = 0; operand < kernel->getNumOperands(); ++operand) {
        std::optional<Gradient> gradient = gradientOf(kernel, operand, target->capabilities().leastRowwiseBytes);
        if (!gradient || !keepsLess(*gradient, kernel, order))
          continue;
        RowwiseOp rowwise = wrap(*gradient, kernel);
        order.add(rowwise);
        if (!isPossible(rowwise, *gradient, kernel, order, *target)) {
          rowwise->erase();
          continue;
        }
        kernel->replaceAllUsesWith(rowwise->getResults());
        kernel->erase();
        for (Operation *view : gradient->views)
          view->erase();
        gradient->product->erase();
        break;
      }
    }
  }
};

} // namespace

} // namespace tcc::train
