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
    llvm::MapVector<Type, std::vector<Bucket>> byType;
    llvm::DenseMap<Type, int64_t> lastBytes;
    int64_t bytes = 0, sums = 0, buckets = 0;
    for (auto op : function.getBody().front().getOps<AllReduceOp>()) {
      if (op.getInputs().size() != 1)
        continue;
      Type element = elementTypeOf(op.getInputs()[0]);
      const int64_t own = tensorBytes(op.getInputs()[0].getType());
      std::vector<Bucket> &list = byType[element];
      if (list.empty() || lastBytes[element] + own > bucketBytes) {
        list.emplace_back();
        lastBytes[element] = 0;
        ++buckets;
      }
      list.back().push_back(op);
      lastBytes[element] += own;
      bytes += own;
      ++sums;
    }
    for (auto &[element, list] : byType)
      for (const Bucket &bucket : list)
        join(bucket);
    if (sums)
      addNote(getOperation(), "parallel", function->getAttrOfType<StringAttr>(names::kEntry).getValue(),
              llvm::Twine("ranks sum " + std::to_string(sums) + " tensors, " + bytesText(uint64_t(bytes)) + ", in " +
                          std::to_string(buckets) + (buckets == 1 ? " bucket" : " buckets"))
                  .str());
  }

  static void join(const Bucket &bucket) {
    if (bucket.size() == 1)
      return;
    llvm::SmallVector<Value> inputs;
    llvm::SmallVector<Location> locations;
    for (AllReduceOp op : bucket) {
      inputs.push_back(op.getInputs()[0]);
      locations.push_back(op.getLoc());
    }
    OpBuilder builder(bucket.back());
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
