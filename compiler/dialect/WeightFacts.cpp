//===- WeightFacts.cpp - what passes know about a weight ------------------===//
#include "compiler/dialect/WeightFacts.h"

using namespace mlir;

namespace tcc::train {

void setWeightFacts(VariableOp variable, const WeightFacts &facts) {
  Builder builder(variable.getContext());
  NamedAttrList list;
  auto addText = [&](llvm::StringRef name, const std::string &text) {
    if (!text.empty())
      list.append(name, builder.getStringAttr(text));
  };
  auto addFlag = [&](llvm::StringRef name, bool flag) {
    if (flag)
      list.append(name, builder.getUnitAttr());
  };
  addText("display", facts.display);
  addText("torch_name", facts.torchName);
  if (!facts.uses.empty())
    list.append("uses",
                builder.getStrArrayAttr(llvm::SmallVector<llvm::StringRef>(facts.uses.begin(), facts.uses.end())));
  addFlag("constant", facts.constant);
  list.append("torch_shape", builder.getDenseI64ArrayAttr(facts.torch.dims));
  if (facts.torch.count != 1)
    list.append("torch_count", builder.getI64IntegerAttr(facts.torch.count));
  addFlag("torch_transposed", facts.torch.transposed);
  addText("torch_assumption", facts.torch.assumption);
  variable->setAttr(kWeightAttribute, list.getDictionary(builder.getContext()));
}

std::optional<WeightFacts> weightFacts(VariableOp variable) {
  auto given = variable->getAttrOfType<DictionaryAttr>(kWeightAttribute);
  if (!given)
    return std::nullopt;
  auto text = [&](llvm::StringRef name) {
    auto attribute = given.getAs<StringAttr>(name);
    return attribute ? attribute.str() : std::string();
  };
  WeightFacts facts;
  facts.display = text("display");
  facts.torchName = text("torch_name");
  if (auto uses = given.getAs<ArrayAttr>("uses"))
    for (auto use : uses.getAsRange<StringAttr>())
      facts.uses.push_back(use.str());
  facts.constant = given.contains("constant");
  if (auto dims = given.getAs<DenseI64ArrayAttr>("torch_shape"))
    facts.torch.dims = dims.asArrayRef().vec();
  if (auto count = given.getAs<IntegerAttr>("torch_count"))
    facts.torch.count = count.getInt();
  facts.torch.transposed = given.contains("torch_transposed");
  facts.torch.assumption = text("torch_assumption");
  return facts;
}

} // namespace tcc::train
