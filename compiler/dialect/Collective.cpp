//===- Collective.cpp - collectives of the ranks of a job -------*- C++ -*-===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/PlanTypes.h"
#include "runtime/plan/plan.pb.h"

#include <cstring>

using namespace mlir;

namespace tcc::train {

namespace {
LogicalResult verifyTypes(Operation *op) {
  if (op->getNumOperands() == 0)
    return op->emitOpError("needs an operand");
  if (op->getOperandTypes() != op->getResultTypes())
    return op->emitOpError("needs results of its operands' types");
  return success();
}

double elementsOf(Operation *op) {
  double elements = 0;
  for (Value operand : op->getOperands())
    elements += double(tensorTypeOf(operand).getNumElements());
  return elements;
}

int64_t shardElements(int64_t elements, int64_t ranks) { return (elements + ranks - 1) / ranks; }

/// Checks that results are shards of the operands, or with `!fromWhole` operands shards of the results.
LogicalResult verifyShards(Operation *op, int64_t ranks, bool fromWhole) {
  if (op->getNumOperands() == 0 || op->getNumOperands() != op->getNumResults())
    return op->emitOpError("needs as many results as operands, and one at least");
  if (ranks < 1)
    return op->emitOpError("needs a number of ranks, not ") << ranks;
  for (auto [operand, result] : llvm::zip_equal(op->getOperands(), op->getResults())) {
    RankedTensorType whole = tensorTypeOf(fromWhole ? operand : result);
    auto shard = RankedTensorType::get({shardElements(whole.getNumElements(), ranks)}, whole.getElementType());
    if (RankedTensorType given = tensorTypeOf(fromWhole ? result : operand); given != shard)
      return op->emitOpError("of ") << whole << " over " << ranks << " ranks needs shards of " << shard << ", not "
                                    << given;
  }
  return success();
}

LogicalResult verifyOneElementType(Operation *op) {
  for (Value input : op->getOperands())
    if (elementTypeOf(input) != elementTypeOf(op->getOperand(0)))
      return op->emitOpError("needs operands of one element type");
  return success();
}

void buildShardCall(Operation *op, plan::CollectiveCall::Kind kind, plan::Instruction &instruction) {
  instruction.mutable_collective()->set_kind(kind);
  if (kind == plan::CollectiveCall::REDUCE_SCATTER)
    instruction.mutable_collective()->set_dtype(toPlan(elementTypeOf(op->getOperand(0))));
}

/// Copies an element of any type.
void copyElement(const HostTensor &from, int64_t source, HostTensor &to, int64_t destination) {
  const int64_t bytes = elementBytes(from.elementType());
  std::memcpy(to.data() + destination * bytes, from.data() + source * bytes, size_t(bytes));
}

/// The ranks in the group of `rank`: with nodes of `node` ranks, its own node, or (`across`) the ranks with the same
/// number in all nodes; without nodes (0) all ranks.
llvm::SmallVector<size_t> partnersOf(size_t rank, size_t ranks, int64_t node, bool across) {
  llvm::SmallVector<size_t> partners;
  const auto size = size_t(node);
  for (size_t other = 0; other < ranks; ++other)
    if (size == 0 || (across ? other % size == rank % size : other / size == rank / size))
      partners.push_back(other);
  return partners;
}

/// Cuts shard `rank` out of each whole tensor, padded with zeros at the end.
void cutShards(size_t rank, llvm::ArrayRef<HostTensor> wholes, llvm::MutableArrayRef<HostTensor> shards) {
  for (auto [whole, shard] : llvm::zip_equal(wholes, shards)) {
    const HostTensor zero(shard.type());
    for (int64_t i = 0; i < shard.size(); ++i) {
      const int64_t element = int64_t(rank) * shard.size() + i;
      if (element < whole.size())
        copyElement(whole, element, shard, i);
      else
        copyElement(zero, i, shard, i);
    }
  }
}

/// Applies `Op` to the gradients that are present; each result has its operand's type.
template <typename Op>
void passGradients(Operation *op, int64_t ranks, OpBuilder &builder, ValueRange resultGradients,
                   llvm::SmallVectorImpl<Value> &operandGradients) {
  llvm::SmallVector<Value> present;
  llvm::SmallVector<Type> types;
  for (auto [gradient, operand] : llvm::zip_equal(resultGradients, op->getOperands()))
    if (gradient) {
      present.push_back(gradient);
      types.push_back(operand.getType());
    }
  if (present.empty())
    return;
  auto passed = Op::create(builder, op->getLoc(), TypeRange(types), present, builder.getI64IntegerAttr(ranks));
  unsigned next = 0;
  for (auto [index, gradient] : llvm::enumerate(resultGradients))
    if (gradient)
      operandGradients[index] = passed->getResult(next++);
}

/// a + b in f64 (`wide`), else in f32: a sum of two f32 in f64, rounded to f32, is their sum in f32.
double sumOf(double a, double b, bool wide) { return wide ? a + b : double(float(a + b)); }

/// The sum of all ranks' numbers in the tree of train.all_reduce.
double treeSum(llvm::ArrayRef<double> numbers, bool wide) {
  if (numbers.size() == 1)
    return numbers[0];
  const size_t half = llvm::bit_floor(numbers.size() - 1);
  return sumOf(treeSum(numbers.take_front(half), wide), treeSum(numbers.drop_front(half), wide), wide);
}
/// Sets each element of `sums` to the sum of the partners' elements.
void sumPartners(llvm::ArrayRef<std::vector<HostTensor>> operands, llvm::ArrayRef<size_t> partners, bool wide,
                 std::vector<HostTensor> &sums) {
  for (auto [operand, sum] : llvm::enumerate(sums))
    for (int64_t i = 0; i < sum.size(); ++i) {
      llvm::SmallVector<double> numbers;
      for (size_t partner : partners)
        numbers.push_back(operands[partner][operand].getDouble(i));
      sum.setDouble(i, treeSum(numbers, wide));
    }
}

} // namespace

LogicalResult AllReduceOp::verify() {
  if (failed(verifyTypes(*this)))
    return failure();
  if (int64_t(getWithin()) < 0 || int64_t(getAcross()) < 0 || (getWithin() != 0 && getAcross() != 0))
    return emitOpError("needs the ranks of a node for one of `within` and `across`, or for none");
  return verifyOneElementType(*this);
}

double AllReduceOp::getFlops() { return elementsOf(*this); }

void AllReduceOp::buildCollective(plan::Instruction &instruction) {
  instruction.mutable_collective()->set_kind(plan::CollectiveCall::ALL_REDUCE);
  instruction.mutable_collective()->set_dtype(toPlan(elementTypeOf(getInputs()[0])));
  if (getWithin() != 0 || getAcross() != 0)
    instruction.mutable_collective()->set_reach(getWithin() != 0 ? plan::CollectiveCall::WITHIN_NODE
                                                                 : plan::CollectiveCall::ACROSS_NODES);
}

void AllReduceOp::evaluateRanks(llvm::ArrayRef<std::vector<HostTensor>> operands,
                                llvm::MutableArrayRef<std::vector<HostTensor>> results) {
  const bool wide = elementTypeOf(getInputs()[0]).isF64();
  const int64_t node = getWithin() ? getWithin() : getAcross();
  for (auto [rank, sums] : llvm::enumerate(results)) {
    const llvm::SmallVector<size_t> partners = partnersOf(rank, operands.size(), node, getAcross() != 0);
    sumPartners(operands, partners, wide, sums);
  }
}

void AllReduceOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  // Every rank's loss reads the sum, so an operand's gradient is the sum of all ranks' gradients of the result.
  llvm::SmallVector<Value> present;
  for (Value gradient : resultGradients)
    if (gradient)
      present.push_back(gradient);
  if (present.empty())
    return;
  auto sums = AllReduceOp::create(builder, getLoc(), TypeRange(ValueRange(present)), present, getWithin(), getAcross());
  unsigned next = 0;
  for (auto [index, gradient] : llvm::enumerate(resultGradients))
    if (gradient)
      operandGradients[index] = sums->getResult(next++);
}

LogicalResult RankBroadcastOp::verify() {
  if (failed(verifyTypes(*this)))
    return failure();
  return getRootAttr().getInt() < 0 ? emitOpError("needs a rank that is not negative") : success();
}

double RankBroadcastOp::getFlops() { return 0; }

void RankBroadcastOp::buildCollective(plan::Instruction &instruction) {
  instruction.mutable_collective()->set_kind(plan::CollectiveCall::BROADCAST);
  instruction.mutable_collective()->set_root(uint32_t(getRoot()));
}

void RankBroadcastOp::evaluateRanks(llvm::ArrayRef<std::vector<HostTensor>> operands,
                                    llvm::MutableArrayRef<std::vector<HostTensor>> results) {
  for (std::vector<HostTensor> &rank : results)
    rank = operands[size_t(getRoot())];
}

LogicalResult ReduceScatterOp::verify() {
  return failed(verifyShards(*this, getRanks(), /*fromWhole=*/true)) ? failure() : verifyOneElementType(*this);
}
double ReduceScatterOp::getFlops() { return elementsOf(*this); }
void ReduceScatterOp::buildCollective(plan::Instruction &instruction) {
  buildShardCall(*this, plan::CollectiveCall::REDUCE_SCATTER, instruction);
}
void ReduceScatterOp::evaluateRanks(llvm::ArrayRef<std::vector<HostTensor>> operands,
                                    llvm::MutableArrayRef<std::vector<HostTensor>> results) {
  const bool wide = elementTypeOf(getInputs()[0]).isF64();
  for (auto [rank, own] : llvm::enumerate(results)) {
    const llvm::SmallVector<size_t> partners = partnersOf(rank, operands.size(), getRanks(), /*across=*/false);
    std::vector<HostTensor> sums = operands[rank];
    sumPartners(operands, partners, wide, sums);
    cutShards(rank % size_t(getRanks()), sums, own);
  }
}
void ReduceScatterOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                    llvm::SmallVectorImpl<Value> &operandGradients) {
  passGradients<AllGatherOp>(*this, getRanks(), builder, resultGradients, operandGradients);
}

LogicalResult AllGatherOp::verify() { return verifyShards(*this, getRanks(), /*fromWhole=*/false); }
double AllGatherOp::getFlops() { return 0; }
void AllGatherOp::buildCollective(plan::Instruction &instruction) {
  buildShardCall(*this, plan::CollectiveCall::ALL_GATHER, instruction);
}
void AllGatherOp::evaluateRanks(llvm::ArrayRef<std::vector<HostTensor>> operands,
                                llvm::MutableArrayRef<std::vector<HostTensor>> results) {
  for (auto [rank, wholes] : llvm::enumerate(results)) {
    const size_t first = rank - rank % size_t(getRanks());
    for (auto [index, whole] : llvm::enumerate(wholes))
      for (int64_t i = 0; i < whole.size(); ++i) {
        const int64_t shard = operands[0][index].size();
        copyElement(operands[first + size_t(i / shard)][index], i % shard, whole, i);
      }
  }
}
void AllGatherOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  passGradients<ReduceScatterOp>(*this, getRanks(), builder, resultGradients, operandGradients);
}

LogicalResult OwnShardOp::verify() { return verifyShards(*this, getRanks(), /*fromWhole=*/true); }
double OwnShardOp::getFlops() { return 0; }
void OwnShardOp::buildCollective(plan::Instruction &instruction) {
  buildShardCall(*this, plan::CollectiveCall::OWN_SHARD, instruction);
}
void OwnShardOp::evaluateRanks(llvm::ArrayRef<std::vector<HostTensor>> operands,
                               llvm::MutableArrayRef<std::vector<HostTensor>> results) {
  for (auto [rank, own] : llvm::enumerate(results))
    cutShards(rank % size_t(getRanks()), operands[rank], own);
}

} // namespace tcc::train
