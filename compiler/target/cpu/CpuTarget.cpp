//===- CpuTarget.cpp - x86-64 processors as a target ----------------------===//
#include "compiler/target/cpu/CpuTarget.h"

#include "compiler/dialect/TrainDialect.h"
#include "compiler/target/cpu/Choice.h"
#include "compiler/target/cpu/passes/CpuPasses.h"
#include "runtime/cpu/calls/LibraryVersion.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

#include <map>
#include <mutex>

namespace tcc::target::cpu {

namespace {
class CpuTarget final : public Target {
public:
  CpuTarget(const std::string &name, runtime::CpuLevel level, const CpuModel &model)
      : Target(name), level(level), model(model), codeOf(cpu::codeOf(level)) {
    able.multipliesBf16 = runtime::multipliesBf16(level);
    able.rowsToKernels = able.runsLoops = able.runsBeside = able.collectives = able.scattersInOneTree = true;
    able.leastRowwiseBytes = int64_t(128) << 10;
  }

  const Capabilities &capabilities() const override { return able; }
  const CostModel &costs() const override { return model.nominal; }
  const CodeModel &code() const override { return codeOf; }
  std::string library() const override { return runtime::builtLibrary(); }

  std::optional<Call> call(mlir::Operation *op) const override {
    auto library = mlir::dyn_cast<train::LibraryCall>(op);
    if (!library)
      return std::nullopt;
    Call request;
    library.buildCall(request.instruction);
    if (request.instruction.matmul().has_epilogue() ||
        request.instruction.convolution().finish() != plan::ConvolutionCall::SUMS)
      return std::nullopt;
    std::string key = request.instruction.SerializeAsString();
    std::lock_guard lock(mutex);
    auto found = known.find(key);
    if (found == known.end())
      found = known.emplace(key, decide(std::move(request))).first;
    return found->second;
  }

  std::optional<Call> lighterCall(mlir::Operation *, const plan::Instruction &chosen, uint64_t slots,
                                  uint64_t bytes) const override {
    Call request;
    request.instruction = chosen;
    if (!chosen.has_matmul())
      return std::nullopt;
    auto choice = lighter(*request.instruction.mutable_matmul(), slots, bytes, model);
    if (!choice)
      return std::nullopt;
    describe(*choice, request);
    return request;
  }

  void addPasses(Stage stage, mlir::OpPassManager &passes, const Wishes &wishes) const override {
    if (stage != Stage::Layouts || !wishes.libraryKernels)
      return;
    // A channels-last convolution may be computed with fewer multiplications, or as products: of the taps that reach
    // some output, by Winograd's method, then of each tap that reaches only some.
    passes.addNestedPass<mlir::func::FuncOp>(train::createCropTapsPass());
    if (wishes.winograd)
      passes.addNestedPass<mlir::func::FuncOp>(train::createWinogradPass());
    passes.addNestedPass<mlir::func::FuncOp>(train::createSplitTapsPass());
    if (wishes.pointwiseConvolutions)
      passes.addNestedPass<mlir::func::FuncOp>(train::createPointwiseConvolutionsPass());
  }

private:
  std::optional<Call> decide(Call request) const {
    plan::Instruction &instruction = request.instruction;
    Expected<Choice> choice = instruction.has_matmul()        ? choose(*instruction.mutable_matmul(), level, model)
                              : instruction.has_convolution() ? choose(*instruction.mutable_convolution(), level, model)
                                                              : Expected<Choice>(error("no call of this target"));
    if (!choice)
      return std::nullopt;
    describe(*choice, request);
    return request;
  }

  static void describe(const Choice &choice, Call &request) {
    request.scratchSlotBytes = choice.needs.scratchSlotBytes;
    request.scratchSharedBytes = choice.needs.scratchSharedBytes;
    request.scratchSlots = choice.needs.scratchSlots;
    request.partialBytes = choice.needs.partialBytes;
    request.reorderedBytes = choice.reorderedBytes;
    request.readsInPlace = choice.ownKernels;
  }

  runtime::CpuLevel level;
  CpuModel model;
  CodeModel codeOf;
  Capabilities able;
  mutable std::mutex mutex;
  mutable std::map<std::string, std::optional<Call>> known; ///< by serialised request
};
} // namespace

std::unique_ptr<const Target> createCpuTarget(const std::string &name, const CpuModel &model) {
  auto level = runtime::levelFromName(name);
  return level ? std::make_unique<CpuTarget>(name, *level, model) : nullptr;
}

TargetKind cpuKind() {
  TargetKind kind;
  kind.name = "cpu";
  for (runtime::CpuLevel level :
       {runtime::CpuLevel::V3, runtime::CpuLevel::V4, runtime::CpuLevel::V4Bf16, runtime::CpuLevel::Amx})
    kind.levels.push_back(runtime::levelName(level));
  kind.defaultLevel = [](bool bf16Products) -> Expected<std::string> {
    auto level = runtime::defaultLevel(runtime::cpuFeatures(), bf16Products);
    if (!level)
      return level.status();
    return runtime::levelName(*level);
  };
  kind.create = [](const std::string &name) { return createCpuTarget(name, CpuModel()); };
  return kind;
}

} // namespace tcc::target::cpu
