//===- LoadsFirst.cpp - loads in flight together --------------------------===//
#include "compiler/codegen/LoadsFirst.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

namespace tcc::codegen {

namespace {

/// Words of registers that loads may hold at a time: more of them would cost warps.
constexpr unsigned kMostWords = 64;

/// Nothing moves across it: it writes, or other threads take part.
bool isFence(const llvm::Instruction &instruction) {
  if (auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
    return intrinsic->mayHaveSideEffects() || intrinsic->isConvergent();
  return llvm::isa<llvm::CallBase>(instruction) || instruction.mayWriteToMemory();
}

unsigned wordsOf(const llvm::Type *type) { return std::max(1u, unsigned((type->getPrimitiveSizeInBits() + 31) / 32)); }

/// Collects `instruction` and its operands inside the stretch, operands first. False: one of them is no address
/// arithmetic.
bool collect(llvm::Instruction *instruction, const llvm::DenseMap<llvm::Instruction *, unsigned> &stretch,
             llvm::DenseMap<llvm::Instruction *, bool> &moved, llvm::SmallVectorImpl<llvm::Instruction *> &order) {
  if (!stretch.contains(instruction) || moved.lookup(instruction))
    return true;
  const bool address =
      llvm::isa<llvm::GetElementPtrInst, llvm::CastInst, llvm::SelectInst, llvm::ICmpInst>(instruction) ||
      (llvm::isa<llvm::BinaryOperator>(instruction) && instruction->getType()->isIntegerTy());
  if (!address && !llvm::isa<llvm::LoadInst>(instruction))
    return false;
  for (llvm::Value *operand : instruction->operands())
    if (auto *needed = llvm::dyn_cast<llvm::Instruction>(operand))
      if (needed->getParent() == instruction->getParent() && !collect(needed, stretch, moved, order))
        return false;
  if (!moved.lookup(instruction)) {
    moved[instruction] = true;
    order.push_back(instruction);
  }
  return true;
}

/// [first, last) has no fence.
void moveInStretch(llvm::BasicBlock::iterator first, llvm::BasicBlock::iterator last) {
  llvm::DenseMap<llvm::Instruction *, unsigned> stretch;
  llvm::SmallVector<llvm::LoadInst *> loads;
  unsigned number = 0;
  for (llvm::Instruction &instruction : llvm::make_range(first, last)) {
    stretch[&instruction] = number++;
    if (auto *load = llvm::dyn_cast<llvm::LoadInst>(&instruction); load && load->isSimple())
      loads.push_back(load);
  }
  if (loads.size() < 2)
    return;
  llvm::DenseMap<llvm::Instruction *, bool> moved;
  llvm::SmallVector<llvm::Instruction *> order;
  unsigned words = 0;
  for (llvm::LoadInst *load : loads) {
    if ((words += wordsOf(load->getType())) > kMostWords)
      break;
    llvm::SmallVector<llvm::Instruction *> needed;
    llvm::DenseMap<llvm::Instruction *, bool> before = moved;
    if (collect(load, stretch, moved, needed))
      order.append(needed);
    else
      moved = std::move(before);
  }
  // Order follows the block's, so that each stays behind its operands.
  llvm::sort(order, [&](llvm::Instruction *a, llvm::Instruction *b) { return stretch[a] < stretch[b]; });
  llvm::Instruction *front = &*first;
  for (llvm::Instruction *instruction : order) {
    if (instruction == front) {
      front = front->getNextNode();
      continue;
    }
    instruction->moveBefore(front->getIterator());
  }
}

} // namespace

void moveLoadsFirst(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::BasicBlock &block : function) {
      auto first = block.getFirstNonPHIIt();
      while (first != block.end() && !first->isTerminator()) {
        if (isFence(*first)) {
          ++first;
          continue;
        }
        auto last = first;
        while (!last->isTerminator() && !isFence(*last))
          ++last;
        auto next = last;
        moveInStretch(first, last);
        first = next;
      }
    }
}

} // namespace tcc::codegen
