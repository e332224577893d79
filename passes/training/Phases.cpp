//===- Phases.cpp - the programs of [[phase]] in one module ----------------===//
#include "passes/training/Phases.h"

#include "passes/Common.h"
#include "passes/training/ParameterGroups.h"
#include "support/PlanNames.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace tcc::train {

static llvm::StringRef keyOf(const Recipe &phase) { return phase.stage ? "stage.trainable" : "phase.parameters"; }

Status markPhaseParameters(ModuleOp module, const std::vector<Recipe> &phases,
                           const std::map<std::string, Initializer> &initializers) {
  const std::vector<VariableOp> parameters = trainableParameters(module);
  for (const Recipe &phase : phases) {
    auto own = matchingParameters(parameters, phase.phaseParameters, phase.at("parameters"), keyOf(phase).str(),
                                  &initializers);
    if (!own)
      return own.status();
    for (VariableOp parameter : *own) {
      parameter->setAttr(names::kOfPhase, UnitAttr::get(module.getContext()));
      if (!phase.stage)
        continue;
      auto before = parameter->getAttrOfType<IntegerAttr>(names::kStages);
      const uint64_t bits = (before ? before.getValue().getZExtValue() : 0) | uint64_t(1) << *phase.stage;
      parameter->setAttr(names::kStages, Builder(module.getContext()).getI64IntegerAttr(int64_t(bits)));
    }
  }
  return Status::success();
}

Status restrictToPhase(ModuleOp module, const Recipe &phase,
                       const std::map<std::string, Initializer> &initializers) {
  std::vector<VariableOp> parameters = trainableParameters(module);
  auto own =
      matchingParameters(parameters, phase.phaseParameters, phase.at("parameters"), keyOf(phase).str(), &initializers);
  if (!own)
    return own.status();
  for (VariableOp parameter : parameters)
    if (!llvm::is_contained(*own, parameter))
      parameter.setRole(roles::kFrozen);
  return Status::success();
}

/// Everything that the results of @loss depend on.
static llvm::DenseSet<Operation *> neededOps(func::FuncOp loss) {
  llvm::DenseSet<Operation *> needed; // asked, never iterated
  llvm::SmallVector<Operation *> work{loss.getBody().front().getTerminator()};
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!needed.insert(op).second)
      continue;
    for (Value operand : op->getOperands())
      if (Operation *definition = operand.getDefiningOp())
        work.push_back(definition);
  }
  return needed;
}

/// True if `needed` contains one of the nearest mode-dependent ops that the value depends on, or if there are none.
static bool comesFromNeeded(Value value, const llvm::DenseSet<Operation *> &needed) {
  bool any = false, good = false;
  llvm::DenseSet<Operation *> seen;
  llvm::SmallVector<Value> work{value};
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isa<ModeDependent>(op)) {
      any = true;
      good |= needed.contains(op);
      continue;
    }
    work.append(op->operand_begin(), op->operand_end());
  }
  return good || !any;
}

void dropForeignWrites(ModuleOp module) {
  func::FuncOp loss = lookupFunction(module, "loss");
  if (!loss)
    return;
  const llvm::DenseSet<Operation *> needed = neededOps(loss);
  for (WriteOp write : llvm::make_early_inc_range(loss.getBody().front().getOps<WriteOp>()))
    if (!comesFromNeeded(write.getValue(), needed))
      write.erase();
  eraseDeadOps(loss);
}

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

  /// Lists of the report are joined; groups get the phase's name before their own.
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
} // namespace

OwningOpRef<ModuleOp> mergePhases(std::vector<OwningOpRef<ModuleOp>> modules, const std::vector<Recipe> &phases) {
  Merger merger(*modules.front(), phases.front().stage.has_value());
  for (auto [module, phase] : llvm::zip_equal(modules, phases))
    merger.add(*module, phase.phase);
  merger.finish();
  return std::move(modules.front());
}

} // namespace tcc::train
