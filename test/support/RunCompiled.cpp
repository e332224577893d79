//===- RunCompiled.cpp - functions through generated kernels ----*- C++ -*-===//
//
// Each op becomes a kernel of its own; all are compiled into one shared object for this machine, loaded, and run over as
// many tiles as they have.
//
//===----------------------------------------------------------------------===//
#include "test/support/RunCompiled.h"

#include "compiler/codegen/KernelSet.h"
#include "compiler/codegen/ObjectCode.h"
#include "runtime/plan/KernelAbi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using tcc::train::HostTensor;

namespace tcc::test {

namespace {

bool isSplat(Value value) {
  auto constant = value.getDefiningOp<train::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  return dense && dense.isSplat();
}

void decomposeAll(func::FuncOp function) {
  llvm::SmallVector<train::Decomposable> composites;
  function.walk([&](train::Decomposable op) { composites.push_back(op); });
  for (train::Decomposable op : composites) {
    OpBuilder builder(op);
    op->replaceAllUsesWith(op.decompose(builder));
    op->erase();
  }
}

/// A region of `op` alone, before it. Splat constants go inside, as fuse-kernels has it.
train::FusedOp wrap(Operation *op) {
  OpBuilder builder(op);
  llvm::SmallVector<Value> inputs;
  for (Value operand : op->getOperands())
    if (!isSplat(operand) || isa<train::LoopKernel>(op))
      if (!llvm::is_contained(inputs, operand))
        inputs.push_back(operand);
  auto fused = train::FusedOp::create(builder, op->getLoc(), op->getResultTypes(), inputs);
  Block &block = fused.getBody().empty() ? fused.getBody().emplaceBlock() : fused.getBody().front();
  block.clear();
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, block.addArgument(input.getType(), op->getLoc()));
  builder.setInsertionPointToStart(&block);
  for (Value operand : op->getOperands())
    if (!mapping.contains(operand))
      mapping.map(operand, builder.clone(*operand.getDefiningOp())->getResult(0));
  Operation *inside = builder.clone(*op, mapping);
  train::YieldOp::create(builder, op->getLoc(), inside->getResults());
  return fused;
}

/// A shared object loaded from memory; null with a failed expectation where the loader refuses it.
void *load(const std::string &object) {
  static int number = 0;
  int file = memfd_create(("kernels-" + std::to_string(number++)).c_str(), 0);
  EXPECT_EQ(write(file, object.data(), object.size()), ssize_t(object.size()));
  void *library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library; // the descriptor stays open: a reused number would name the first library again
}

struct Kernel {
  Operation *op;
  train::FusedOp fused;
  codegen::KernelSet::Kernel kernel;
};

} // namespace

std::vector<HostTensor> runCompiled(ModuleOp module, llvm::ArrayRef<HostTensor> arguments) {
  MLIRContext &context = *module.getContext();
  context.loadDialect<arith::ArithDialect, math::MathDialect, vector::VectorDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(context);
  registerLLVMDialectTranslation(context);
  auto function = *module.getOps<func::FuncOp>().begin();
  decomposeAll(function);
  auto level = codegen::machineLevel();
  EXPECT_TRUE(bool(level));
  codegen::KernelSet set(*level);
  std::vector<Kernel> kernels;
  llvm::SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    if (!isa<train::ConstantOp>(op))
      ops.push_back(&op);
  for (Operation *op : ops) {
    train::FusedOp fused = wrap(op);
    kernels.push_back({op, fused, set.add(fused)});
  }
  llvm::DenseMap<Value, HostTensor> values;
  for (auto [argument, value] : llvm::zip_equal(function.getArguments(), arguments))
    values[argument] = value;
  function.walk([&](train::ConstantOp op) { values[op.getResult()] = HostTensor::fromAttribute(op.getValue()); });

  auto object = set.compile();
  EXPECT_TRUE(bool(object)) << (object ? "" : object.status().message());
  void *library = object ? load(*object) : nullptr;
  if (!library)
    return {};
  for (Kernel &kernel : kernels) {
    std::vector<void *> pointers;
    std::vector<HostTensor> results;
    for (Value input : kernel.fused.getInputs())
      pointers.push_back(values.at(input).data());
    for (Type type : kernel.op->getResultTypes())
      results.emplace_back(cast<RankedTensorType>(type));
    if (int inPlace = kernel.fused.getRequiredInPlaceOperand(); inPlace >= 0) {
      results[0] = values.at(kernel.fused.getInputs()[inPlace]);
      pointers[inPlace] = results[0].data();
    }
    for (HostTensor &result : results)
      pointers.push_back(result.data());
    auto run = reinterpret_cast<plan::KernelFunction>(dlsym(library, kernel.kernel.symbol.c_str()));
    EXPECT_NE(run, nullptr) << kernel.kernel.symbol;
    if (!run)
      return {};
    // Scratch as a plan has it, aligned and full of what other kernels left there; a guard behind it.
    constexpr int64_t guard = 64;
    train::LoopKernel loops = kernel.fused.getLoopKernel();
    int64_t scratchBytes = loops ? loops.getScratchBytes() : 0;
    std::unique_ptr<char, decltype(&std::free)> scratch(
        static_cast<char *>(std::aligned_alloc(64, size_t(scratchBytes + guard))), &std::free);
    std::memset(scratch.get(), 0xff, size_t(scratchBytes + guard));
    // Tiles from the last to the first: their order must not matter.
    for (int64_t tile = kernel.kernel.tiles; tile-- > 0;)
      run(pointers.data(), tile, tile + 1, scratchBytes ? scratch.get() : nullptr);
    for (int64_t i = 0; i < guard; ++i)
      EXPECT_EQ(scratch.get()[scratchBytes + i], char(0xff)) << "written behind the scratch";
    for (auto [result, value] : llvm::zip_equal(kernel.op->getResults(), results))
      values[result] = std::move(value);
  }
  std::vector<HostTensor> returned;
  for (Value value : function.getBody().front().getTerminator()->getOperands())
    returned.push_back(values.at(value));
  return returned;
}

} // namespace tcc::test
