//===- TinyTarget.cpp - a second target, in one folder --------------------===//
#include "test/tiny/target/TinyTarget.h"

#include "compiler/dialect/TrainDialect.h"

namespace tcc::test {

namespace {
class TinyTarget final : public target::Target {
public:
  TinyTarget() : Target("tiny:one") {
    rates.callFlopsPerNs = 3;
    rates.launchNs = 7;
    generated = {"x86-64-v3", "", 4, false};
  }

  const target::Capabilities &capabilities() const override { return able; }
  const target::CostModel &costs() const override { return rates; }
  const target::CodeModel &code() const override { return generated; }
  void addPasses(target::Stage, mlir::OpPassManager &, const target::Wishes &) const override {}

  std::optional<target::Call> call(mlir::Operation *op) const override {
    auto library = mlir::dyn_cast<train::LibraryCall>(op);
    if (!library)
      return std::nullopt;
    target::Call made;
    library.buildCall(made.instruction);
    if (!made.instruction.has_matmul())
      return std::nullopt;
    plan::MatmulCall &call = *made.instruction.mutable_matmul();
    if (call.dtype() != plan::F32)
      return std::nullopt;
    call.set_tile_batch(1);
    call.set_tile_m(call.m());
    call.set_tile_n(call.n());
    call.set_chunk_k(call.k());
    call.set_block_k(call.k());
    call.set_numerics(kTinyNumerics);
    made.scratchSlotBytes = 640;
    made.scratchSlots = static_cast<uint64_t>(call.batch());
    return made;
  }

private:
  target::Capabilities able;
  target::CostModel rates;
  target::CodeModel generated;
};
} // namespace

target::TargetKind tinyKind() {
  target::TargetKind kind;
  kind.name = "tiny";
  kind.levels = {"tiny:one"};
  kind.defaultLevel = [](bool) -> Expected<std::string> { return std::string("tiny:one"); };
  kind.create = [](const std::string &) -> std::unique_ptr<const target::Target> {
    return std::make_unique<TinyTarget>();
  };
  return kind;
}

} // namespace tcc::test
