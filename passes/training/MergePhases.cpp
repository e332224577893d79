//===- MergePhases.cpp - one module of all phases' entries ----------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"
#include "support/PlanNames.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_MERGEPHASESPASS
#include "passes/Passes.h.inc"

namespace {

/// "w/exp_avg" of phase "critic" is "w/critic/exp_avg".
std::string stateName(llvm::StringRef name, llvm::StringRef phase) {
  auto [parameter, state] = name.rsplit('/');
  return (parameter + "/" + phase + "/" + state).str();
}

class Merger {
public:
  /// `sharesState`: all parts share the optimizer's state of a parameter.
  Merger(ModuleOp whole, bool sharesState) : whole(whole), builder(whole.getContext()), sharesState(sharesState) {}

  void add(ModuleOp part, llvm::StringRef phase) {
    renameStates(part, phase);
    for (func::FuncOp function : part.getOps<func::FuncOp>())
      renameEntry(function, phase);
    mergeAttributes(part, phase);
    if (part != whole)
      moveOps(part);
    groupCount = groups.size();
  }

  void finish() {
    whole->setAttr(names::kGroups, builder.getArrayAttr(groups));
    whole->setAttr(names::kPhases, builder.getArrayAttr(phases));
    whole->removeAttr(names::kScalars);
  }

private:
  void renameStates(ModuleOp part, llvm::StringRef phase) {
    renamed.clear();
    const SymbolTable symbols(whole);
    for (VariableOp variable : part.getOps<VariableOp>()) {
      llvm::StringRef role = variable.getRole(), name = variable.getSymName();
      auto other = part == whole ? nullptr : symbols.lookup(name);
      const bool own = !sharesState && (role == roles::kOptimizer || role == roles::kAccumulator);
      const bool clashes =
          role == roles::kConstant && other && other->getAttrDictionary() != variable->getAttrDictionary();
      if (const auto group = int64_t(variable.getGroup()); group >= 0) // -1: in no group
        variable.setGroup(uint64_t(group) + groupCount);
      if (!own && !clashes)
        continue;
      std::string next = stateName(own ? name : llvm::StringRef((name + "/constant").str()), phase);
      renamed[name] = next;
    }
    for (VariableOp variable : part.getOps<VariableOp>())
      if (auto found = renamed.find(variable.getSymName()); found != renamed.end())
        variable.setSymName(found->second);
  }

  void renameEntry(func::FuncOp function, llvm::StringRef phase) {
    auto rename = [&](Attribute list) {
      llvm::SmallVector<Attribute> next;
      for (Attribute one : cast<ArrayAttr>(list)) {
        NamedAttrList attributes(cast<DictionaryAttr>(one));
        if (auto name = dyn_cast_or_null<StringAttr>(attributes.get(names::kVariable)))
          if (auto found = renamed.find(name.getValue()); found != renamed.end())
            attributes.set(names::kVariable, builder.getStringAttr(found->second));
        next.push_back(attributes.getDictionary(builder.getContext()));
      }
      return builder.getArrayAttr(next);
    };
    if (auto list = function.getArgAttrsAttr())
      function.setArgAttrsAttr(cast<ArrayAttr>(rename(list)));
    if (auto list = function.getResAttrsAttr())
      function.setResAttrsAttr(cast<ArrayAttr>(rename(list)));
    auto entry = function->getAttrOfType<StringAttr>(names::kEntry);
    if (!entry || !entries::isOfUpdate(entry.getValue()))
      return;
    const std::string name = (entry.getValue() + "." + phase).str();
    function->setAttr(names::kEntry, builder.getStringAttr(name));
    function.setName(name);
  }

  /// Concatenates the lists of the report; the names of groups get the phase's name as a prefix.
  void mergeAttributes(ModuleOp part, llvm::StringRef phase) {
    auto listOf = [](ModuleOp module, llvm::StringRef name) { return module->getAttrOfType<ArrayAttr>(name); };
    auto own = listOf(part, names::kGroups), scalars = listOf(part, names::kScalars);
    for (Attribute one : own ? own.getValue() : llvm::ArrayRef<Attribute>()) {
      NamedAttrList group(cast<DictionaryAttr>(one));
      group.set("name", builder.getStringAttr(phase + ": " + cast<StringAttr>(group.get("name")).getValue()));
      groups.push_back(group.getDictionary(builder.getContext()));
    }
    phases.push_back(
        builder.getDictionaryAttr({builder.getNamedAttr("groups", own ? own : builder.getArrayAttr({})),
                                   builder.getNamedAttr("scalars", scalars ? scalars : builder.getArrayAttr({}))}));
    if (part == whole)
      return;
    for (NamedAttribute attribute : part->getAttrs()) {
      llvm::StringRef name = attribute.getName();
      auto list = dyn_cast<ArrayAttr>(attribute.getValue());
      if (!list || name == names::kGroups || name == names::kScalars)
        continue;
      llvm::SmallVector<Attribute> all;
      if (auto before = listOf(whole, name))
        all.append(before.begin(), before.end());
      for (Attribute one : list)
        if (!llvm::is_contained(all, one))
          all.push_back(one);
      whole->setAttr(name, builder.getArrayAttr(all));
    }
  }

  void moveOps(ModuleOp part) {
    Block *body = whole.getBody();
    const SymbolTable symbols(whole);
    for (Operation &op : llvm::make_early_inc_range(part.getBody()->getOperations())) {
      auto variable = dyn_cast<VariableOp>(op);
      auto existing = variable ? symbols.lookup(variable.getSymName()) : nullptr;
      if (existing) {
        auto kept = cast<VariableOp>(existing);
        if (variable.getRole() == roles::kParameter && kept.getRole() != roles::kParameter) {
          kept.setRole(roles::kParameter);
          kept.setGroup(variable.getGroup());
        }
        continue;
      }
      if (variable || op.hasAttr(names::kEntry))
        op.moveBefore(body, body->end());
    }
  }

  ModuleOp whole;
  Builder builder;
  bool sharesState;
  llvm::StringMap<std::string> renamed; ///< variables of the part being added
  llvm::SmallVector<Attribute> groups, phases;
  size_t groupCount = 0;
};

struct MergePhasesPass : impl::MergePhasesPassBase<MergePhasesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Recipe> recipe = recipeOf(module);
    const llvm::SmallVector<ModuleOp> parts(module.getOps<ModuleOp>());
    if (failed(recipe))
      return signalPassFailure();
    if (parts.empty())
      return;
    ModuleOp first = parts.front();
    Merger merger(first, /*sharesState=*/!recipe->stages.empty());
    for (ModuleOp part : parts)
      merger.add(part, *part.getSymName());
    merger.finish();
    first->setAttr(names::kRecipe, module->getAttr(names::kRecipe));
    module->setDiscardableAttrs(first->getDiscardableAttrDictionary());
    Block *body = module.getBody();
    body->getOperations().splice(body->begin(), first.getBody()->getOperations());
    for (ModuleOp part : parts)
      part.erase();
  }
};

} // namespace

} // namespace tcc::train
