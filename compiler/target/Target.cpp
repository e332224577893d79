//===- Target.cpp - the targets that exist --------------------------------===//
#include "compiler/target/Target.h"

#include "runtime/plan/Targets.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include <fmt/ranges.h>
#include <google/protobuf/text_format.h>
#include <map>
#include <mutex>

namespace tcc::target {

namespace {
struct Registry {
  std::mutex mutex;
  std::vector<TargetKind> kinds;
  std::map<std::string, std::unique_ptr<const Target>> made;
};

Registry &registry() {
  static Registry all;
  return all;
}
} // namespace

std::string Call::text() const { return instruction.ShortDebugString(); }

train::ScratchAttr scratchOf(mlir::MLIRContext *context, const Call &call) {
  return train::ScratchAttr::get(context, int64_t(call.scratchSlotBytes), int64_t(call.scratchSharedBytes),
                                 int64_t(call.scratchSlots), int64_t(call.partialBytes));
}

Expected<plan::Instruction> parseCall(const std::string &text) {
  plan::Instruction instruction;
  if (!google::protobuf::TextFormat::ParseFromString(text, &instruction))
    return error("internal error: no call's descriptor: {}", text);
  return instruction;
}

void registerTarget(const TargetKind &kind) {
  Registry &all = registry();
  std::lock_guard lock(all.mutex);
  for (const TargetKind &known : all.kinds)
    if (known.name == kind.name)
      return;
  all.kinds.push_back(kind);
}

Expected<std::string> resolveTarget(const std::string &asked, bool bf16Products) {
  Registry &all = registry();
  std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const TargetKind &kind : all.kinds) {
    if (asked.empty() || asked == kind.name)
      return kind.defaultLevel(bf16Products);
    names.push_back(kind.name);
    for (const std::string &level : kind.levels) {
      if (asked == level)
        return level;
      names.push_back(level);
    }
  }
  return Status(fmt::format("--target {}: this version compiles for {}", asked, fmt::join(names, ", ")),
                StatusCode::Usage);
}

const TargetKind *findKind(llvm::StringRef name) {
  Registry &all = registry();
  std::lock_guard lock(all.mutex);
  for (const TargetKind &kind : all.kinds)
    if (kind.name == plan::kindOf(name))
      return &kind;
  return nullptr;
}

const Target *findTarget(llvm::StringRef name) {
  Registry &all = registry();
  std::lock_guard lock(all.mutex);
  auto found = all.made.find(name.str());
  if (found != all.made.end())
    return found->second.get();
  for (const TargetKind &kind : all.kinds)
    for (const std::string &level : kind.levels)
      if (name == level)
        return (all.made[level] = kind.create(level)).get();
  return nullptr;
}

std::string firstTargetWith(bool Capabilities::*feature) {
  std::vector<std::string> names;
  {
    Registry &all = registry();
    std::lock_guard lock(all.mutex);
    for (const TargetKind &kind : all.kinds)
      names.insert(names.end(), kind.levels.begin(), kind.levels.end());
  }
  auto found = std::find_if(names.begin(), names.end(),
                            [&](const std::string &name) { return findTarget(name)->capabilities().*feature; });
  return found == names.end() ? "" : *found;
}

const Target *targetOf(mlir::Operation *op) {
  auto module = mlir::dyn_cast<mlir::ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<mlir::ModuleOp>();
  auto name = module ? module->getAttrOfType<mlir::StringAttr>(kTargetAttribute) : mlir::StringAttr();
  return name ? findTarget(name.getValue()) : nullptr;
}

static double flopsPerNs(const CostModel &costs, bool isCall) {
  return isCall ? costs.callFlopsPerNs : costs.kernelFlopsPerNs;
}
double Target::flopsPerNs(mlir::Operation *, bool isCall) const { return target::flopsPerNs(costs(), isCall); }

const CostModel &costsOf(mlir::Operation *op) {
  static const CostModel nominal;
  const Target *target = targetOf(op);
  return target ? target->costs() : nominal;
}

double flopsPerNsOf(mlir::Operation *op, bool isCall) {
  const Target *target = targetOf(op);
  return target ? target->flopsPerNs(op, isCall) : flopsPerNs(costsOf(op), isCall);
}

} // namespace tcc::target
