//===- AddProducts.cpp - add products to accumulators in place ------------===//
//
// With accumulation, a micro-batch's weight gradient is a product that is written, read again and added to the sum of
// the others: four times the weight's bytes. A product that adds to the accumulator in place only reads and writes the
// accumulator. The bits are the same, since each element is summed before it is added.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "passes/Common.h"
#include "passes/memory/EntryProblem.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_ADDPRODUCTSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct AddProducts : impl::AddProductsPassBase<AddProducts> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    for (AddOp add : llvm::make_early_inc_range(function.getBody().front().getOps<AddOp>()))
      for (auto [sum, made] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())})
        if (MatMulOp product = soleProduct(made);
            product && !product.getAddend() && elementTypeOf(made).isF32() && isAccumulator(function, sum, add)) {
          rewrite(add, product, sum);
          break;
        }
  }

private:
  /// State that only the addition reads, and that the addition's result replaces.
  static bool isAccumulator(func::FuncOp function, Value sum, AddOp add) {
    auto argument = dyn_cast<BlockArgument>(sum);
    if (!argument || !sum.hasOneUse() || !add->hasOneUse())
      return false;
    OpOperand &use = *add->use_begin();
    auto variable = use.getOwner()->hasTrait<OpTrait::IsTerminator>()
                        ? function.getResultAttrOfType<StringAttr>(use.getOperandNumber(), names::kVariable)
                        : StringAttr();
    return variable && variableOf(function, argument) == variable;
  }

  static void rewrite(AddOp add, MatMulOp product, Value sum) {
    OpBuilder builder(add);
    Value addend = reshape(builder, add.getLoc(), sum, shapeOf(product.getResult()));
    Value total = MatMulOp::create(builder, product.getLoc(), product.getResult().getType(), product.getLhs(),
                                   product.getRhs(), addend, product.getTransA(), product.getTransB());
    add.getResult().replaceAllUsesWith(reshape(builder, add.getLoc(), total, shapeOf(sum)));
    // The addition read the product, possibly through views, which are now dead.
    Value unread = add.getLhs() == sum ? add.getRhs() : add.getLhs();
    add.erase();
    for (Operation *op = unread.getDefiningOp(); op && op->use_empty();) {
      Operation *before = op == product.getOperation() ? nullptr : op->getOperand(0).getDefiningOp();
      op->erase();
      op = before;
    }
  }
};

} // namespace

} // namespace tcc::train
