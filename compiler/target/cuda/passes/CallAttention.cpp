//===- CallAttention.cpp - attention as calls of the target ---------------===//
//
// A library's attention keeps one number a row for its gradient, ours two: the second is the rounding error of the
// first, which matters if a finite mask excludes a whole row. Attention whose mask may do so stays a kernel.
//
// The library adds a bias of the operands' type, with an element for each query and key. Ours may be f32 and broadcast
// along these, and masks are separate tensors, or a shifted diagonal: a small kernel writes all as one bias. It marks
// an excluded key by a finite number that both 16-bit types represent, far below any ordinary score, since the
// library's result for a block of keys that are all −∞ is not documented.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Attention.h"
#include "compiler/target/Target.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_CALLATTENTIONPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace {
constexpr double kExcludedBias = -32768;

/// What becomes a call and what stays a kernel, with the reasons; for the report.
struct CallReport {
  struct Line {
    llvm::StringRef kind; ///< of the note
    std::string node, what, reason;
    llvm::json::Array entries;
  };
  std::vector<Line> lines;

  void kept(Operation *op, llvm::StringRef what, const std::string &reason) { add("attention kept", op, what, reason); }
  void called(Operation *op, llvm::StringRef what, const std::string &reason) {
    add("attention called", op, what, reason);
  }
  void write(ModuleOp module) {
    for (Line &line : lines)
      addNote(module, line.kind, line.node,
              llvm::formatv("{0}", llvm::json::Value(llvm::json::Object{
                                       {"what", line.what}, {"reason", line.reason}, {"in", std::move(line.entries)}}))
                  .str());
  }

private:
  void add(llvm::StringRef kind, Operation *op, llvm::StringRef what, const std::string &reason) {
    const std::string node = nodeName(op->getLoc()).str();
    auto found = llvm::find_if(lines, [&](const Line &line) {
      return line.kind == kind && line.node == node && line.what == what && line.reason == reason;
    });
    if (found == lines.end())
      found = lines.insert(lines.end(), {kind, node, what.str(), reason, {}});
    found->entries.push_back(op->getParentOfType<func::FuncOp>().getName());
  }
};

/// What is called of an attention, and why.
struct Wish {
  bool forward = false, gradient = false;
  std::string reason;

  /// `value`: none, forward or both.
  static Wish of(llvm::StringRef value, std::string reason) {
    return {value != "none", value == "both", std::move(reason)};
  }
};

class CallBuilder {
public:
  /// `calls`: compiler.attention_calls; by default `plain` attention, and attention `withBias`, become what they say.
  CallBuilder(const target::Target &target, llvm::StringRef calls, Wish plain, Wish withBias, CallReport &report)
      : target(target), calls(calls), plain(std::move(plain)), withBias(std::move(withBias)), report(report) {}

  bool chosenByDefault = false; ///< a call was

  void replace(AttentionOp op) {
    std::vector<AttentionGradOp> grads;
    const unsigned bits = elementTypeOf(op.getQuery()).getIntOrFloatBitWidth();
    std::string objection = bits != 16 ? "its numbers have " + std::to_string(bits) + " bits" : objectionTo(op);
    if (objection.empty() && !findGradients(op, grads))
      objection = "something else than its gradient reads the logarithms of its rows' sums";
    if (!objection.empty())
      return report.kept(op, "attention", objection);
    const Wish wish = wishFor(op);
    if (!wish.forward)
      return report.kept(op, "attention", wish.reason);
    OpBuilder builder(op);
    std::vector<Operation *> made;
    const Value bias = writeBias(builder, op, made);
    auto call =
        AttentionCallOp::create(builder, op.getLoc(), op.getOutput().getType(), op.getLogsumexp().getType(),
                                op.getQuery(), op.getKey(), op.getValue(), bias, op.getScaleAttr(), diagonalOf(op));
    made.push_back(call);
    if (!target.call(call)) {
      erase(made);
      return report.kept(op, "attention", "cuDNN has no engine for its sizes");
    }
    report.called(op, "attention", wish.reason);
    chosenByDefault |= calls == kByDefault;
    op.getOutput().replaceAllUsesWith(call.getOutput());
    op.getLogsumexp().replaceAllUsesWith(call.getLogsumexp());
    for (AttentionGradOp grad : grads)
      if (!wish.gradient || !replaceGradient(grad, call, wish.reason))
        readCall(grad, bias);
    op->erase();
  }

private:
  static void erase(llvm::ArrayRef<Operation *> made) {
    for (Operation *op : llvm::reverse(made))
      op->erase();
  }

  static constexpr llvm::StringLiteral kByDefault = "auto";

  Wish wishFor(AttentionOp op) const {
    if (calls != kByDefault)
      return Wish::of(calls, ("compiler.attention_calls is " + calls).str());
    const bool biased = op.getBias() || op.getMask() || attentionShapeOf(op).isShifted();
    return biased ? withBias : plain;
  }

  template <typename OpTy> std::string objectionTo(OpTy op) const {
    return callObjection(op, target.capabilities().attentionCalls);
  }

  /// Collects the gradients that read the sums that attention keeps. False if another op reads them.
  bool findGradients(AttentionOp op, std::vector<AttentionGradOp> &grads) const {
    auto collect = [&](Value value) {
      return llvm::all_of(value.getUses(), [&](OpOperand &use) {
        auto grad = dyn_cast<AttentionGradOp>(use.getOwner());
        if (!grad || grad.getOutput() != op.getOutput() || grad.getQuery() != op.getQuery() ||
            grad.getKey() != op.getKey() || grad.getValue() != op.getValue() || grad.getBias() != op.getBias() ||
            grad.getMask() != op.getMask() || !objectionTo(grad).empty() || grad.getScale() != op.getScale() ||
            grad.getCausal() != op.getCausal() || grad.getCausalOffset() != op.getCausalOffset())
          return false;
        if (!llvm::is_contained(grads, grad))
          grads.push_back(grad);
        return true;
      });
    };
    return collect(op.getLogsumexp()) && collect(op.getLogsumexpRest());
  }

  /// The library's causal flag: it supports only the unshifted diagonal.
  static BoolAttr diagonalOf(AttentionOp op) {
    return BoolAttr::get(op.getContext(), op.getCausal() && !attentionShapeOf(op).isShifted());
  }

  /// Writes bias, mask and a shifted diagonal as one bias of the library's form; null if there is none of them.
  static Value writeBias(OpBuilder &builder, AttentionOp op, std::vector<Operation *> &made) {
    Value bias = op.getBias(), mask = op.getMask();
    const bool shifted = attentionShapeOf(op).isShifted();
    if (!bias && !mask && !shifted)
      return Value();
    llvm::SmallVector<int64_t> shape(4, 1);
    for (Value part : {bias, mask})
      if (part)
        for (auto [extent, other] : llvm::zip_equal(shape, shapeOf(part)))
          extent = std::max(extent, other);
    shape[2] = shapeOf(op.getQuery())[2];
    shape[3] = shapeOf(op.getKey())[2];
    Operation *before = op->getPrevNode();
    const Type element = elementTypeOf(op.getQuery());
    const Type full = RankedTensorType::get(shape, bias ? elementTypeOf(bias) : element);
    Location loc = op.getLoc();
    Value sum = bias ? broadcastTo(builder, loc, bias, shape) : splat(builder, loc, full, 0);
    auto exclude = [&](Value kept) {
      sum = select(builder, loc, broadcastTo(builder, loc, kept, shape), sum, splat(builder, loc, full, kExcludedBias));
    };
    if (mask)
      exclude(mask);
    if (shifted) {
      auto range = [&](llvm::ArrayRef<int64_t> extents, int64_t dim) {
        return Expr(builder, loc,
                    IotaOp::create(builder, loc, RankedTensorType::get(extents, builder.getI64Type()), dim));
      };
      const Expr distance = range({1, 1, 1, shape[3]}, 3) - range({1, 1, shape[2], 1}, 2);
      exclude(distance.compare(CompareKind::le, double(int64_t(op.getCausalOffset()))));
    }
    sum = cast(builder, loc, sum, element);
    Operation *first = before ? before->getNextNode() : &op->getBlock()->front();
    for (Operation *one = first; one != op.getOperation(); one = one->getNextNode())
      made.push_back(one);
    return sum;
  }

  /// False if the target has no call for the gradient, or if the bias gradient is read in a form that the library does
  /// not compute.
  bool replaceGradient(AttentionGradOp grad, AttentionCallOp call, const std::string &reason) {
    const Value bias = call.getBias();
    llvm::SmallVector<ReduceOp> sums;
    const bool biasGrad = !grad.getBiasGrad().empty() && !grad.getBiasGrad()[0].use_empty();
    if (biasGrad && !findSums(grad.getBiasGrad()[0], bias, sums)) {
      report.kept(grad, "gradient", "its bias's gradient is read before it is summed to the bias's shape");
      return false;
    }
    OpBuilder builder(grad);
    llvm::SmallVector<Type> biasType;
    if (biasGrad)
      biasType.push_back(bias.getType());
    auto made = AttentionGradCallOp::create(
        builder, grad.getLoc(), grad.getQueryGrad().getType(), grad.getKeyGrad().getType(),
        grad.getValueGrad().getType(), biasType, grad.getQuery(), grad.getKey(), grad.getValue(), call.getOutput(),
        call.getLogsumexp(), grad.getOutputGrad(), bias, grad.getScaleAttr(), call.getCausalAttr());
    if (!target.call(made)) {
      made->erase();
      report.kept(grad, "gradient",
                  "cuDNN has no engine that repeats its bits for these sizes, or takes too much memory");
      return false;
    }
    report.called(grad, "gradient", reason);
    grad.getQueryGrad().replaceAllUsesWith(made.getQueryGrad());
    grad.getKeyGrad().replaceAllUsesWith(made.getKeyGrad());
    grad.getValueGrad().replaceAllUsesWith(made.getValueGrad());
    if (biasGrad) {
      Value all = grad.getBiasGrad()[0];
      const Value got = cast(builder, grad.getLoc(), made.getBiasGrad()[0], elementTypeOf(all));
      for (ReduceOp sum : sums) {
        llvm::SmallVector<int64_t> left; // dimensions along which only the graph's bias is broadcast
        for (int64_t dim : sum.getDims())
          if (shapeOf(bias)[size_t(dim)] == shapeOf(all)[size_t(dim)] && shapeOf(all)[size_t(dim)] > 1)
            left.push_back(dim);
        sum.getResult().replaceAllUsesWith(reduceSum(builder, sum.getLoc(), got, left));
        sum->erase();
      }
      if (sums.empty())
        all.replaceAllUsesWith(got);
    }
    grad->erase();
    return true;
  }

  /// Collects the sums that reduce the scores' gradients to the bias's shape, if the library's bias is broadcast. False
  /// if another op reads these gradients.
  static bool findSums(Value all, Value bias, llvm::SmallVectorImpl<ReduceOp> &sums) {
    llvm::SmallVector<int64_t> repeated;
    for (auto [dim, extents] : llvm::enumerate(llvm::zip_equal(shapeOf(all), shapeOf(bias))))
      if (std::get<0>(extents) != std::get<1>(extents))
        repeated.push_back(int64_t(dim));
    if (repeated.empty())
      return true;
    for (Operation *user : all.getUsers()) {
      auto sum = dyn_cast<ReduceOp>(user);
      if (!sum || sum.getKind() != ReduceKind::sum ||
          !llvm::all_of(repeated, [&](int64_t dim) { return llvm::is_contained(sum.getDims(), dim); }))
        return false;
      sums.push_back(sum);
    }
    return true;
  }

  /// Makes a generated gradient kernel read the library's logsumexp and bias, from which it recomputes the weights.
  static void readCall(AttentionGradOp grad, Value bias) {
    grad.getLogsumexpRestMutable().clear();
    if (!bias)
      return;
    grad.getMaskMutable().clear();
    grad.getBiasMutable().assign(bias);
  }

  const target::Target &target;
  llvm::StringRef calls;
  Wish plain, withBias;
  CallReport &report;
};

struct CallAttention : impl::CallAttentionPassBase<CallAttention> {
  using CallAttentionPassBase::CallAttentionPassBase;

  void runOnOperation() override {
    CallReport report;
    auto refusal = getOperation()->getAttrOfType<StringAttr>(names::kCallsRefused);
    auto byDefault = [&](StringRef value, StringRef why, StringRef form) {
      const target::Target *target = target::targetOf(getOperation());
      if (refusal)
        return Wish::of("none", refusal.str());
      return Wish::of(value,
                      llvm::formatv("the default{0} for {1}: {2}", form, target ? target->name() : "", why).str());
    };
    bool chosenByDefault = false;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      const target::Target *target = target::targetOf(function);
      if (!function->hasAttr(names::kEntry) || !target)
        continue;
      CallBuilder builder(*target, calls, byDefault(plain, plainWhy, ""),
                          byDefault(biased, biasedWhy, " with a bias or mask"), report);
      for (auto op : llvm::make_early_inc_range(function.getOps<AttentionOp>()))
        builder.replace(op);
      chosenByDefault |= builder.chosenByDefault;
    }
    if (chosenByDefault)
      getOperation()->setAttr(names::kCallsByDefault, UnitAttr::get(&getContext()));
    report.write(getOperation());
  }
};

} // namespace

} // namespace tcc::train
