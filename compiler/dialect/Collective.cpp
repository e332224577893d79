//===- Collective.cpp - what the ranks of a job compute together *- C++ -*-===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/PlanTypes.h"
#include "runtime/plan/plan.pb.h"

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

/// As the type adds: f64 in f64, all others in f32. A sum of two f32 in f64, rounded to f32, is their sum in f32.
double sumOf(double a, double b, bool wide) { return wide ? a + b : double(float(a + b)); }

/// The sum of the numbers of ranks [begin, end).
double treeSum(llvm::ArrayRef<double> numbers, bool wide) {
  if (numbers.size() == 1)
    return numbers[0];
  const size_t half = llvm::bit_floor(numbers.size() - 1);
  return sumOf(treeSum(numbers.take_front(half), wide), treeSum(numbers.drop_front(half), wide), wide);
}
} // namespace

LogicalResult AllReduceOp::verify() {
  if (failed(verifyTypes(*this)))
    return failure();
  for (Value input : getInputs())
    if (elementTypeOf(input) != elementTypeOf(getInputs()[0]))
      return emitOpError("needs operands of one element type");
  return success();
}

double AllReduceOp::getFlops() { return elementsOf(*this); }

void AllReduceOp::buildCollective(plan::Instruction &instruction) {
  instruction.mutable_collective()->set_kind(plan::CollectiveCall::ALL_REDUCE);
  instruction.mutable_collective()->set_dtype(toPlan(elementTypeOf(getInputs()[0])));
}

void AllReduceOp::evaluateRanks(llvm::ArrayRef<std::vector<HostTensor>> operands,
                                llvm::MutableArrayRef<std::vector<HostTensor>> results) {
  const bool wide = elementTypeOf(getInputs()[0]).isF64();
  for (unsigned operand = 0; operand < getNumOperands(); ++operand)
    for (int64_t i = 0; i < results[0][operand].size(); ++i) {
      llvm::SmallVector<double> numbers;
      for (const std::vector<HostTensor> &rank : operands)
        numbers.push_back(rank[operand].getDouble(i));
      for (std::vector<HostTensor> &rank : results)
        rank[operand].setDouble(i, treeSum(numbers, wide));
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
  auto sums = AllReduceOp::create(builder, getLoc(), TypeRange(ValueRange(present)), present);
  unsigned next = 0;
  for (auto [index, gradient] : llvm::enumerate(resultGradients))
    if (gradient)
      operandGradients[index] = sums->getResult(next++);
}

LogicalResult RankBroadcastOp::verify() {
  if (failed(verifyTypes(*this)))
    return failure();
  return getRoot() < 0 ? emitOpError("needs a rank that is not negative") : success();
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

} // namespace tcc::train
