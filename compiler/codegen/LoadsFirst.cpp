//===- LoadsFirst.cpp - hoist loads in a block ----------------------------===//
#include "compiler/codegen/BlockRewrites.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

namespace tcc::codegen {

namespace {

/// Most registers (words) for hoisted loads: more would reduce the number of resident warps.
constexpr unsigned kMostWords = 64;

/// With more loads than this, such as those of a column's rows, the card's assembler would move them back between the
/// additions to save registers.
constexpr size_t kMostUnheld = 8;

/// True for instructions that no load may move across: they write memory or involve other threads.
bool isFence(const llvm::Instruction &instruction) {
  if (auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
    return intrinsic->mayHaveSideEffects() || intrinsic->isConvergent();
  return llvm::isa<llvm::CallBase>(instruction) || instruction.mayWriteToMemory();
}

bool isRoot(const llvm::Instruction &instruction) {
  auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return intrinsic && intrinsic->getIntrinsicID() == llvm::Intrinsic::sqrt;
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

/// The letter of inline assembly for registers of a type; 0 for a type without one.
char registerOf(const llvm::Type *type) {
  if (type->isFloatTy())
    return 'f';
  if (type->isDoubleTy())
    return 'd';
  return type->isIntegerTy(16) ? 'h' : type->isIntegerTy(32) ? 'r' : type->isIntegerTy(64) ? 'l' : 0;
}

/// The type itself if it has a letter, else a vector of words of the same size; null if there is none.
llvm::Type *asRegisters(llvm::Type *type) {
  const auto bits = unsigned(type->getPrimitiveSizeInBits());
  if (registerOf(type))
    return type;
  return type->isVectorTy() && bits % 32 == 0
             ? llvm::FixedVectorType::get(llvm::Type::getInt32Ty(type->getContext()), bits / 32)
             : nullptr;
}

/// Ties loaded values together by an empty inline assembly, so that none is available before all are. Else the back end
/// would order loads by their uses, and the card's assembler emits a division as a branch, across which it moves no
/// load.
void holdTogether(llvm::ArrayRef<llvm::LoadInst *> loads) {
  llvm::SmallVector<llvm::Type *> types;
  llvm::SmallVector<llvm::Value *> values;
  std::string out, in;
  llvm::IRBuilder<> builder(loads.back()->getNextNode());
  auto hold = [&](llvm::Value *value) {
    out += std::string(values.empty() ? "" : ",") + "=" + registerOf(value->getType());
    in += "," + std::to_string(values.size());
    types.push_back(value->getType());
    values.push_back(value);
  };
  struct Held {
    llvm::LoadInst *load;
    llvm::SmallVector<llvm::Instruction *> own; ///< instructions that keep reading the load itself
    unsigned first = 0;
  };
  llvm::SmallVector<Held> all;
  for (llvm::LoadInst *load : loads) {
    llvm::Type *type = asRegisters(load->getType());
    if (!type)
      continue;
    Held held{load, {}, unsigned(values.size())};
    if (auto *words = llvm::dyn_cast<llvm::FixedVectorType>(type)) {
      llvm::Value *bits = builder.CreateBitCast(load, type);
      if (bits != load)
        held.own.push_back(llvm::cast<llvm::Instruction>(bits));
      for (unsigned i = 0; i < words->getNumElements(); ++i) {
        llvm::Value *word = builder.CreateExtractElement(bits, i);
        held.own.push_back(llvm::cast<llvm::Instruction>(word));
        hold(word);
      }
    } else {
      hold(load);
    }
    all.push_back(std::move(held));
  }
  if (values.size() < 2)
    return;
  auto *together = llvm::StructType::get(loads.front()->getContext(), types);
  auto *nothing =
      llvm::InlineAsm::get(llvm::FunctionType::get(together, types, false), "", out + in, /*hasSideEffects=*/true);
  llvm::CallInst *held = builder.CreateCall(nothing, values);
  for (const Held &one : all) {
    auto *words = llvm::dyn_cast<llvm::FixedVectorType>(asRegisters(one.load->getType()));
    llvm::Value *own = words ? llvm::Constant::getNullValue(words) : builder.CreateExtractValue(held, one.first);
    for (unsigned i = 0; words && i < words->getNumElements(); ++i)
      own = builder.CreateInsertElement(own, builder.CreateExtractValue(held, one.first + i), i);
    own = builder.CreateBitCast(own, one.load->getType());
    one.load->replaceUsesWithIf(own, [&](llvm::Use &use) {
      return use.getUser() != held && use.getUser() != own &&
             !llvm::is_contained(one.own, llvm::dyn_cast<llvm::Instruction>(use.getUser()));
    });
  }
}

/// Hoists the loads of [first, last), which has no fence.
void moveInStretch(llvm::BasicBlock::iterator first, llvm::BasicBlock::iterator last) {
  llvm::DenseMap<llvm::Instruction *, unsigned> stretch;
  llvm::SmallVector<llvm::LoadInst *> loads;
  unsigned number = 0;
  bool divides = false;
  for (llvm::Instruction &instruction : llvm::make_range(first, last)) {
    stretch[&instruction] = number++;
    divides |= instruction.getOpcode() == llvm::Instruction::FDiv || isRoot(instruction);
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
  // Keep the block's order, so that each instruction stays after its operands.
  llvm::sort(order, [&](llvm::Instruction *a, llvm::Instruction *b) { return stretch[a] < stretch[b]; });
  llvm::Instruction *front = &*first;
  for (llvm::Instruction *instruction : order) {
    if (instruction == front) {
      front = front->getNextNode();
      continue;
    }
    instruction->moveBefore(front->getIterator());
  }
  // A load that another hoisted address depends on cannot be tied.
  llvm::SmallVector<llvm::LoadInst *> held;
  for (llvm::Instruction *instruction : order)
    if (auto *load = llvm::dyn_cast<llvm::LoadInst>(instruction);
        load && llvm::none_of(load->users(),
                              [&](llvm::User *user) { return moved.lookup(llvm::dyn_cast<llvm::Instruction>(user)); }))
      held.push_back(load);
  if ((divides && held.size() > 1) || held.size() > kMostUnheld)
    holdTogether(held);
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
