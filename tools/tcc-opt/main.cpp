//===- main.cpp - tcc-opt: run passes on textual IR -------------------------===//
//
// MlirOptMain with the train dialect and every pass of the compiler: for tests, and to try one pass by hand.
//
//===----------------------------------------------------------------------===//
#include "compiler/kernels/Kernels.h"
#include "compiler/target/registry/Targets.h"
#include "passes/Lowering.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<tcc::train::TrainDialect, mlir::func::FuncDialect, mlir::arith::ArithDialect>();
  tcc::train::registerKernels(registry);
  tcc::train::registerTccPasses();
  tcc::train::registerTccLoweringPasses();
  tcc::target::registerTargets();
  mlir::registerTransformsPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "tcc-opt: passes of the training compiler\n", registry));
}
