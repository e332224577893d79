//===- RunCompiled.cpp - functions through generated kernels ----*- C++ -*-===//
//
// Ops become kernels; all are compiled into one shared object, loaded, and run over as many tiles as they have. Buffers
// lie between pages that cannot be touched, so that what a kernel reads or writes outside them is a fault.
//
//===----------------------------------------------------------------------===//
#include "test/support/RunCompiled.h"
#include "compiler/target/cpu/CpuCode.h"
#include "test/support/MachineLevel.h"

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

#include <algorithm>
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

/// Memory of one operand between two pages that cannot be touched.
class Buffer {
public:
  Buffer(size_t bytes, Placement placement) : bytes(bytes) {
    size_t inner = (bytes + 2 * kMargin + kPage - 1) / kPage * kPage;
    mapped = inner + 2 * kPage;
    base = static_cast<char *>(mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base, MAP_FAILED);
    first = base + kPage;
    last = first + inner;
    EXPECT_EQ(mprotect(first, inner, PROT_READ | PROT_WRITE), 0);
    std::memset(first, kCanary, inner);
    data = placement == Placement::AfterFence    ? first
           : placement == Placement::BeforeFence ? last - bytes
                                                 : first + kMargin;
  }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { munmap(base, mapped); }

  /// True if the bytes around the operand are as they were.
  bool isIntact() const {
    auto untouched = [](char byte) { return byte == kCanary; };
    return std::all_of(std::max(first, data - kMargin), data, untouched) &&
           std::all_of(data + bytes, std::min(last, data + bytes + kMargin), untouched);
  }

  char *data = nullptr;

private:
  static constexpr size_t kPage = 4096, kMargin = 256;
  static constexpr char kCanary = char(0xff); // a NaN in every type: read by mistake, it shows

  size_t bytes, mapped = 0;
  char *base = nullptr, *first = nullptr, *last = nullptr;
};

} // namespace

std::vector<std::string> testedLevels() { return {"cpu:v3", "cpu:v4"}; }

bool hasInstructionsOf(const std::string &level) {
  return runtime::runsLevel(runtime::cpuFeatures(), *runtime::levelFromName(level));
}

bool machineMultipliesPairs() { return runtime::runsLevel(runtime::cpuFeatures(), runtime::CpuLevel::V4Bf16); }

CompiledFunctions::CompiledFunctions(std::string target, Instructions instructions) {
  MLIRContext &context = testContext();
  context
      .loadDialect<arith::ArithDialect, math::MathDialect, vector::VectorDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(context);
  registerLLVMDialectTranslation(context);
  std::string level = target.empty() ? machineLevel() : target;
  target::CodeModel model = target::cpu::codeOf(*runtime::levelFromName(level));
  if (instructions == Instructions::Avx2 || !hasInstructionsOf(level)) {
    EXPECT_FALSE(model.multipliesPairs) << "AVX2 has nothing in place of dot products";
    target::CodeModel least = target::cpu::codeOf(runtime::CpuLevel::V3);
    model.processor = least.processor;
    model.features = least.features;
  }
  set = std::make_unique<codegen::KernelSet>(model);
}

CompiledFunctions::~CompiledFunctions() = default;

void CompiledFunctions::add(ModuleOp module) {
  auto function = *module.getOps<func::FuncOp>().begin();
  decomposeAll(function);
  llvm::SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    if (!isa<train::ConstantOp>(op))
      ops.push_back(&op);
  std::vector<Kernel> &list = kernels[module];
  for (Operation *op : ops) {
    auto fused = dyn_cast<train::FusedOp>(op);
    if (!fused)
      fused = wrap(op);
    codegen::KernelSet::Kernel kernel = set->add(fused);
    list.push_back({op, fused, kernel.symbol, kernel.work.tiles});
  }
}

bool CompiledFunctions::compile() {
  auto object = set->compile();
  EXPECT_TRUE(bool(object)) << (object ? "" : object.status().message());
  library = object && !object->empty() ? load(*object) : nullptr;
  return bool(object);
}

std::vector<HostTensor> CompiledFunctions::run(ModuleOp module, llvm::ArrayRef<HostTensor> arguments,
                                               Placement placement) {
  auto function = *module.getOps<func::FuncOp>().begin();
  llvm::DenseMap<Value, HostTensor> values;
  for (auto [argument, value] : llvm::zip_equal(function.getArguments(), arguments))
    values[argument] = value;
  for (auto op : function.getOps<train::ConstantOp>())
    values[op.getResult()] = HostTensor::fromAttribute(op.getValue());
  for (Kernel &kernel : kernels.at(module))
    if (!runKernel(kernel, values, placement))
      return {};
  std::vector<HostTensor> returned;
  for (Value value : function.getBody().front().getTerminator()->getOperands())
    returned.push_back(values.at(value));
  return returned;
}

bool CompiledFunctions::runKernel(Kernel &kernel, llvm::DenseMap<Value, HostTensor> &values, Placement placement) {
  auto run = library ? reinterpret_cast<plan::KernelFunction>(dlsym(library, kernel.symbol.c_str())) : nullptr;
  EXPECT_NE(run, nullptr) << kernel.symbol;
  if (!run)
    return false;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<void *> pointers;
  auto add = [&](size_t bytes) {
    buffers.push_back(std::make_unique<Buffer>(bytes, placement));
    pointers.push_back(buffers.back()->data);
  };
  for (Value input : kernel.fused.getInputs()) {
    add(values.at(input).sizeBytes());
    std::memcpy(pointers.back(), values.at(input).data(), values.at(input).sizeBytes());
  }
  llvm::SmallDenseMap<unsigned, unsigned> takesPlaceOf; // of results
  llvm::SmallDenseSet<unsigned> taken;
  if (int required = kernel.fused.getRequiredInPlaceOperand(); required >= 0)
    takesPlaceOf[0] = unsigned(required);
  else if (placement == Placement::InPlace)
    for (auto [operand, result] : kernel.fused.getInPlacePairs())
      if (!takesPlaceOf.contains(result) && taken.insert(operand).second)
        takesPlaceOf[result] = operand;
  std::vector<HostTensor> results;
  for (auto [index, type] : llvm::enumerate(kernel.op->getResultTypes())) {
    results.emplace_back(cast<RankedTensorType>(type));
    if (auto operand = takesPlaceOf.find(unsigned(index)); operand != takesPlaceOf.end())
      pointers.push_back(pointers[operand->second]);
    else
      add(results.back().sizeBytes());
  }
  // Scratch as a plan has it: aligned, and full of what other kernels left there.
  train::LoopKernel loops = kernel.fused.getLoopKernel();
  size_t scratchBytes = loops ? size_t(loops.getScratchBytes()) : 0;
  Buffer scratch(scratchBytes, Placement::Aligned);
  std::memset(scratch.data, 0xff, scratchBytes);
  // Tiles from the last to the first: their order must not matter.
  for (int64_t tile = kernel.tiles; tile-- > 0;)
    run(pointers.data(), tile, tile + 1, scratchBytes ? scratch.data : nullptr);
  EXPECT_TRUE(scratch.isIntact()) << "written outside the scratch";
  for (auto &buffer : buffers)
    EXPECT_TRUE(buffer->isIntact()) << "written outside an operand of " << kernel.op->getName().getStringRef().str();
  size_t next = kernel.fused.getInputs().size();
  for (auto [result, value] : llvm::zip_equal(kernel.op->getResults(), results)) {
    std::memcpy(value.data(), pointers[next++], value.sizeBytes());
    values[result] = std::move(value);
  }
  return true;
}

} // namespace tcc::test
