//===- Muon.cpp - Muon, with AdamW for other parameters -------------------===//
//
// Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024), as torch.optim.Muon computes it: the
// momentum of a matrix is made nearly orthogonal by a quintic Newton–Schulz iteration in bf16, which gives the
// direction of the update. Products of bf16 values are summed in f32 and rounded once, so they are f32 products of
// rounded values here. Which parameters are matrices, and which of their axes are rows, follows torch (TorchShape.h):
// exporters store a linear layer's weight transposed. torch.optim.Muon takes matrices only; its documentation leaves
// the other parameters to AdamW, and so does this file, at the same rate.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/optimizers/Optimizer.h"

#include <algorithm>
#include <cmath>

namespace tcc::train {

static std::vector<OptimizerState> muonStates(const OptimizerRule &, const TorchShape &torch) {
  if (!torch.isMatrix())
    return {{"exp_avg"}, {"exp_avg_sq", plan::DynamicKind::Unsigned}};
  return {{"momentum_buffer"}};
}

/// The value as bf16 stores it, in f32.
static Expr roundToBf16(const Expr &value) {
  return value.cast(value.builder->getBF16Type()).cast(value.builder->getF32Type());
}

/// x·y or x·yᵀ of matrices, in f32.
static Expr matrixProduct(const Expr &x, const Expr &y, bool transposeY) {
  auto batched = [](const Expr &m) { return m.reshape({1, shapeOf(m)[0], shapeOf(m)[1]}); };
  int64_t rows = shapeOf(x)[0], columns = shapeOf(y)[transposeY ? 0 : 1];
  auto type = mlir::RankedTensorType::get({1, rows, columns}, elementTypeOf(x));
  return x.with(MatMulOp::create(*x.builder, x.loc, type, batched(x), batched(y), false, transposeY))
      .reshape({rows, columns});
}

/// Orthogonalizes `matrix`, one of torch's parameters in its stored orientation.
static Expr orthogonalize(const UpdateStep &step, const Expr &matrix) {
  Expr x = roundToBf16(matrix);
  // torch transposes a tall matrix before the iteration.
  bool tall = (step.torch.dims[0] > step.torch.dims[1]) != step.torch.transposed;
  auto flipped = [&](const Expr &m) { return m.with(transpose(*m.builder, m.loc, m, {1, 0})); };
  if (tall)
    x = flipped(x);
  Expr norm = roundToBf16(sumAll(x * x).apply<SqrtOp>());
  Expr least = roundToBf16(norm.like(step.number("eps")));
  x = roundToBf16(x / norm.with(MaxOp::create(*norm.builder, norm.loc, norm, least)));
  for (int i = 0; i < int(step.number("ns_steps")); ++i) {
    Expr gram = roundToBf16(matrixProduct(x, x, true));
    Expr update = roundToBf16(step.number("ns_b") * gram + step.number("ns_c") * matrixProduct(gram, gram, false));
    x = roundToBf16(step.number("ns_a") * x + matrixProduct(update, x, false));
  }
  return (tall ? flipped(x) : x).cast(elementTypeOf(matrix));
}

/// The same of each of the matrices that are stored one after another.
static Expr orthogonalizeAll(const UpdateStep &step, const Expr &stored) {
  const int64_t count = step.torch.count;
  if (count == 1 && shapeOf(stored).size() == 2)
    return orthogonalize(step, stored);
  int64_t rows = step.torch.dims[0], columns = step.torch.dims[1];
  if (step.torch.transposed)
    std::swap(rows, columns);
  Expr all = stored.reshape({count * rows, columns});
  auto type = mlir::RankedTensorType::get({rows, columns}, elementTypeOf(stored));
  llvm::SmallVector<mlir::Value> parts;
  for (int64_t i = 0; i < count; ++i) {
    auto part = SliceOp::create(*all.builder, all.loc, type, all, llvm::ArrayRef<int64_t>{i * rows, 0},
                                llvm::ArrayRef<int64_t>{1, 1});
    parts.push_back(orthogonalize(step, all.with(part)));
  }
  if (count > 1)
    all = all.with(ConcatOp::create(*all.builder, all.loc, all.value.getType(), parts, 0));
  else
    all = all.with(parts[0]);
  return all.reshape(shapeOf(stored));
}

static double muonRateScale(const UpdateStep &step) {
  double rows = double(step.torch.dims[0]), columns = double(step.torch.dims[1]);
  if (step.settings.adjustLr == "match_rms_adamw")
    return 0.2 * std::sqrt(std::max(rows, columns));
  if (step.settings.adjustLr == "spectral_unclamped")
    return std::sqrt(rows / columns);
  return std::sqrt(std::max(1.0, rows / columns));
}

static Expr updateMuon(UpdateStep &step) {
  // PyTorch's default for AdamW's ε, since the setting `eps` is Muon's own.
  if (!step.torch.isMatrix())
    return updateAdamW(step, step.weight.like(1e-8));
  Expr &buffer = step.states[0];
  Expr momentum = step.scalar("momentum"), rest = step.scalar("one_minus_momentum");
  double kept = step.number("momentum");
  buffer = lerpToGradient(buffer, step.gradient, kept, momentum, rest);
  Expr direction = step.settings.nesterov ? lerpToGradient(step.gradient, buffer, 1 - kept, rest, momentum) : buffer;
  return decayedWeight(step) -
         step.groupScalar("lr") * muonRateScale(step) * step.own(orthogonalizeAll(step, step.whole(direction)));
}

Optimizer makeMuon() {
  return {"muon",
          {"g.lr", "g.decay", "g.step_size", "momentum", "one_minus_momentum", "beta1", "one_minus_beta1", "beta2",
           "one_minus_beta2", "bias_correction2_sqrt"},
          muonStates,
          updateMuon,
          nullptr,
          true};
}

} // namespace tcc::train
