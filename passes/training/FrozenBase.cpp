//===- FrozenBase.cpp - the frozen weights beside adapters ----------------===//
//
// A read of narrow state is widened at once: its readers compute as before, on rounded values. narrow-values gives each
// reader a copy of the widening, so that no wide copy of a weight outlives its reader. A lookup in an i8 table gathers
// integers and scales instead: it needs its table in memory, and a wide table would be larger than the gathered rows.
//
//===----------------------------------------------------------------------===//
#include "passes/training/FrozenBase.h"

#include "passes/Common.h"
#include "passes/training/WeightReads.h"
#include "support/PlanNames.h"

using namespace mlir;

namespace tcc::train {

void keepInBf16(VariableOp variable, llvm::ArrayRef<ReadOp> reads) {
  auto type = cast<RankedTensorType>(variable.getType());
  if (type.getRank() < 2 || !type.getElementType().isF32())
    return;
  OpBuilder builder(variable);
  auto narrow = RankedTensorType::get(type.getShape(), builder.getBF16Type());
  variable.setType(narrow);
  for (ReadOp read : reads) {
    read.getResult().setType(narrow);
    builder.setInsertionPointAfter(read);
    Value wide = train::cast(builder, read.getLoc(), read.getResult(), type.getElementType());
    read.getResult().replaceAllUsesExcept(wide, wide.getDefiningOp());
  }
}

/// The rows that a lookup gathers, widened from integers `steps` [.., rows, ..] and scales `factor`.
static Value widenedRows(OpBuilder &builder, GatherOp lookup, Value steps, Value factor, Type element) {
  Location loc = lookup.getLoc();
  const auto axis = size_t(lookup.getAxis());
  auto take = [&](Value table) -> Value {
    llvm::SmallVector<int64_t> shape(shapeOf(table).take_front(axis));
    shape.append(shapeOf(lookup.getIndices()).begin(), shapeOf(lookup.getIndices()).end());
    shape.append(shapeOf(table).begin() + axis + 1, shapeOf(table).end());
    if (shapeOf(table)[axis] == 1 && table == factor) { // one for all rows
      std::fill_n(shape.begin() + axis, shapeOf(lookup.getIndices()).size(), 1);
      return reshape(builder, loc, table, shape);
    }
    return GatherOp::create(builder, loc, RankedTensorType::get(shape, elementTypeOf(table)), table,
                            lookup.getIndices(), lookup.getAxis())
        .getResult();
  };
  Expr rows = Expr(builder, loc, take(steps)).cast(builder.getF32Type());
  return (rows * rows.with(take(factor))).cast(element).value;
}

std::string keepInInt8(ModuleOp module, VariableOp variable, llvm::ArrayRef<ReadOp> reads) {
  auto type = cast<RankedTensorType>(variable.getType());
  const Type element = type.getElementType();
  if (type.getRank() < 2 || !(element.isF32() || element.isBF16() || element.isF16()))
    return {};
  std::optional<llvm::SmallVector<int64_t>> shape = scaleShapeOf(reads);
  if (!shape)
    return {};
  OpBuilder builder(variable);
  auto narrow = RankedTensorType::get(type.getShape(), builder.getIntegerType(8)),
       scales = RankedTensorType::get(*shape, builder.getF32Type());
  if (tensorBytes(narrow) + tensorBytes(scales) >= tensorBytes(type))
    return {};
  std::string name = (variable.getSymName() + "/scale").str();
  while (module.lookupSymbol(name))
    name += "_";
  builder.setInsertionPointAfter(variable);
  VariableOp::create(builder, variable.getLoc(), name, scales, roles::kConstant, FloatAttr(), ElementsAttr(), -1);
  variable.setType(narrow);
  variable->setAttr(names::kScale, builder.getStringAttr(name));
  for (ReadOp read : reads) {
    read.getResult().setType(narrow);
    Location loc = read.getLoc();
    for (Operation *user : llvm::make_early_inc_range(read.getResult().getUsers()))
      if (auto lookup = dyn_cast<GatherOp>(user)) {
        builder.setInsertionPoint(lookup);
        Value scale = ReadOp::create(builder, loc, scales, name);
        lookup.getResult().replaceAllUsesWith(widenedRows(builder, lookup, read.getResult(), scale, element));
        lookup.erase();
      }
    builder.setInsertionPointAfter(read);
    Expr factor(builder, loc, ReadOp::create(builder, loc, scales, name));
    Expr steps(builder, loc, train::cast(builder, loc, read.getResult(), builder.getF32Type()));
    Value wide = (steps * factor).cast(element);
    read.getResult().replaceUsesWithIf(wide, [&](OpOperand &use) {
      return use.getOwner() != steps.value.getDefiningOp() && !isa<GatherOp>(use.getOwner());
    });
  }
  return name;
}

} // namespace tcc::train
