//===- Distribute.cpp - sum gradients over the ranks in buckets ------------===//
//
// A bucket holds gradients that are complete at about the same time (Li et al., "PyTorch Distributed: Experiences on
// Accelerating Data Parallel Training", VLDB 2020). PyTorch guesses that order from the order of the parameters; here
// it is the order of the program.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Views.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "support/BytesText.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_DISTRIBUTEPASS
#include "passes/Passes.h.inc"

namespace {

struct DistributePass : impl::DistributePassBase<DistributePass> {
  using DistributePassBase::DistributePassBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(names::kEntry)) {
        gatherNearUses(function);
        joinSums(function);
      }
  }

private:
  using Bucket = llvm::SmallVector<Operation *>;

  /// Gathers a sharded parameter just before its first reader, and again before a later one if the parameters read in
  /// between have more bytes than a bucket. Each gather gives the same value.
  void gatherNearUses(func::FuncOp function) {
    llvm::SmallVector<AllGatherOp> gathers;
    llvm::DenseMap<Operation *, int64_t> position;
    for (auto [at, op] : llvm::enumerate(function.getBody().front())) {
      position[&op] = int64_t(at);
      if (auto gather = dyn_cast<AllGatherOp>(op); gather && isa<BlockArgument>(gather.getInputs()[0]))
        gathers.push_back(gather);
    }
    llvm::SmallVector<std::pair<int64_t, int64_t>> reads; // by position: bytes of parameters that are read there
    llvm::DenseMap<Operation *, llvm::SmallVector<Operation *>> readers;
    for (AllGatherOp gather : gathers) {
      llvm::SmallVector<Operation *> &list = readers[gather];
      findReaders(gather->getResult(0), list);
      llvm::sort(list, [&](Operation *a, Operation *b) { return position[a] < position[b]; });
      list.erase(llvm::unique(list), list.end());
      for (Operation *reader : list)
        reads.push_back({position[reader], tensorBytes(gather->getResult(0).getType())});
    }
    llvm::sort(reads);
    for (AllGatherOp gather : gathers) {
      const int64_t own = tensorBytes(gather->getResult(0).getType());
      llvm::SmallVector<llvm::SmallVector<Operation *>> groups;
      for (Operation *reader : readers[gather]) {
        int64_t between = 0;
        if (!groups.empty())
          for (auto [at, bytes] : reads)
            if (at > position[groups.back().back()] && at < position[reader])
              between += bytes;
        if (groups.empty() || between > std::max<int64_t>(bucketBytes, own))
          groups.emplace_back();
        groups.back().push_back(reader);
      }
      for (auto [number, group] : llvm::enumerate(groups))
        gatherFor(gather, group, unsigned(number));
    }
    if (!gathers.empty())
      eraseDeadOps(function);
  }

  /// True for views and narrowing casts of a parameter, which do not count as readers: layers that share a cast are far
  /// from one another.
  static bool isForm(Operation *op) {
    auto cast = dyn_cast<CastOp>(op);
    return isView(op) ||
           (cast && elementBytes(elementTypeOf(cast.getResult())) < elementBytes(elementTypeOf(cast.getInput())));
  }

  static void findReaders(Value value, llvm::SmallVectorImpl<Operation *> &readers) {
    for (Operation *user : value.getUsers())
      if (isForm(user))
        findReaders(user->getResult(0), readers);
      else
        readers.push_back(user);
  }

  /// The narrower type of a form of the parameter; null for the parameter's own type; nullopt if `value` is no form of
  /// it.
  static std::optional<Type> typeOfForm(Value value, Value parameter) {
    if (value == parameter)
      return Type();
    Operation *op = value.getDefiningOp();
    if (!op || !isForm(op))
      return std::nullopt;
    std::optional<Type> type = typeOfForm(op->getOperand(0), parameter);
    return type && isa<CastOp>(op) ? std::optional(elementTypeOf(value)) : type;
  }

  /// Gives some readers a gather of their own. If they all want the parameter in one narrower type, that is gathered.
  static void gatherFor(AllGatherOp gather, llvm::ArrayRef<Operation *> readers, unsigned number) {
    const Value parameter = gather->getResult(0);
    llvm::SetVector<Type> types;
    for (Operation *reader : readers)
      for (Value operand : reader->getOperands())
        if (auto type = typeOfForm(operand, parameter))
          types.insert(*type);
    const Type narrow = types.size() == 1 ? types[0] : Type();
    OpBuilder builder(readers.front());
    Value shard = gather.getInputs()[0];
    if (narrow)
      shard = train::cast(builder, gather.getLoc(), shard, narrow);
    auto type = RankedTensorType::get(tensorTypeOf(parameter).getShape(), elementTypeOf(shard));
    auto made =
        AllGatherOp::create(builder, gather.getLoc(), TypeRange(type), ValueRange(shard), gather.getRanksAttr());
    // CSE would merge equal gathers.
    made->setAttr(names::kGather, builder.getI64IntegerAttr(number));
    for (Operation *reader : readers) {
      builder.setInsertionPoint(reader);
      for (OpOperand &operand : reader->getOpOperands())
        if (typeOfForm(operand.get(), parameter))
          operand.set(formOf(builder, operand.get(), parameter, made->getResult(0)));
    }
  }

  /// Rebuilds a form (views and casts) on another gather's result, which may have the form's narrower type already.
  static Value formOf(OpBuilder &builder, Value form, Value parameter, Value gathered) {
    if (form == parameter)
      return gathered;
    Operation *op = form.getDefiningOp();
    Value source = formOf(builder, op->getOperand(0), parameter, gathered);
    if (isa<CastOp>(op))
      return train::cast(builder, op->getLoc(), source, elementTypeOf(form));
    return train::reshape(builder, op->getLoc(), source, tensorTypeOf(form).getShape());
  }

  /// True for collectives that may join a bucket: those that send. `own_shard` is only a copy.
  static bool isJoined(Operation &op) {
    return isa<AllReduceOp, ReduceScatterOp, AllGatherOp>(op) && op.getNumOperands() == 1;
  }

  void joinSums(func::FuncOp function) {
    // Each sum directly follows its operand, so the order of sums is the order in which operands are complete.
    const llvm::DenseSet<Operation *> awaited = awaitedSums(function);
    llvm::MapVector<std::tuple<OperationName, Type, int64_t, int64_t, int64_t>, Bucket> byKind;
    for (Operation &op : function.getBody().front())
      if (isJoined(op)) {
        auto sum = dyn_cast<AllReduceOp>(op);
        byKind[{op.getName(), elementTypeOf(op.getOperand(0)), sum ? int64_t(sum.getWithin()) : 0, acrossOf(&op),
                int64_t(awaited.contains(&op))}]
            .push_back(&op);
      }
    struct Counts {
      int64_t tensors = 0, bytes = 0, buckets = 0;
    };
    llvm::MapVector<std::pair<OperationName, int64_t>, Counts> counted;
    for (auto &[kind, all] : byKind) {
      Bucket bucket;
      int64_t bucketed = 0;
      const int64_t across = std::get<3>(kind);
      Counts &counts = counted[{std::get<0>(kind), int64_t(across != 0)}];
      auto close = [&] {
        join(bucket);
        counts.buckets += !bucket.empty();
        bucket.clear();
        bucketed = 0;
      };
      for (Operation *op : all) {
        // The shards of one bucket are summed across nodes together.
        const int64_t own =
            std::max(tensorBytes(op->getOperand(0).getType()), tensorBytes(op->getResult(0).getType())) *
            std::max<int64_t>(across, 1);
        if (!bucket.empty() &&
            (bucketed + own > bucketBytes || waitsForShards(bucket.back(), op) || needsOne(op, bucket)))
          close();
        bucket.push_back(op);
        bucketed += own;
        counts.bytes += own / std::max<int64_t>(across, 1);
      }
      counts.tensors += int64_t(all.size());
      close();
    }
    for (auto &[kind, counts] : counted)
      note(function, kind.first, kind.second != 0, counts.tensors, counts.bytes, counts.buckets);
  }

  /// All-reduces whose results other sums depend on, as gradients of several losses depend on the losses' denominators.
  /// In a bucket with a loss's numerator, which needs all rows of the logits, they would make the gradients wait for
  /// all rows, too.
  static llvm::DenseSet<Operation *> awaitedSums(func::FuncOp function) {
    llvm::DenseSet<Operation *> before, awaited; // only looked up, never iterated; `before`: ops that a sum depends on
    for (Operation &op : llvm::reverse(function.getBody().front())) {
      const bool reaches = llvm::any_of(op.getUsers(), [&](Operation *user) {
        Operation *inBlock = function.getBody().front().findAncestorOpInBlock(*user);
        return inBlock && (before.contains(inBlock) || isa<AllReduceOp, ReduceScatterOp>(inBlock));
      });
      if (reaches)
        before.insert(&op);
      if (reaches && isa<AllReduceOp>(op))
        awaited.insert(&op);
    }
    return awaited;
  }

  /// The op's `across` if it sums shards across nodes; else 0.
  static int64_t acrossOf(Operation *op) {
    auto sum = dyn_cast<AllReduceOp>(op);
    return sum ? int64_t(sum.getAcross()) : 0;
  }

  void note(func::FuncOp function, OperationName kind, bool across, int64_t tensors, int64_t bytes, int64_t buckets) {
    const char *does = across                                                       ? "nodes sum "
                       : kind.getStringRef() == ReduceScatterOp::getOperationName() ? "ranks sum their shards of "
                       : kind.getStringRef() == AllGatherOp::getOperationName()     ? "ranks gather "
                                                                                    : "ranks sum ";
    addNote(getOperation(), "parallel", function->getAttrOfType<StringAttr>(names::kEntry).getValue(),
            does + std::to_string(tensors) + (tensors == 1 ? " tensor, " : " tensors, ") + bytesText(uint64_t(bytes)) +
                ", in " + std::to_string(buckets) + (buckets == 1 ? " bucket" : " buckets"));
  }

  /// True if gradients are scattered between two sums. The second then is that of the gradients' norm, and the loss's
  /// own sums, which every update reads, would wait for it in one bucket.
  static bool waitsForShards(Operation *first, Operation *second) {
    if (!isa<AllReduceOp>(second) || acrossOf(second) || !first->isBeforeInBlock(second))
      return false;
    return llvm::any_of(llvm::make_range(first->getIterator(), second->getIterator()),
                        [](Operation &op) { return isa<ReduceScatterOp>(op); });
  }

  /// True if the operand of `op` depends on a sum of the bucket, or, after other buckets were joined, the other way
  /// round.
  static bool needsOne(Operation *op, const Bucket &bucket) {
    llvm::SmallPtrSet<Operation *, 16> members;
    members.insert_range(bucket);
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
    llvm::SmallPtrSet<Operation *, 16> own{op};
    return llvm::any_of(bucket, [&](Operation *member) { return reaches(member, own); });
  }

  static void join(const Bucket &bucket) {
    if (bucket.size() < 2)
      return;
    llvm::SmallVector<Value> inputs;
    llvm::SmallVector<Type> types;
    llvm::SmallVector<Location> locations;
    for (Operation *op : bucket) {
      inputs.push_back(op->getOperand(0));
      types.push_back(op->getResult(0).getType());
      locations.push_back(op->getLoc());
    }
    // Behind the last one in the current order: joining other buckets may have moved them.
    OpBuilder builder(*std::max_element(bucket.begin(), bucket.end(),
                                        [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); }));
    OperationState state(builder.getFusedLoc(locations), bucket[0]->getName());
    state.addOperands(inputs);
    state.addTypes(types);
    state.addAttributes(bucket[0]->getAttrs());
    Operation *joined = builder.create(state);
    for (auto [op, result] : llvm::zip_equal(bucket, joined->getResults())) {
      // moveReadersBehind moves readers of an earlier sum behind the bucket.
      op->getResult(0).replaceAllUsesWith(result);
      op->erase();
    }
    moveReadersBehind(joined);
  }

  /// Moves ops before the bucket that depend on its results behind it, in their order.
  static void moveReadersBehind(Operation *bucket) {
    llvm::SmallPtrSet<Operation *, 16> late;
    llvm::SmallVector<Operation *> early;
    for (Operation &op : llvm::make_range(bucket->getBlock()->begin(), bucket->getIterator())) {
      bool reads = llvm::any_of(op.getOperands(), [&](Value operand) {
        Operation *producer = operand.getDefiningOp();
        return producer && (producer == bucket || late.contains(producer));
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
