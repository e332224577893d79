//===- FunctionKernels.cpp - the ops of functions as kernels ---*- C++ -*-===//
#include "test/support/FunctionKernels.h"

#include "compiler/dialect/Loop.h"

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

/// Inserts before `op` a region that contains a copy of it alone. Splat constants go inside, as in fuse-kernels.
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

/// Makes a region of each op in a loop's body; fuse-kernels would put several into one region.
void wrapBody(train::LoopOp loop) {
  for (Operation &op : llvm::make_early_inc_range(loop.getBlock().without_terminator())) {
    if (op.hasTrait<train::View>() || isa<train::FusedOp>(op) || (isa<train::ConstantOp>(op) && op.use_empty()))
      continue;
    op.replaceAllUsesWith(wrap(&op).getResults());
    op.erase();
  }
}

} // namespace

FunctionKernels::FunctionKernels(const target::CodeModel &model) {
  MLIRContext &context = testContext();
  context
      .loadDialect<arith::ArithDialect, math::MathDialect, vector::VectorDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(context);
  registerLLVMDialectTranslation(context);
  set = std::make_unique<codegen::KernelSet>(model);
}

FunctionKernels::~FunctionKernels() = default;

void FunctionKernels::add(ModuleOp module) {
  auto function = *module.getOps<func::FuncOp>().begin();
  decomposeAll(function);
  llvm::SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    if (!isa<train::ConstantOp>(op))
      ops.push_back(&op);
  std::vector<Kernel> &list = kernels[module];
  for (Operation *op : ops) {
    if (auto joined = dyn_cast<train::JoinedOp>(op)) {
      codegen::KernelSet::Kernel kernel = set->add(joined);
      list.push_back({op, op, kernel.symbol, kernel.work});
      continue;
    }
    if (auto loop = dyn_cast<train::LoopOp>(op))
      wrapBody(loop);
    auto fused = dyn_cast<train::FusedOp>(op);
    if (!fused)
      fused = wrap(op);
    codegen::KernelSet::Kernel kernel = set->add(fused);
    list.push_back({op, fused, kernel.symbol, kernel.work});
  }
}

bool FunctionKernels::compile() {
  auto code = set->compile();
  EXPECT_TRUE(bool(code)) << (code ? "" : code.status().message());
  if (code)
    compiledBytes = code->size();
  return code && (code->empty() || load(code.take()));
}

std::vector<HostTensor> FunctionKernels::run(ModuleOp module, llvm::ArrayRef<HostTensor> arguments,
                                             Placement placement) {
  auto function = *module.getOps<func::FuncOp>().begin();
  llvm::DenseMap<Value, HostTensor> values;
  for (auto [argument, value] : llvm::zip_equal(function.getArguments(), arguments))
    values[argument] = value;
  for (auto op : function.getOps<train::ConstantOp>())
    values[op.getResult()] = HostTensor::fromAttribute(op.getValue());
  for (Kernel &kernel : kernels.at(module)) {
    llvm::SmallVector<const HostTensor *> inputs;
    for (Value input : kernel.region->getOperands())
      inputs.push_back(&values.at(input));
    std::vector<HostTensor> results;
    for (Type type : kernel.op->getResultTypes())
      results.emplace_back(cast<RankedTensorType>(type));
    if (!runKernel(kernel, inputs, results, placement))
      return {};
    for (auto [result, value] : llvm::zip_equal(kernel.op->getResults(), results))
      values[result] = std::move(value);
  }
  std::vector<HostTensor> returned;
  for (Value value : function.getBody().front().getTerminator()->getOperands())
    returned.push_back(values.at(value));
  return returned;
}

llvm::SmallDenseMap<unsigned, unsigned> FunctionKernels::sharedPlaces(Kernel &kernel, Placement placement) {
  llvm::SmallDenseMap<unsigned, unsigned> places;
  llvm::SmallDenseSet<unsigned> taken;
  train::FusedOp fused = kernel.fused();
  if (int required = fused ? fused.getRequiredInPlaceOperand() : -1; required >= 0)
    places[0] = unsigned(required);
  else if (placement == Placement::InPlace)
    for (auto [operand, result] :
         fused ? fused.getInPlacePairs() : cast<train::JoinedOp>(kernel.region).getInPlacePairs())
      if (!places.contains(result) && taken.insert(operand).second)
        places[result] = operand;
  return places;
}

} // namespace tcc::test
