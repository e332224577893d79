//===- PartialKernels.cpp - kernels that compute a part of their results ---===//
#include "passes/memory/PartialKernels.h"

#include "passes/Common.h"
#include "passes/memory/EntryProgram.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {

namespace {

/// Reduces a region to the given results and the ops that they need. Returns the numbers of the operands still read.
SmallVector<unsigned> keepResults(Block &body, ArrayRef<unsigned> results) {
  auto yield = cast<YieldOp>(body.getTerminator());
  SmallVector<Value> yielded;
  for (unsigned result : results)
    yielded.push_back(yield.getValues()[result]);
  yield.getValuesMutable().assign(yielded);
  SmallVector<Operation *> inner(llvm::make_pointer_range(body.without_terminator()));
  for (Operation *op : llvm::reverse(inner))
    if (op->use_empty())
      op->erase();
  SmallVector<unsigned> operands;
  for (unsigned i = 0, erased = 0, count = body.getNumArguments(); i < count; ++i) {
    if (body.getArgument(i - erased).use_empty())
      body.eraseArgument(i - erased++);
    else
      operands.push_back(i);
  }
  return operands;
}

class PartialKernel : public planning::PartialExecutions {
public:
  PartialKernel(FusedOp fused, InstructionValues values) : fused(fused), values(std::move(values)) {}

  std::vector<planning::Cost> shares() const override;

protected:
  planning::Execution make(const std::vector<bool> &wanted) const override;

private:
  /// A detached kernel without operands, and the operand numbers that the arguments of its region stand for.
  struct Part {
    OwningOpRef<FusedOp> kernel;
    SmallVector<unsigned> operands;
  };
  Part partOf(ArrayRef<unsigned> results) const;

  mutable FusedOp fused; // its accessors are not const; nothing here changes it
  InstructionValues values;
};

PartialKernel::Part PartialKernel::partOf(ArrayRef<unsigned> results) const {
  SmallVector<Type> types;
  for (unsigned result : results)
    types.push_back(fused->getResult(result).getType());
  OpBuilder builder(fused->getContext());
  Part part{FusedOp::create(builder, fused->getLoc(), types, ValueRange()), {}};
  Region &region = part.kernel->getBody();
  IRMapping mapping;
  fused.getBody().cloneInto(&region, mapping);
  part.operands = keepResults(region.front(), results);
  return part;
}

planning::Execution PartialKernel::make(const std::vector<bool> &wanted) const {
  planning::Execution execution;
  SmallVector<unsigned> results;
  SmallVector<Type> types;
  size_t write = 0;
  for (auto [number, value] : llvm::enumerate(values.results)) {
    bool isKept = value < 0 ? wanted.back() : wanted[write++];
    if (!isKept)
      continue;
    results.push_back(unsigned(number));
    types.push_back(fused->getResult(unsigned(number)).getType());
    if (value >= 0)
      execution.writes.push_back(value);
  }
  Part part = partOf(results);
  double bytes = 0;
  for (auto [operand, read] : llvm::zip_equal(part.operands, bytesRead(*part.kernel))) {
    bytes += read;
    if (values.operands[operand] >= 0)
      execution.reads.push_back(values.operands[operand]);
  }
  for (Type type : types)
    bytes += double(tensorBytes(type));
  llvm::sort(execution.reads);
  execution.reads.erase(llvm::unique(execution.reads), execution.reads.end());
  execution.cost = nominalCost(fused, flopsOf(part.kernel->getOperation()), bytes);
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  for (auto [operand, result] : part.kernel->getInPlacePairs())
    pairs.push_back({part.operands[operand], results[result]});
  execution.inPlace = inPlaceValues(fused, pairs, values, part.operands);
  return execution;
}

/// The cost of each op and operand is divided equally among the results that need it, counted in arithmetic or in
/// traffic, whichever determines the whole kernel's time. This is a lower bound: an op runs at least as often as each
/// of these results is computed, and so at least as often as they are on average. Of an operand, each result counts the
/// bytes that it reads when computed alone; an execution for several results reads no fewer. The overhead is divided
/// equally among all results.
std::vector<planning::Cost> PartialKernel::shares() const {
  Block &body = fused.getBody().front();
  auto yield = cast<YieldOp>(body.getTerminator());
  llvm::DenseMap<Operation *, unsigned> opNeeded;
  llvm::DenseMap<Value, unsigned> argumentNeeded;
  std::vector<llvm::SetVector<Value>> needs; // of each written result: the region's values that it depends on
  for (auto [number, value] : llvm::enumerate(values.results)) {
    if (value < 0)
      continue;
    llvm::SetVector<Value> work;
    work.insert(yield.getValues()[number]);
    llvm::SmallPtrSet<Operation *, 16> ops;
    for (size_t i = 0; i < work.size(); ++i) {
      if (Operation *op = work[i].getDefiningOp()) {
        work.insert_range(op->getOperands());
        if (ops.insert(op).second)
          ++opNeeded[op];
      } else {
        ++argumentNeeded[work[i]];
      }
    }
    needs.push_back(std::move(work));
  }
  std::vector<double> flops(needs.size(), 0), bytes(needs.size(), 0);
  size_t write = 0;
  for (auto [number, value] : llvm::enumerate(values.results)) {
    if (value < 0)
      continue;
    bytes[write] += double(tensorBytes(fused->getResult(unsigned(number)).getType()));
    Part alone = partOf(unsigned(number));
    for (auto [operand, read] : llvm::zip_equal(alone.operands, bytesRead(*alone.kernel)))
      bytes[write] += read / double(argumentNeeded.lookup(body.getArgument(operand)));
    llvm::SmallPtrSet<Operation *, 16> ops;
    for (Value need : needs[write])
      if (Operation *op = need.getDefiningOp(); op && ops.insert(op).second)
        flops[write] += flopsOf(op) / double(opNeeded.lookup(op));
    ++write;
  }
  auto cost = [&](double flops, double bytes) { return nominalCost(fused, flops, bytes); };
  const bool byFlops = cost(flopsOf(fused), 0) > cost(0, bytesOf(fused));
  const planning::Cost overhead = cost(0, 0);
  std::vector<planning::Cost> result;
  for (size_t w = 0; w < needs.size(); ++w)
    result.push_back(overhead / needs.size() + (byFlops ? cost(flops[w], 0) : cost(0, bytes[w])) - overhead);
  return result;
}

} // namespace

std::vector<std::pair<int, int>> inPlaceValues(Operation *op, ArrayRef<std::pair<unsigned, unsigned>> pairs,
                                               const InstructionValues &values, ArrayRef<unsigned> present) {
  std::vector<std::pair<int, int>> found;
  for (auto [operand, result] : pairs) {
    const int from = values.operands[operand], to = values.results[result];
    if (from < 0 || to < 0 || !values.isMade[operand] ||
        tensorBytes(op->getOperand(operand).getType()) != tensorBytes(op->getResult(result).getType()))
      continue;
    // Another operand may view the same memory and be read at other elements than the result writes.
    bool everyReadInPlace = llvm::all_of(present, [&, result = result](unsigned read) {
      return values.operands[read] != from || llvm::is_contained(pairs, std::pair(read, result));
    });
    if (everyReadInPlace)
      found.push_back({from, to});
  }
  return found;
}

std::shared_ptr<const planning::PartialExecutions> partialExecutionsOf(FusedOp fused, InstructionValues values) {
  if (fused.getLoopKernel() || fused->getNumResults() < 2)
    return nullptr;
  return std::make_shared<PartialKernel>(fused, std::move(values));
}

void dropUnreadResults(FusedOp fused) {
  if (fused.getLoopKernel() || llvm::none_of(fused->getResults(), [](Value result) { return result.use_empty(); }))
    return;
  SmallVector<unsigned> results;
  SmallVector<Type> types;
  for (OpResult result : fused->getResults())
    if (!result.use_empty()) {
      results.push_back(result.getResultNumber());
      types.push_back(result.getType());
    }
  SmallVector<Value> before(fused->getOperands()), operands;
  for (unsigned operand : keepResults(fused.getBody().front(), results))
    operands.push_back(before[operand]);
  OpBuilder builder(fused);
  auto smaller = FusedOp::create(builder, fused.getLoc(), types, operands);
  smaller->setDiscardableAttrs(fused->getDiscardableAttrDictionary());
  smaller.getBody().takeBody(fused.getBody());
  for (auto [old, now] : llvm::zip_equal(results, smaller->getResults()))
    fused->getResult(old).replaceAllUsesWith(now);
  fused->erase();
  llvm::SetVector<Operation *> views;
  auto addView = [&](Value value) {
    if (Operation *op = value.getDefiningOp(); op && op->hasTrait<View>())
      views.insert(op);
  };
  llvm::for_each(before, addView);
  for (size_t i = 0; i < views.size();) {
    Operation *view = views[i++];
    if (!view->use_empty())
      continue;
    Value source = view->getOperand(0);
    views.remove(view);
    view->erase();
    addView(source);
    i = 0; // the view's source may be an unread view now
  }
}

} // namespace tcc::train
