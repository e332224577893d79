//===- ExactQuotients.cpp - divisions and roots without branches ----------===//
//
// The card's approximations of 1/b and 1/√x are refined by fused multiply-adds, as its assembler does for `.rn`
// (Markstein, IA-64 and Elementary Functions, chapters 7 and 8). Given y = 1/b correctly rounded and a quotient within
// two units in the last place, one step with an exact remainder gives a quotient within one unit, and a second step the
// correctly rounded one. That holds if nothing overflows and no remainder is rounded: if the quotient is a normal
// number and a ≥ 2^−100, or a = 0.
//
// The steps to y and to the root are those that NVIDIA's assembler emits for `rcp.rn` and `sqrt.rn` of all normal
// numbers; probes compare every mantissa.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/BlockRewrites.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

namespace tcc::codegen {

namespace {

bool isQuotient(const llvm::Instruction &instruction) {
  if (!instruction.getType()->isFloatTy())
    return false;
  auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return instruction.getOpcode() == llvm::Instruction::FDiv ||
         (intrinsic && intrinsic->getIntrinsicID() == llvm::Intrinsic::sqrt);
}

/// True for instructions that must not be duplicated: they have side effects or involve other threads.
bool endsStretch(const llvm::Instruction &instruction) {
  if (auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
    return intrinsic->mayHaveSideEffects() || intrinsic->isConvergent();
  return llvm::isa<llvm::CallBase>(instruction) || instruction.mayWriteToMemory() || instruction.isTerminator();
}

/// Most quotients computed before one branch: more would cost more registers than they save time.
constexpr size_t kMostTogether = 8;

/// Emits the steps for usual operands, and the test whether operands are usual.
class Steps {
public:
  explicit Steps(llvm::LLVMContext &context) : b(context) {}

  llvm::Value *of(llvm::Instruction *quotient) {
    b.SetInsertPoint(quotient);
    return quotient->getOpcode() == llvm::Instruction::FDiv ? divide(quotient->getOperand(0), quotient->getOperand(1))
                                                            : root(quotient->getOperand(0));
  }

  llvm::Value *usual = nullptr; ///< i1; null before the first of them

private:
  llvm::Constant *number(double value) { return llvm::ConstantFP::get(b.getFloatTy(), value); }
  llvm::Value *fma(llvm::Value *x, llvm::Value *y, llvm::Value *z) {
    return b.CreateIntrinsic(llvm::Intrinsic::fma, {b.getFloatTy()}, {x, y, z});
  }
  void require(llvm::Value *condition) { usual = usual ? b.CreateAnd(usual, condition) : condition; }
  llvm::Value *magnitude(llvm::Value *x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  /// False for NaN.
  llvm::Value *isWithin(llvm::Value *x, double least, double most) {
    return b.CreateAnd(b.CreateFCmpOGE(x, number(least)), b.CreateFCmpOLE(x, number(most)));
  }

  llvm::Value *reciprocalOf(llvm::Value *divisor, llvm::Value *minus) {
    llvm::Value *&known = reciprocals[divisor];
    return known ? known : known = newReciprocal(divisor, minus);
  }
  llvm::Value *newReciprocal(llvm::Value *divisor, llvm::Value *minus) {
    if (auto *known = llvm::dyn_cast<llvm::ConstantFP>(divisor); known && known->getValueAPF().isFiniteNonZero())
      return number(1 / known->getValueAPF().convertToFloat());
    llvm::Value *near = b.CreateIntrinsic(llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {}, {divisor});
    return fma(fma(minus, near, number(1)), near, near);
  }

  llvm::Value *divide(llvm::Value *dividend, llvm::Value *divisor) {
    llvm::Value *minus = b.CreateFNeg(divisor), *reciprocal = reciprocalOf(divisor, minus);
    auto *known = llvm::dyn_cast<llvm::ConstantFP>(dividend);
    if (known && known->isExactlyValue(1.0)) {
      require(isWithin(magnitude(reciprocal), 0x1p-125, 0x1p125));
      return reciprocal;
    }
    llvm::Value *quotient = b.CreateFMul(dividend, reciprocal);
    for (int step = 0; step < 2; ++step)
      quotient = fma(fma(minus, quotient, dividend), reciprocal, quotient);
    llvm::Value *ordinary = isWithin(magnitude(quotient), 0x1p-124, 0x1p126);
    if (!known || known->getValueAPF().isZero()) {
      ordinary = b.CreateAnd(ordinary, b.CreateFCmpOGE(magnitude(dividend), number(0x1p-100)));
      // For a dividend of +0 the steps give the right sign, for −0 they do not.
      llvm::Value *isZero = b.CreateICmpEQ(b.CreateBitCast(dividend, b.getInt32Ty()), b.getInt32(0));
      ordinary = b.CreateOr(ordinary, b.CreateAnd(isZero, b.CreateFCmpOEQ(quotient, number(0))));
    }
    require(ordinary);
    return quotient;
  }

  llvm::Value *root(llvm::Value *square) {
    llvm::Value *near = b.CreateIntrinsic(llvm::Intrinsic::nvvm_rsqrt_approx_ftz_f, {}, {square});
    llvm::Value *root = b.CreateFMul(square, near), *half = b.CreateFMul(near, number(0.5));
    root = fma(fma(b.CreateFNeg(root), root, square), half, root);
    llvm::Value *isZero = b.CreateFCmpOEQ(square, number(0));
    require(b.CreateOr(isZero, isWithin(square, 0x1p-100, 0x1p126)));
    return b.CreateSelect(isZero, square, root); // √±0 = ±0
  }

  llvm::IRBuilder<> b;
  llvm::DenseMap<llvm::Value *, llvm::Value *> reciprocals;
};

/// The instructions that depend on quotients of a stretch, in order.
struct Dependents {
  llvm::SmallVector<llvm::Instruction *> needed; ///< quotients, and instructions between them that later quotients need
  llvm::SmallVector<llvm::Instruction *> others;
};
Dependents dependentsIn(llvm::BasicBlock::iterator first, llvm::BasicBlock::iterator last) {
  llvm::SmallVector<llvm::Instruction *> all;
  llvm::DenseSet<llvm::Value *> found, leading;
  for (llvm::Instruction &instruction : llvm::make_range(first, last))
    if (isQuotient(instruction) ||
        llvm::any_of(instruction.operands(), [&](llvm::Use &use) { return found.contains(use.get()); })) {
      found.insert(&instruction);
      all.push_back(&instruction);
    }
  for (llvm::Instruction *instruction : llvm::reverse(all))
    if (isQuotient(*instruction) || leading.contains(instruction))
      leading.insert(instruction->op_begin(), instruction->op_end()), leading.insert(instruction);
  Dependents dependents;
  for (llvm::Instruction *instruction : all)
    (leading.contains(instruction) ? dependents.needed : dependents.others).push_back(instruction);
  return dependents;
}

/// Computes the quotients of [first, last) together. Returns the new block with the rest of the instructions.
llvm::BasicBlock *divideStretch(llvm::BasicBlock::iterator first, llvm::BasicBlock::iterator last) {
  llvm::BasicBlock *block = first->getParent();
  llvm::LLVMContext &context = block->getContext();
  const Dependents dependents = dependentsIn(first, last);
  llvm::BasicBlock *rest = block->splitBasicBlock(last, "divided");
  auto behind = rest->begin();
  for (llvm::Instruction *instruction : dependents.others)
    instruction->moveBefore(*rest, behind);
  auto *rare = llvm::BasicBlock::Create(context, "rare", block->getParent(), rest);
  llvm::ValueToValueMapTy copies;
  for (llvm::Instruction *instruction : dependents.needed) {
    llvm::Instruction *copy = instruction->clone();
    copy->insertInto(rare, rare->end());
    llvm::RemapInstruction(copy, copies, llvm::RF_NoModuleLevelChanges | llvm::RF_IgnoreMissingLocals);
    copies[instruction] = copy;
  }
  llvm::BranchInst::Create(rest, rare);
  Steps steps(context);
  for (llvm::Instruction *instruction : dependents.needed) {
    llvm::Value *usual = instruction;
    if (isQuotient(*instruction))
      usual = steps.of(instruction);
    auto isOutside = [&](llvm::Use &use) {
      auto *user = llvm::cast<llvm::Instruction>(use.getUser());
      return llvm::isa<llvm::PHINode>(user) || (user->getParent() != block && user->getParent() != rare);
    };
    if (llvm::any_of(instruction->uses(), isOutside)) {
      auto *either = llvm::PHINode::Create(instruction->getType(), 2, "", rest->begin());
      instruction->replaceUsesWithIf(either, isOutside);
      either->addIncoming(usual, block);
      either->addIncoming(copies[instruction], rare);
    }
    if (usual != instruction) {
      instruction->replaceAllUsesWith(usual);
      instruction->eraseFromParent();
    }
  }
  block->getTerminator()->eraseFromParent();
  llvm::MDNode *likely = llvm::MDBuilder(context).createLikelyBranchWeights();
  llvm::BranchInst::Create(rest, rare, steps.usual, block)->setMetadata(llvm::LLVMContext::MD_prof, likely);
  return rest;
}

} // namespace

void divideTogether(llvm::Module &module) {
  for (llvm::Function &function : module) {
    llvm::SmallVector<llvm::BasicBlock *> blocks;
    for (llvm::BasicBlock &block : function)
      blocks.push_back(&block);
    for (llvm::BasicBlock *block : blocks)
      for (auto first = block->getFirstNonPHIIt();;) {
        auto last = first;
        size_t quotients = 0;
        for (; !endsStretch(*last) && (!isQuotient(*last) || quotients < kMostTogether); ++last)
          quotients += isQuotient(*last);
        if (quotients > 1) {
          block = divideStretch(first, last);
          first = block->getFirstNonPHIIt();
        } else if (last->isTerminator()) {
          break;
        } else {
          first = std::next(last); // after the instruction that ends the stretch, or a single quotient
        }
      }
  }
}

} // namespace tcc::codegen
