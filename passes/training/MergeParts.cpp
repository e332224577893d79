//===- MergeParts.cpp - one module of the entries of all phases and shapes ===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"
#include "support/PlanNames.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_MERGEPARTSPASS
#include "passes/Passes.h.inc"

namespace {

/// "w/exp_avg" of phase "critic" is "w/critic/exp_avg".
std::string stateName(llvm::StringRef name, llvm::StringRef phase) {
  auto [parameter, state] = name.rsplit('/');
  return (parameter + "/" + phase + "/" + state).str();
}

/// Appends the elements of `more` that `list` lacks.
ArrayAttr joined(Builder &builder, ArrayAttr list, ArrayAttr more) {
  llvm::SmallVector<Attribute> all;
  if (list)
    all.append(list.begin(), list.end());
  for (Attribute one : more)
    if (!llvm::is_contained(all, one))
      all.push_back(one);
  return builder.getArrayAttr(all);
}

class Merger {
public:
  /// `sharesState`: all phases share the optimizer's state of a parameter.
  Merger(ModuleOp whole, bool sharesState) : whole(whole), builder(whole.getContext()), sharesState(sharesState) {}

  /// `phase`: the part's, or empty.
  LogicalResult add(ModuleOp part, llvm::StringRef phase) {
    const bool isNewPhase = !phase.empty() && seen.insert(phase).second;
    renameStates(part, phase, isNewPhase);
    for (func::FuncOp function : llvm::make_early_inc_range(part.getOps<func::FuncOp>()))
      renameEntry(part, function, phase);
    if (isNewPhase)
      addPhase(part, phase);
    if (part == whole)
      return success();
    addLists(part);
    return moveOps(part);
  }

  void finish() {
    if (seen.empty())
      return;
    whole->setAttr(names::kGroups, builder.getArrayAttr(groups));
    whole->setAttr(names::kPhases, builder.getArrayAttr(phases));
    whole->removeAttr(names::kScalars);
  }

private:
  void renameStates(ModuleOp part, llvm::StringRef phase, bool isNewPhase) {
    renamed.clear();
    const SymbolTable symbols(whole);
    for (VariableOp variable : part.getOps<VariableOp>()) {
      llvm::StringRef role = variable.getRole(), name = variable.getSymName();
      auto other = part == whole ? nullptr : symbols.lookup(name);
      const bool own = !phase.empty() && !sharesState && (role == roles::kOptimizer || role == roles::kAccumulator);
      const bool clashes =
          role == roles::kConstant && other && other->getAttrDictionary() != variable->getAttrDictionary();
      // −1: in no group. The groups of a phase's further shapes are those of its first.
      if (const auto group = int64_t(variable.getGroup()); group >= 0 && isNewPhase)
        variable.setGroup(uint64_t(group) + groups.size());
      if (!own && !clashes)
        continue;
      renamed[name] = own ? stateName(name, phase) : stateName((name + "/constant").str(), *part.getSymName());
    }
    for (VariableOp variable : part.getOps<VariableOp>())
      if (auto found = renamed.find(variable.getSymName()); found != renamed.end())
        variable.setSymName(found->second);
  }

  void renameEntry(ModuleOp part, func::FuncOp function, llvm::StringRef phase) {
    auto entry = function->getAttrOfType<StringAttr>(names::kEntry);
    if (entry && numberOf(part, entry) != 0 && entries::readsStateAlone(entry.getValue()))
      return function.erase();
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
    if (!entry)
      return;
    if (Attribute dims = part->getAttr(names::kDims); dims && !entries::readsStateAlone(entry.getValue()))
      function->setAttr(names::kDims, dims);
    std::string name = entry.str();
    if (!phase.empty() && entries::isOfUpdate(name))
      name += ("." + phase).str();
    if (const int64_t number = numberOf(part, entry))
      name += entries::kShapeMark + std::to_string(number);
    function->setAttr(names::kEntry, builder.getStringAttr(name));
    function.setName(name);
  }

  /// The number of the part's shape among those of the entry.
  static int64_t numberOf(ModuleOp part, StringAttr entry) {
    auto numbers = part->getAttrOfType<DictionaryAttr>(names::kShapeNumbers);
    auto number = numbers ? numbers.getAs<IntegerAttr>(llvm::StringRef(entries::kindOf(entry.getValue()))) : nullptr;
    return number ? number.getInt() : 0;
  }

  /// Lists the phase; the names of its groups get its name as a prefix.
  void addPhase(ModuleOp part, llvm::StringRef phase) {
    auto own = part->getAttrOfType<ArrayAttr>(names::kGroups),
         scalars = part->getAttrOfType<ArrayAttr>(names::kScalars);
    for (Attribute one : own ? own.getValue() : llvm::ArrayRef<Attribute>()) {
      NamedAttrList group(cast<DictionaryAttr>(one));
      group.set("name", builder.getStringAttr(phase + ": " + cast<StringAttr>(group.get("name")).getValue()));
      groups.push_back(group.getDictionary(builder.getContext()));
    }
    phases.push_back(
        builder.getDictionaryAttr({builder.getNamedAttr("groups", own ? own : builder.getArrayAttr({})),
                                   builder.getNamedAttr("scalars", scalars ? scalars : builder.getArrayAttr({}))}));
  }

  /// Appends the part's lists for the report to those of the whole.
  void addLists(ModuleOp part) {
    for (NamedAttribute attribute : part->getAttrs()) {
      llvm::StringRef name = attribute.getName();
      auto list = dyn_cast<ArrayAttr>(attribute.getValue());
      if (list && name != names::kGroups && name != names::kScalars && name != names::kEntries)
        whole->setAttr(name, joined(builder, whole->getAttrOfType<ArrayAttr>(name), list));
    }
  }

  /// Moves entries and the variables that the whole lacks. Error: a variable of the same name has another type.
  LogicalResult moveOps(ModuleOp part) {
    Block *body = whole.getBody();
    const SymbolTable symbols(whole);
    for (Operation &op : llvm::make_early_inc_range(part.getBody()->getOperations())) {
      auto variable = dyn_cast<VariableOp>(op);
      auto existing = variable ? symbols.lookup(variable.getSymName()) : nullptr;
      if (existing) {
        auto kept = cast<VariableOp>(existing);
        if (variable.getType() != kept.getType())
          return variable.emitError() << "'" << variable.getSymName() << "' is " << variable.getType()
                                      << " for one shape and " << kept.getType() << " for another; compile a plan for "
                                      << "each";
        if (variable.getRole() == roles::kParameter && kept.getRole() != roles::kParameter) {
          kept.setRole(roles::kParameter);
          kept.setGroup(variable.getGroup());
        }
        continue;
      }
      if (variable || op.hasAttr(names::kEntry))
        op.moveBefore(body, body->end());
    }
    return success();
  }

  ModuleOp whole;
  Builder builder;
  bool sharesState;
  llvm::StringMap<std::string> renamed; ///< variables of the part being added
  llvm::StringSet<> seen;               ///< phases
  llvm::SmallVector<Attribute> groups, phases;
};

struct MergePartsPass : impl::MergePartsPassBase<MergePartsPass> {
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
    for (ModuleOp part : parts) {
      FailureOr<Recipe> own = recipeOf(part);
      if (failed(own) || failed(merger.add(part, own->phase)))
        return signalPassFailure();
    }
    merger.finish();
    for (llvm::StringRef name : {names::kRecipe, names::kEntries, names::kDims, names::kShapeNumbers})
      if (Attribute attribute = module->getAttr(name))
        first->setAttr(name, attribute);
      else
        first->removeAttr(name);
    module->setDiscardableAttrs(first->getDiscardableAttrDictionary());
    Block *body = module.getBody();
    body->getOperations().splice(body->begin(), first.getBody()->getOperations());
    for (ModuleOp part : parts)
      part.erase();
  }
};

} // namespace

} // namespace tcc::train
