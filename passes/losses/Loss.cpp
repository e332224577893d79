//===- Loss.cpp - the built-in losses: their list, what they share ---------===//
#include "passes/losses/Loss.h"

#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

static const LossKind *const kLossKinds[] = {&kCrossEntropy, &kNll,           &kMse, &kL1,   &kHuber,
                                             &kSmoothL1,     &kBceWithLogits, &kBce, &kKlDiv};

const LossKind *findLoss(llvm::StringRef name) {
  for (const LossKind *kind : kLossKinds)
    if (kind->name == name)
      return kind;
  return nullptr;
}

std::string lossNames() {
  std::string text;
  for (const LossKind *kind : kLossKinds)
    text += (text.empty() ? "" : ", ") + kind->name.str();
  return text;
}

LossResult reduceElements(const Expr &elements, const LossSettings &settings) {
  Expr sum = sumAll(elements);
  double count = settings.reduction == "sum" ? 1 : double(tensorTypeOf(elements).getNumElements());
  return {sum, sum.like(count)};
}

Expr constantVector(const Expr &place, llvm::ArrayRef<double> values, Type elementType) {
  HostTensor tensor(RankedTensorType::get({int64_t(values.size())}, elementType));
  for (auto [i, value] : llvm::enumerate(values))
    tensor.setDouble(i, value);
  return place.with(ConstantOp::create(*place.builder, place.loc, tensor.toAttribute()));
}

} // namespace tcc::train
