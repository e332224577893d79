//===- ElideStops.cpp - remove stop_gradient ops after differentiation ----===//
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_ELIDESTOPSPASS
#include "passes/Passes.h.inc"

namespace {

struct ElideStopsPass : impl::ElideStopsPassBase<ElideStopsPass> {
  void runOnOperation() override {
    getOperation().walk([](StopGradientOp stop) { eraseStop(stop); });
  }
};

} // namespace
} // namespace tcc::train
