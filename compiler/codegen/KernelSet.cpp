//===- KernelSet.cpp ------------------------------------------------------===//
#include "compiler/codegen/KernelSet.h"

#include "compiler/codegen/KernelEmitter.h"
#include "compiler/codegen/ObjectCode.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AsmState.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace tcc::codegen {

namespace {

/// Kernels that share one LLVM module: enough to spread the fixed cost, few enough to compile in parallel.
constexpr size_t kKernelsPerModule = 6;

std::string textOf(train::FusedOp fused) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  // Types of the operands and the region; attributes of the op itself (offsets, order) are not part of the kernel.
  for (BlockArgument argument : fused.getBody().front().getArguments())
    stream << argument.getType() << ";";
  llvm::DenseMap<Value, unsigned> numbers;
  for (BlockArgument argument : fused.getBody().front().getArguments())
    numbers[argument] = numbers.size();
  for (Operation &op : fused.getBody().front()) {
    stream << op.getName() << op.getAttrDictionary() << "(";
    for (Value operand : op.getOperands())
      stream << numbers.lookup(operand) << ",";
    stream << ")" << op.getResultTypes() << "\n";
    for (Value result : op.getResults())
      numbers[result] = numbers.size();
  }
  return text;
}

} // namespace

KernelSet::Kernel KernelSet::add(train::FusedOp fused) {
  std::string text = textOf(fused);
  auto found = kernels.find(text);
  if (found == kernels.end()) {
    llvm::XXH128_hash_t hash =
        llvm::xxh3_128bits(llvm::ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
    std::string symbol;
    llvm::raw_string_ostream(symbol) << "k" << llvm::format_hex_no_prefix(hash.high64, 16)
                                     << llvm::format_hex_no_prefix(hash.low64, 16);
    found = kernels.emplace(text, Entry{fused, symbol, countTiles(fused, vectorLanes(target))}).first;
  }
  return {found->second.symbol, found->second.tiles};
}

plan::Expected<std::string> KernelSet::compile() {
  if (kernels.empty())
    return std::string();
  MLIRContext *context = kernels.begin()->second.fused->getContext();
  int64_t lanes = vectorLanes(target);
  OwningOpRef<ModuleOp> parent = ModuleOp::create(UnknownLoc::get(context));
  ModuleOp module;
  size_t count = 0;
  for (auto &[text, entry] : kernels) {
    if (count++ % kKernelsPerModule == 0) {
      OpBuilder builder = OpBuilder::atBlockEnd(parent->getBody());
      module = ModuleOp::create(builder, UnknownLoc::get(context));
    }
    if (failed(emitKernel(entry.fused, entry.symbol, module, lanes)))
      return plan::error("internal error: kernel generation failed (see above)");
  }
  plan::Expected<std::vector<std::string>> objects = compileToObjects(*parent, target);
  if (!objects)
    return objects.status();
  return linkShared(*objects);
}

} // namespace tcc::codegen
