//===- Distribute.cpp - sum gradients over the ranks in buckets ------------===//
//
// Buckets hold what is complete at about the same time (Li et al., "PyTorch Distributed: Experiences on Accelerating
// Data Parallel Training", VLDB 2020). PyTorch guesses that order from the order of the parameters; here the program
// has it.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "support/BytesText.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_DISTRIBUTEPASS
#include "passes/Passes.h.inc"

namespace {

struct DistributePass : impl::DistributePassBase<DistributePass> {
  using DistributePassBase::DistributePassBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(names::kEntry))
        joinSums(function);
  }

private:
  using Bucket = llvm::SmallVector<AllReduceOp>;

  void joinSums(func::FuncOp function) {
    // A sum stands behind its operand, so that the order of the sums is that in which operands are complete.
    llvm::MapVector<Type, Bucket> byType;
    for (auto op : function.getBody().front().getOps<AllReduceOp>())
      if (op.getInputs().size() == 1)
        byType[elementTypeOf(op.getInputs()[0])].push_back(op);
    int64_t bytes = 0, sums = 0, buckets = 0;
    for (auto &[element, all] : byType) {
      Bucket bucket;
      int64_t bucketed = 0;
      auto close = [&] {
        join(bucket);
        buckets += !bucket.empty();
        bucket.clear();
        bucketed = 0;
      };
      for (AllReduceOp op : all) {
        const int64_t own = tensorBytes(op.getInputs()[0].getType());
        if (!bucket.empty() && (bucketed + own > bucketBytes || needsOne(op, bucket)))
          close();
        bucket.push_back(op);
        bucketed += own;
        bytes += own;
        ++sums;
      }
      close();
    }
    if (sums)
      addNote(getOperation(), "parallel", function->getAttrOfType<StringAttr>(names::kEntry).getValue(),
              llvm::Twine("ranks sum " + std::to_string(sums) + " tensors, " + bytesText(uint64_t(bytes)) + ", in " +
                          std::to_string(buckets) + (buckets == 1 ? " bucket" : " buckets"))
                  .str());
  }

  /// True if what `op` sums is made of a sum of the bucket, or, once other buckets were joined, the other way round.
  static bool needsOne(AllReduceOp op, const Bucket &bucket) {
    llvm::SmallPtrSet<Operation *, 16> members;
    for (AllReduceOp member : bucket)
      members.insert(member);
    auto reaches = [](Operation *from, const llvm::SmallPtrSetImpl<Operation *> &wanted) {
      llvm::SmallPtrSet<Operation *, 32> seen{from};
      llvm::SmallVector<Operation *> work{from};
      while (!work.empty())
        for (Value operand : work.pop_back_val()->getOperands())
          if (Operation *producer = operand.getDefiningOp(); producer && seen.insert(producer).second) {
            if (wanted.contains(producer))
              return true;
            work.push_back(producer);
          }
      return false;
    };
    if (reaches(op, members))
      return true;
    llvm::SmallPtrSet<Operation *, 16> own{op.getOperation()};
    return llvm::any_of(bucket, [&](AllReduceOp member) { return reaches(member, own); });
  }

  static void join(const Bucket &bucket) {
    if (bucket.size() < 2)
      return;
    llvm::SmallVector<Value> inputs;
    llvm::SmallVector<Location> locations;
    for (AllReduceOp op : bucket) {
      inputs.push_back(op.getInputs()[0]);
      locations.push_back(op.getLoc());
    }
    // Behind the last one as they stand now: joining other buckets may have moved them.
    OpBuilder builder(*std::max_element(bucket.begin(), bucket.end(),
                                        [](AllReduceOp a, AllReduceOp b) { return a->isBeforeInBlock(b); }));
    auto joined = AllReduceOp::create(builder, builder.getFusedLoc(locations), TypeRange(ValueRange(inputs)), inputs);
    for (auto [op, result] : llvm::zip_equal(bucket, joined->getResults())) {
      // Readers of an earlier sum that stand before the bucket move behind it.
      op->getResult(0).replaceAllUsesWith(result);
      op->erase();
    }
    moveReadersBehind(joined);
  }

  /// Moves ops that read the bucket's results, and stand before it, behind it, in their order.
  static void moveReadersBehind(AllReduceOp bucket) {
    llvm::SmallPtrSet<Operation *, 16> late;
    llvm::SmallVector<Operation *> early;
    for (Operation &op : llvm::make_range(bucket->getBlock()->begin(), bucket->getIterator())) {
      bool reads = llvm::any_of(op.getOperands(), [&](Value operand) {
        Operation *producer = operand.getDefiningOp();
        return producer && (producer == bucket.getOperation() || late.contains(producer));
      });
      if (reads) {
        late.insert(&op);
        early.push_back(&op);
      }
    }
    Operation *after = bucket;
    for (Operation *op : early) {
      op->moveAfter(after);
      after = op;
    }
  }
};

} // namespace
} // namespace tcc::train
