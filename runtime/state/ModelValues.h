//===- ModelValues.h - a model's values after training, as exports write them -*- C++ -*-===//
//
// A plan may store an initializer differently from the model: in a narrower type, or as a frozen matrix and a low-rank
// adapter. ModelValues converts it back to the model's type and adds the adapter.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_MODELVALUES_H
#define TCC_RUNTIME_STATE_MODELVALUES_H

#include "runtime/state/Weights.h"

#include <functional>
#include <set>

namespace tcc::runtime {

/// Values that differ from the plan's initial values. By default there are none.
struct TrainedValues {
  std::function<bool(const plan::Variable &)> has = [](const plan::Variable &) { return false; };
  /// Streams all bytes of a variable for which `has` is true.
  std::function<Status(const plan::Variable &, const ByteSink &)> stream = nullptr;
};

/// The name relative to the submodule `root`: "a.weight" for "model.a.weight" in "model"; nothing for a name outside
/// it. With an empty root, the name itself.
std::optional<std::string> insideRoot(const std::string &name, const std::string &root);
/// The error that no name is inside `root`.
Status noNameInside(const plan::Plan &plan, const std::string &root);

class ModelValues {
public:
  /// All of these outlive this object. `folder`: where the plan was compiled.
  ModelValues(const plan::PlanReader &reader, const TrainedValues &trained, const std::string &folder);

  /// True for A or B of an adapter, which is not in the model.
  bool isAdapter(const plan::Variable &variable) const { return partsOfAdapters.count(variable.name()) != 0; }
  /// True if the value differs from that in the model's file.
  bool isChanged(const plan::Variable &variable) const;
  /// The variable's type in the model.
  plan::TensorType typeOf(const plan::Variable &variable) const;

  /// Streams the value for the model. Errors: missing external weights; those of the sink.
  Status stream(const plan::Variable &variable, const ByteSink &sink);
  /// The same in torch's layout.
  Status streamTorch(const plan::Variable &variable, const ByteSink &sink);
  /// The value as training stores it, for example part of an adapter. Integers of 8 or 4 bits are widened to f32.
  Expected<std::vector<std::byte>> held(const plan::Variable &variable);
  Expected<std::vector<std::byte>> ofTie(const plan::Tie &tie);

  const plan::Variable &variable(const std::string &name) const { return *byName.at(name); }

private:
  Expected<std::vector<std::byte>> bytesOf(const plan::Variable &variable);
  /// The scales of a variable in 8 or 4 bits, in f32.
  Expected<std::vector<std::byte>> scalesOf(const plan::Variable &variable);
  /// Takes the values of `count` rows (along the first axis) from row `begin` on, as f32 or the variable's own type.
  using RowSink = std::function<Status(uint64_t begin, uint64_t count, std::span<const std::byte> values)>;
  /// All rows at once; of a tensor in 4 bits a few at a time, since it is eight times as large when widened.
  Status streamRows(const plan::Variable &variable, const RowSink &sink);
  Status streamMerged(const plan::Variable &variable, const plan::Adapter &adapter, const ByteSink &sink);

  const plan::Plan &plan;
  const TrainedValues &trained;
  InitialWeights initial;
  std::map<std::string, const plan::Variable *> byName;
  std::map<std::string, const plan::Adapter *> adapters; ///< by the matrix
  std::set<std::string> partsOfAdapters;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_MODELVALUES_H
