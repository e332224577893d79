//===- KernelSignature.cpp - derive the memory that a kernel may touch ----===//
#include "compiler/codegen/KernelSignature.h"

using namespace mlir;

namespace tcc::codegen {

plan::KernelSignature signatureOf(train::FusedOp fused, StringRef symbol, const KernelWork &work) {
  plan::KernelSignature signature;
  signature.set_symbol(symbol.str());
  signature.set_tiles(work.tiles);
  signature.set_tile_threads(work.tileThreads);
  auto elementBytes = [](Type type) {
    return uint32_t(train::elementBytes(cast<RankedTensorType>(type).getElementType()));
  };
  auto add = [&](Type type) -> plan::KernelSignature::Operand & {
    plan::KernelSignature::Operand &operand = *signature.add_operands();
    operand.set_bytes(uint64_t(train::tensorBytes(type)));
    operand.set_alignment(work.gridThreads ? uint32_t(target::kAccessBytes) : elementBytes(type));
    return operand;
  };
  std::optional<int64_t> tileElements = fused.getTileElements();
  for (auto [number, input] : llvm::enumerate(fused.getInputs())) {
    plan::KernelSignature::Operand &operand = add(input.getType());
    operand.set_read(true);
    if (tileElements && fused.readsByTiles(unsigned(number)))
      operand.set_tile_bytes(uint64_t(work.groupElements ? work.groupElements : *tileElements) *
                             elementBytes(input.getType()));
  }
  for (Value result : fused.getResults())
    add(result.getType()).set_write(true);
  if (train::LoopKernel loops = fused.getLoopKernel(); loops && work.tileThreads <= 1) // warps share tiles without scratch
    signature.set_scratch_bytes(uint64_t(loops.getScratchBytes()));
  int required = fused.getRequiredInPlaceOperand();
  for (auto [operand, result] : fused.getInPlacePairs()) {
    plan::KernelSignature::Pair &pair = *signature.add_in_place();
    pair.set_source(operand);
    pair.set_destination(uint32_t(fused.getInputs().size()) + result);
    pair.set_required(int(operand) == required);
  }
  return signature;
}

plan::KernelSignature signatureOf(ArrayRef<train::FusedOp> members, StringRef symbol, const KernelWork &work) {
  plan::KernelSignature all;
  all.set_symbol(symbol.str());
  all.set_tiles(work.tiles);
  all.set_tile_threads(work.tileThreads);
  for (train::FusedOp member : members) {
    const plan::KernelSignature part = signatureOf(member, symbol, work);
    const auto first = uint32_t(all.operands_size());
    all.mutable_operands()->MergeFrom(part.operands());
    for (plan::KernelSignature::Pair pair : part.in_place()) {
      pair.set_source(first + pair.source());
      pair.set_destination(first + pair.destination());
      *all.add_in_place() = pair;
    }
  }
  return all;
}

} // namespace tcc::codegen
