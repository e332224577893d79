//===- EmulatedFunctions.cpp - generated kernels on the machine -----------===//
#include "test/emulation/kernels/EmulatedFunctions.h"

#include "compiler/target/cuda/CudaModel.h"
#include "runtime/plan/KernelAbi.h"
#include "test/emulation/kernels/KernelRecord.h"

#include <gtest/gtest.h>

#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace mlir;
using tcc::train::HostTensor;

namespace tcc::test {

static target::CodeModel modelOf(const std::string &name) {
  for (const target::cuda::Architecture &architecture : target::cuda::kArchitectures)
    if (architecture.name == name)
      return codeOf(architecture, target::cuda::CudaModel());
  ADD_FAILURE() << "no architecture " << name;
  return {};
}

/// "f32", as a plan's types are called.
static std::string elementName(const HostTensor &tensor) {
  std::string name;
  llvm::raw_string_ostream(name) << tensor.type().getElementType();
  if (name.starts_with("ui"))
    name.erase(1, 1);
  return name;
}

EmulatedFunctions::EmulatedFunctions(emulation::MachineOptions options, const std::string &architecture)
    : FunctionKernels(modelOf(architecture)), machine(options) {}

bool EmulatedFunctions::load(std::string text) {
  code = std::move(text);
  if (rewrite)
    rewrite(code);
  auto loaded = emulation::Program::load(code, machine.options.checked, machine.memory());
  EXPECT_TRUE(bool(loaded)) << loaded.message();
  if (loaded)
    program = loaded.take();
  return bool(loaded);
}

bool EmulatedFunctions::runKernel(Kernel &kernel, llvm::ArrayRef<const HostTensor *> inputs,
                                  std::vector<HostTensor> &results, Placement placement) {
  auto compiled = program->compile(kernel.symbol);
  EXPECT_TRUE(compiled && *compiled) << kernel.symbol << ": " << compiled.message();
  if (!compiled || !*compiled)
    return false;
  emulation::Memory &memory = machine.memory();
  std::vector<std::byte *> owned;
  std::vector<uint64_t> pointers; // of inputs, then of results
  auto add = [&](size_t bytes, const std::string &name, bool written) {
    owned.push_back(memory.allocate(std::max<size_t>(bytes, 1), emulation::Home::Device, name, written).base);
    return owned.back();
  };
  auto release = [&] {
    for (std::byte *base : owned)
      memory.release(base);
  };
  for (auto [number, input] : llvm::enumerate(inputs)) {
    std::byte *base = add(input->sizeBytes(), "operand " + std::to_string(number), true);
    std::memcpy(base, input->data(), input->sizeBytes());
    pointers.push_back(reinterpret_cast<uint64_t>(base));
  }
  llvm::SmallDenseMap<unsigned, unsigned> places = sharedPlaces(kernel, placement);
  for (unsigned index = 0; index < results.size(); ++index)
    if (auto operand = places.find(index); operand != places.end())
      pointers.push_back(pointers[operand->second]);
    else
      pointers.push_back(reinterpret_cast<uint64_t>(
          add(results[index].sizeBytes(), "result " + std::to_string(index), false)));
  const codegen::KernelWork &work = kernel.work;
  train::LoopKernel loops = kernel.fused() ? kernel.fused().getLoopKernel() : train::LoopKernel();
  const uint64_t slot = loops && work.tileThreads == 1 ? uint64_t(loops.getScratchBytes()) : 0;
  std::vector<uint64_t> parameters = pointers;
  if (auto joined = dyn_cast<train::JoinedOp>(kernel.region)) {
    // For each kernel in turn its operands, then its results (JoinedKernels.h).
    parameters.clear();
    auto read = pointers.begin(), write = pointers.begin() + long(inputs.size());
    for (train::FusedOp member : joined.getMembers()) {
      parameters.insert(parameters.end(), read, read + member->getNumOperands());
      parameters.insert(parameters.end(), write, write + member->getNumResults());
      read += member->getNumOperands();
      write += member->getNumResults();
    }
  }
  if (tamper)
    tamper(parameters);
  parameters.push_back(uint64_t(work.tiles));
  // A plan reuses scratch, so that a kernel finds values of earlier kernels in it. Here it finds NaN.
  parameters.push_back(
      slot ? reinterpret_cast<uint64_t>(add(slot * work.gridBlocks * work.gridThreads, "scratch", true)) : 0);
  emulation::Launch launch;
  launch.grid = {work.gridBlocks};
  launch.block = {work.gridThreads};
  launch.parameters = std::as_bytes(std::span(parameters));
  std::optional<emulation::Fault> fault = machine.refuse(**compiled, launch);
  if (!fault)
    fault = machine.launch(**compiled, launch);
  // Reading the results reports bytes that the kernel did not write.
  constexpr uint32_t kReader = 2;
  for (unsigned index = 0; !fault && index < results.size(); ++index) {
    auto *base = reinterpret_cast<std::byte *>(pointers[inputs.size() + index]);
    memory.forgetAccesses();
    if (machine.options.checked && results[index].sizeBytes())
      fault = memory.touchByWork(base, results[index].sizeBytes(), emulation::kRead, kReader,
                                 "reading the result");
    std::memcpy(results[index].data(), base, results[index].sizeBytes());
  }
  found = fault;
  EXPECT_TRUE(!fault || tamper) << kernel.op->getName().getStringRef().str() << ": " << (fault ? fault->message() : "");
  release();
  if (KernelRecord *record = recorded.empty() || fault ? nullptr : KernelRecord::wanted()) {
    std::vector<RecordedOperand> operands;
    auto addTo = [&](const HostTensor &tensor, bool result) {
      operands.push_back(
          {elementName(tensor), {reinterpret_cast<const std::byte *>(tensor.data()), tensor.sizeBytes()}, result});
    };
    for (const HostTensor *input : inputs)
      addTo(*input, false);
    for (auto [index, result] : llvm::enumerate(results)) {
      addTo(result, true);
      if (auto operand = places.find(unsigned(index)); operand != places.end())
        operands.back().shares = operand->second;
      if (auto attention = llvm::dyn_cast<train::AttentionOp>(kernel.op);
          attention && kernel.op->getResult(unsigned(index)) == attention.getLogsumexpRest())
        operands.back().restOf = unsigned(operands.size() - 2);
    }
    record->add(recorded, code, kernel.symbol, work.gridBlocks, work.gridThreads, uint64_t(work.tiles),
                slot * work.gridBlocks * work.gridThreads, operands);
  }
  return !fault;
}

} // namespace tcc::test
