//===- ModelValues.h - a model's values after training, as exports write them -*- C++ -*-===//
//
// A plan may hold an initializer otherwise than the model does: in a narrower type, or as a frozen matrix and a
// low-rank adapter. Here each initializer has the model's type again, and the sum of both.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_MODELVALUES_H
#define TCC_RUNTIME_STATE_MODELVALUES_H

#include "runtime/state/Weights.h"

#include <functional>
#include <set>

namespace tcc::runtime {

/// Values that differ from those that the plan starts with. By default there are none.
struct TrainedValues {
  std::function<bool(const plan::Variable &)> has = [](const plan::Variable &) { return false; };
  /// Hands over all bytes of a variable that `has` is true of.
  std::function<Status(const plan::Variable &, const ByteSink &)> stream = nullptr;
};

/// "model.a.weight" in the submodule "model": "a.weight"; nothing for a name outside. An empty root changes nothing.
std::optional<std::string> insideRoot(const std::string &name, const std::string &root);
/// The error where no name is inside.
Status noNameInside(const plan::Plan &plan, const std::string &root);

class ModelValues {
public:
  /// All of these outlive this object. `folder`: where the plan was compiled.
  ModelValues(const plan::PlanReader &reader, const TrainedValues &trained, const std::string &folder);

  /// Is it A or B of an adapter, which no model has?
  bool isAdapter(const plan::Variable &variable) const { return partsOfAdapters.count(variable.name()) != 0; }
  /// Does the value differ from that in the model's file?
  bool isChanged(const plan::Variable &variable) const;
  /// In the model.
  plan::TensorType typeOf(const plan::Variable &variable) const;

  /// The value that the model gets. Errors: external weights that are gone; those of the sink.
  Status stream(const plan::Variable &variable, const ByteSink &sink);
  /// The same as torch has it.
  Status streamTorch(const plan::Variable &variable, const ByteSink &sink);
  /// The value as training has it: of a part of an adapter, say. Integers of 8 bits with scales are widened to f32.
  Expected<std::vector<std::byte>> held(const plan::Variable &variable);
  Expected<std::vector<std::byte>> ofTie(const plan::Tie &tie);

  const plan::Variable &variable(const std::string &name) const { return *byName.at(name); }

private:
  Expected<std::vector<std::byte>> bytesOf(const plan::Variable &variable);
  Expected<std::vector<std::byte>> merged(const plan::Variable &variable, const plan::Adapter &adapter);

  const plan::Plan &plan;
  const TrainedValues &trained;
  InitialWeights initial;
  std::map<std::string, const plan::Variable *> byName;
  std::map<std::string, const plan::Adapter *> adapters; ///< by the matrix
  std::set<std::string> partsOfAdapters;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_MODELVALUES_H
