//===- InputRanges.cpp - what integer inputs index -------------------------===//
#include "tools/tcc/CheckInputs.h"

#include "compiler/recipe/Recipe.h"
#include "frontend/Import.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::gradcheck {

namespace {

void narrow(std::optional<int64_t> &bound, Value indexed, int64_t axis) {
  int64_t extent = cast<RankedTensorType>(indexed.getType()).getDimSize(axis);
  bound = std::min(bound.value_or(extent), extent);
}

/// True if the arithmetic combines a followed index with values that differ from element to element (a sequence's
/// length minus a position): bounds of the result then give no bounds of the argument.
bool mixesPlaces(Operation *user, const llvm::SetVector<Value> &reached) {
  if (!user->hasTrait<OpTrait::Elementwise>())
    return false;
  return llvm::any_of(user->getOperands(), [&](Value operand) {
    if (reached.contains(operand) || cast<RankedTensorType>(operand.getType()).getElementType().isInteger(1))
      return false;
    while (Operation *source = operand.getDefiningOp()) {
      if (auto constant = dyn_cast<train::ConstantOp>(source)) {
        auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
        return !elements || !elements.isSplat();
      }
      if (source->getNumOperands() != 1)
        return true;
      operand = source->getOperand(0);
    }
    return true;
  });
}

IndexRange follow(BlockArgument argument) {
  IndexRange range;
  llvm::SetVector<Value> reached;
  reached.insert(argument);
  for (size_t i = 0; i < reached.size(); ++i)
    for (OpOperand &use : reached[i].getUses()) {
      Operation *user = use.getOwner();
      if (auto gather = dyn_cast<train::GatherOp>(user); gather && use.get() == gather.getIndices())
        narrow(range.rows, gather.getInput(), gather.getAxis());
      else if (auto scatter = dyn_cast<train::ScatterAddOp>(user); scatter && use.get() == scatter.getIndices())
        narrow(range.rows, scatter.getInit(), scatter.getAxis());
      else if (auto gather = dyn_cast<train::GatherElementsOp>(user); gather && use.get() == gather.getIndices())
        narrow(range.rows, gather.getInput(), gather.getAxis());
      else if (auto scatter = dyn_cast<train::ScatterOp>(user); scatter && use.get() == scatter.getIndices())
        narrow(range.rows, scatter.getInit(), scatter.getAxis());
      else if (auto pick = dyn_cast<train::PickOp>(user); pick && use.get() == pick.getIndices())
        narrow(range.classes, pick.getInput(), pick.getDim());
      else if (!mixesPlaces(user, reached))
        for (Value result : user->getResults())
          if (auto type = dyn_cast<RankedTensorType>(result.getType()))
            if (type.getElementType().isInteger() && !type.getElementType().isInteger(1))
              reached.insert(result);
    }
  return range;
}

} // namespace

Expected<std::map<std::string, IndexRange>> findIndexRanges(MLIRContext &context, const CompileOptions &options) {
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe)
    return recipe.status();
  auto import = importOptions(options, *recipe);
  if (!import)
    return import.status();
  import->lossOf = lossValues(*recipe);
  Expected<ImportedModel> model = frontend::importModel(context, options.modelPath, *import);
  if (!model)
    return model.status();
  std::string messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    messages += (messages.empty() ? "" : "\n") + diagnostic.str();
    return success();
  });
  train::setRecipe(*model->module, *recipe);
  PassManager passes(&context);
  passes.addPass(train::createFoldConstantsPass());
  passes.addPass(train::createAttachLossPass());
  if (failed(passes.run(*model->module)))
    return Status(messages.empty() ? "internal error: attach-loss failed" : messages);
  std::map<std::string, IndexRange> ranges;
  if (func::FuncOp loss = train::lookupFunction(*model->module, "loss"))
    for (BlockArgument argument : loss.getArguments()) {
      auto name = loss.getArgAttrOfType<StringAttr>(argument.getArgNumber(), train::names::kName);
      IndexRange range = follow(argument);
      if (name && (range.rows || range.classes))
        ranges[name.str()] = range;
    }
  return ranges;
}

} // namespace tcc::gradcheck
