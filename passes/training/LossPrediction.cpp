//===- LossPrediction.cpp - check what kind of numbers a loss reads -------===//
#include "passes/training/LossPrediction.h"

#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {
namespace {

/// The kind of numbers that an op computes (`Any` if unknown), and the op.
struct Produced {
  LossInput numbers = LossInput::Any;
  Operation *op = nullptr;
};

/// The value before ops that only move or cast elements.
Value beforeViews(Value value) {
  while (Operation *op = value.getDefiningOp())
    if (isa<ReshapeOp, TransposeOp, CastOp>(op))
      value = op->getOperand(0);
    else
      break;
  return value;
}

bool isLinear(Operation *op) { return op && isa<MatMulOp, ConvOp>(op); }

Produced producerOf(Value value) {
  Operation *op = beforeViews(value).getDefiningOp();
  if (!op)
    return {};
  if (isa<SoftmaxOp, SigmoidOp>(op))
    return {LossInput::Probabilities, op};
  if (isa<LogSoftmaxOp>(op))
    return {LossInput::LogProbabilities, op};
  if (isa<LogOp>(op) && producerOf(op->getOperand(0)).numbers == LossInput::Probabilities)
    return {LossInput::LogProbabilities, op};
  if (isLinear(op))
    return {LossInput::Logits, op};
  if (isa<AddOp>(op)) // a bias
    for (Value operand : op->getOperands())
      if (Operation *product = beforeViews(operand).getDefiningOp(); isLinear(product))
        return {LossInput::Logits, op};
  return {};
}

/// The node that the op was imported from: its name, or that of its output if it has none; loss.of takes either.
std::string nodeOf(Operation *op) {
  if (!op)
    return "";
  auto name = dyn_cast<NameLoc>(op->getLoc());
  const std::string text = name ? name.getName().str() : "";
  const std::string arrow = " → ";
  const size_t at = text.find(arrow);
  return at == text.npos ? text : text.substr(at + arrow.size());
}

std::string textOf(LossInput numbers) {
  return numbers == LossInput::Probabilities      ? "probabilities"
         : numbers == LossInput::LogProbabilities ? "log-probabilities"
                                                  : "logits";
}

/// The numbers that the kind expects, or the recipe's loss.input if it is set.
LossInput takenBy(const Loss &kind, const LossSettings &settings) {
  return settings.input == "logits"      ? LossInput::Logits
         : settings.input == "log_probs" ? LossInput::LogProbabilities
         : settings.input == "probs"     ? LossInput::Probabilities
                                         : kind.input;
}

/// The loss kind that expects those numbers instead.
std::string otherKind(llvm::StringRef kind, LossInput numbers) {
  if (kind == "nll" && numbers == LossInput::Logits)
    return "cross_entropy";
  if (kind == "cross_entropy" && numbers == LossInput::LogProbabilities)
    return "nll";
  if (kind == "bce" && numbers == LossInput::Logits)
    return "bce_with_logits";
  if (kind == "bce_with_logits" && numbers == LossInput::Probabilities)
    return "bce";
  return "";
}

} // namespace

std::string doubtfulPrediction(const Loss &kind, const LossSettings &settings, Value prediction,
                               const std::string &name) {
  const LossInput taken = takenBy(kind, settings);
  const Produced produced = producerOf(prediction);
  if (taken == LossInput::Any || produced.numbers == LossInput::Any || produced.numbers == taken)
    return "";
  const std::string node = nodeOf(produced.op);
  std::string text = kind.name.str() + " takes " + textOf(taken) + ", but `" + name + "` holds " +
                     textOf(produced.numbers) + (node.empty() ? "" : " (node " + node + ")");
  std::string ways;
  auto add = [&](const std::string &way) { ways += (ways.empty() ? "" : ", or ") + way; };
  if (std::string other = otherKind(kind.name, produced.numbers); !other.empty())
    add("set loss.kind = \"" + other + "\"");
  if (!settings.input.empty() || kind.name == "ctc" || kind.name == "dice")
    if (produced.numbers == LossInput::Logits)
      add("set loss.input = \"logits\"");
  if (taken == LossInput::Logits)
    if (std::string logits = nodeOf(beforeViews(produced.op->getOperand(0)).getDefiningOp()); !logits.empty())
      add("set loss.of = \"" + logits + "\", its logits");
  if (kind.name == "nll" && produced.numbers == LossInput::Probabilities)
    add("give cross_entropy the logits before them");
  if (ways.empty())
    add("end the model in " + textOf(taken));
  return text + ": " + ways;
}

} // namespace tcc::train
