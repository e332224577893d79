//===- Common.cpp - helpers of the mathematical passes --------------------===//
#include "passes/Common.h"
#include "compiler/dialect/Views.h"

#include "runtime/plan/KernelAbi.h"
#include "support/PlanNames.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

#include <algorithm>

using namespace mlir;

namespace tcc::train {

llvm::StringRef nodeName(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().getValue();
  if (auto fused = dyn_cast<FusedLoc>(loc)) {
    for (Location part : fused.getLocations())
      if (llvm::StringRef name = nodeName(part); !name.empty())
        return name;
  }
  return "";
}

func::FuncOp lookupFunction(ModuleOp module, llvm::StringRef name) { return module.lookupSymbol<func::FuncOp>(name); }

bool builds(ModuleOp module, llvm::StringRef entry) {
  auto wanted = module->getAttrOfType<ArrayAttr>(names::kEntries);
  return !wanted || llvm::is_contained(wanted.getAsValueRange<StringAttr>(), entry);
}

uint64_t residentBytes(VariableOp variable) {
  return llvm::alignTo(uint64_t(tensorBytes(variable.getType())), plan::kAlignmentBytes);
}

uint64_t residentBytes(ModuleOp module, bool onHost) {
  uint64_t bytes = 0;
  for (VariableOp variable : module.getOps<VariableOp>())
    if (variable->hasAttr(names::kOnHost) == onHost)
      bytes += residentBytes(variable);
  return bytes;
}

std::vector<VariableOp> trainableParameters(ModuleOp module) {
  std::vector<VariableOp> parameters;
  for (VariableOp variable : module.getOps<VariableOp>())
    if (variable.getRole() == roles::kParameter)
      parameters.push_back(variable);
  return parameters;
}

bool isUnusedParameter(ModuleOp module, llvm::StringRef name) {
  auto list = module->getAttrOfType<ArrayAttr>(names::kUnused);
  return list && llvm::any_of(list.getAsRange<DictionaryAttr>(),
                              [&](DictionaryAttr entry) { return entry.getAs<StringAttr>("name").getValue() == name; });
}

void addUnusedParameter(ModuleOp module, llvm::StringRef name, llvm::StringRef reason, llvm::StringRef node,
                        llvm::StringRef cut) {
  if (isUnusedParameter(module, name))
    return;
  Builder builder(module.getContext());
  llvm::SmallVector<Attribute> entries;
  if (auto list = module->getAttrOfType<ArrayAttr>(names::kUnused))
    llvm::append_range(entries, list);
  NamedAttrList entry;
  entry.set("name", builder.getStringAttr(name));
  entry.set("reason", builder.getStringAttr(reason));
  entry.set("node", builder.getStringAttr(node));
  if (!cut.empty())
    entry.set("cut", builder.getStringAttr(cut));
  entries.push_back(entry.getDictionary(module.getContext()));
  module->setAttr(names::kUnused, builder.getArrayAttr(entries));
}

void addNote(ModuleOp module, llvm::StringRef kind, llvm::StringRef subject, llvm::StringRef text) {
  addNotes(module, kind, {{subject.str(), text.str()}});
}

void addNotes(ModuleOp module, llvm::StringRef kind,
              llvm::ArrayRef<std::pair<std::string, std::string>> subjectsAndTexts) {
  Builder builder(module.getContext());
  llvm::SetVector<Attribute> entries;
  if (auto list = module->getAttrOfType<ArrayAttr>(names::kNotes))
    entries.insert(list.begin(), list.end());
  for (const auto &[subject, text] : subjectsAndTexts)
    entries.insert(builder.getDictionaryAttr({builder.getNamedAttr("kind", builder.getStringAttr(kind)),
                                              builder.getNamedAttr("subject", builder.getStringAttr(subject)),
                                              builder.getNamedAttr("text", builder.getStringAttr(text))}));
  if (!entries.empty())
    module->setAttr(names::kNotes, builder.getArrayAttr(entries.getArrayRef()));
}

bool isZeroFill(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!dense || !dense.isSplat())
    return false;
  if (isa<FloatType>(dense.getElementType()))
    return dense.getSplatValue<APFloat>().isZero();
  return dense.getSplatValue<APInt>().isZero();
}

int64_t eraseDeadOps(func::FuncOp function) {
  int64_t erased = 0;
  for (Block &block : function.getBody())
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op)) {
        op.erase();
        ++erased;
      }
  return erased;
}

MatMulOp soleProduct(Value value) {
  Value root = soleRootOf(value);
  return root ? root.getDefiningOp<MatMulOp>() : nullptr;
}

std::optional<double> splatOf(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
  if (!elements || !elements.isSplat())
    return std::nullopt;
  llvm::APFloat number = elements.getSplatValue<llvm::APFloat>();
  bool inexact = false;
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &inexact);
  return number.convertToDouble();
}

void eraseStop(StopGradientOp stop) {
  Value input = stop.getInput();
  llvm::SmallVector<SelectOp> choices;
  for (Operation *user : stop.getResult().getUsers())
    if (auto choice = dyn_cast<SelectOp>(user); choice && choice.getOperand(1) == input && choice.getOperand(2) == stop)
      choices.push_back(choice);
  for (SelectOp choice : choices)
    choice.getResult().replaceAllUsesWith(input);
  stop.getResult().replaceAllUsesWith(input);
  stop.erase();
}

Expr sumAll(const Expr &value) {
  llvm::ArrayRef<int64_t> shape = shapeOf(value);
  int64_t rank = shape.size(), outer = 0;
  while (outer < rank && shape[outer] == 1)
    ++outer;
  llvm::SmallVector<int64_t> inner;
  for (int64_t i = outer + 1; i < rank; ++i)
    if (shape[i] != 1)
      inner.push_back(i);
  Expr sum = inner.empty() ? value : value.sum(inner);
  if (outer < rank)
    sum = sum.sum({outer});
  return sum.reshape({});
}

} // namespace tcc::train
