//===- LossOutputs.cpp - find the outputs that a loss reads ----------------===//
#include "passes/training/LossOutputs.h"

#include "passes/Common.h"
#include "support/NearestName.h"

using namespace mlir;

namespace tcc::train {

std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

InFlightDiagnostic LossOutputs::fail(const std::string &key) const {
  return mlir::emitError(forward.getLoc()) << recipe.at(key);
}

std::string LossOutputs::nameOf(unsigned i) const {
  auto name = forward.getResultAttrOfType<StringAttr>(i, names::kName);
  return name ? name.str() : "output " + std::to_string(i);
}
IntegerAttr LossOutputs::sampleAxisOf(unsigned i) const {
  return forward.getResultAttrOfType<IntegerAttr>(i, names::kSampleAxis);
}
bool LossOutputs::isInner(unsigned i) const { return bool(forward.getResultAttr(i, names::kInner)); }
bool LossOutputs::isFloat(unsigned i) const {
  auto type = dyn_cast<RankedTensorType>(typeOf(i));
  return type && isa<FloatType>(type.getElementType());
}
bool LossOutputs::isScalarLoss(unsigned i) const {
  return isFloat(i) && cast<RankedTensorType>(typeOf(i)).getNumElements() == 1;
}
std::string LossOutputs::describe(llvm::ArrayRef<unsigned> outputs) const {
  std::string text;
  for (unsigned i : outputs)
    text += (text.empty() ? "`" : ", `") + nameOf(i) + "` is " + typeText(typeOf(i));
  return text;
}
std::string LossOutputs::list() const {
  std::string text = "outputs:";
  for (unsigned i = 0; i < count(); ++i)
    if (!isInner(i))
      text += (i ? ", `" : " `") + nameOf(i) + "` (" + typeText(typeOf(i)) + ")";
  return text;
}

FailureOr<unsigned> LossOutputs::find(const std::string &key, const std::string &name) const {
  std::vector<std::string> known;
  for (unsigned i = 0; i < count(); ++i) {
    if (nameOf(i) == name)
      return i;
    known.push_back(nameOf(i));
  }
  std::string nearest = nearestName(name, known);
  fail(key) << key << ": the graph has no output `" << name << "`; "
            << (nearest.empty() ? "" : "the nearest is `" + nearest + "`; ") << list();
  return failure();
}

FailureOr<LossOutputs::Numbers> LossOutputs::findGraphLoss() const {
  if (!recipe.loss.output.empty()) {
    FailureOr<unsigned> output = find("loss.output", recipe.loss.output);
    if (failed(output))
      return failure();
    if (!isScalarLoss(*output)) {
      fail("loss.output") << "loss.output: `" << recipe.loss.output << "` is " << typeText(typeOf(*output))
                          << ", not a scalar of floating point; name a scalar output, or give loss.kind and loss.of; "
                          << list();
      return failure();
    }
    return Numbers{*output};
  }
  Numbers candidates;
  for (unsigned i = 0; i < count(); ++i)
    if (isScalarLoss(i))
      candidates.push_back(i);
  if (candidates.size() == 1)
    return candidates;
  fail("loss") << (candidates.empty() ? "the graph has no scalar floating-point output that could be the loss"
                                      : "several outputs of the graph could be the loss")
               << ": set loss.output to one, or loss.kind, loss.of and loss.target for a built-in loss; " << list();
  return failure();
}

FailureOr<LossOutputs::Numbers> LossOutputs::findPredictions(const Loss &kind) const {
  if (kind.predictions > 1 && recipe.loss.of.size() != kind.predictions) {
    fail(recipe.loss.of.empty() ? "loss.kind" : "loss.of")
        << "loss.of: " << kind.name << " compares " << kind.predictions << " values, and "
        << (recipe.loss.of.empty() ? std::string("none is named")
                                   : std::to_string(recipe.loss.of.size()) + " are named")
        << ": set loss.of = " << kind.roles << "; " << list();
    return failure();
  }
  if (recipe.loss.of.size() > kind.predictions) {
    fail("loss.of") << "loss.of: " << kind.name << " is of one value, and " << recipe.loss.of.size()
                    << " are named: name one; " << list();
    return failure();
  }
  Numbers outputs;
  for (const std::string &name : recipe.loss.of) {
    FailureOr<unsigned> output = find("loss.of", name);
    if (failed(output))
      return failure();
    if (!isFloat(*output)) {
      fail("loss.of") << "loss.of: `" << name << "` is " << typeText(typeOf(*output))
                      << ", and a loss needs floating point; " << list();
      return failure();
    }
    outputs.push_back(*output);
  }
  if (!outputs.empty())
    return outputs;
  for (unsigned i = 0; i < count(); ++i)
    if (isFloat(i))
      outputs.push_back(i);
  if (outputs.size() == 1)
    return outputs;
  fail("loss.kind") << "the graph has " << outputs.size()
                    << " floating-point outputs: set loss.of to the one that the loss is of; " << list();
  return failure();
}

} // namespace tcc::train
