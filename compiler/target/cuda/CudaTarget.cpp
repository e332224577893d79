//===- CudaTarget.cpp - NVIDIA's cards as a target ------------------------===//
#include "compiler/target/cuda/CudaTarget.h"

#include <fmt/ranges.h>

namespace tcc::target::cuda {

namespace {

class CudaTarget final : public Target {
public:
  CudaTarget(const std::string &name, const Architecture &architecture, const CudaModel &model)
      : Target(name), model(model), generated(codeOf(architecture, model)) {
    able.slots = uint32_t(model.grid.scratchThreads);
  }

  const Capabilities &capabilities() const override { return able; }
  const CostModel &costs() const override { return model.nominal; }
  const CodeModel &code() const override { return generated; }
  /// No library yet: products and convolutions are generated kernels.
  std::optional<Call> call(mlir::Operation *) const override { return std::nullopt; }
  void addPasses(Stage, mlir::OpPassManager &, const Wishes &) const override {}

private:
  CudaModel model;
  CodeModel generated;
  Capabilities able;
};

std::string levelOf(const Architecture &architecture) { return "cuda:" + std::string(architecture.name); }

} // namespace

TargetKind cudaKind() {
  TargetKind kind;
  kind.name = "cuda";
  for (const Architecture &architecture : kArchitectures)
    kind.levels.push_back(levelOf(architecture));
  kind.defaultLevel = [](bool) -> Expected<std::string> {
    std::vector<std::string> names;
    for (const Architecture &architecture : kArchitectures)
      names.push_back(levelOf(architecture));
    return Status(fmt::format("--target cuda: cuda needs an architecture; write one of {} (H100 and H200: cuda:sm_90)",
                              fmt::join(names, ", ")),
                  kExitUsage);
  };
  kind.create = [](const std::string &name) -> std::unique_ptr<const Target> {
    for (const Architecture &architecture : kArchitectures)
      if (name == levelOf(architecture))
        return std::make_unique<CudaTarget>(name, architecture, CudaModel());
    return nullptr;
  };
  return kind;
}

} // namespace tcc::target::cuda
