//===- Weights.h - values of a plan's variables, from files and to the device -===//
#ifndef TCC_RUNTIME_STATE_WEIGHTS_H
#define TCC_RUNTIME_STATE_WEIGHTS_H

#include "runtime/Device.h"
#include "runtime/state/NameList.h"
#include "runtime/state/Safetensors.h"

#include <map>
#include <optional>
#include <set>

namespace tcc::runtime {

/// Before the module's names in a file of peft's.
constexpr std::string_view kPeftPrefix = "base_model.model.";

/// The name of a variable in the torch module's state_dict: the graph's where no other is known.
const std::string &torchName(const plan::Variable &variable);
/// The shape that goes with it; `type` has the variable's shape.
plan::TensorType torchType(const plan::Variable &variable, const plan::TensorType &type);

/// Which variables some entry writes: by index into Plan.variables.
std::vector<bool> writtenVariables(const plan::Plan &plan);

/// Is the variable one of the model's initializers: a parameter or frozen?
inline bool isModelValue(const plan::Variable &variable) {
  return variable.role() == plan::PARAMETER || variable.role() == plan::FROZEN;
}

/// The variables that hold scales of others' integers.
std::set<std::string> scaleNames(const plan::Plan &plan);

/// The variables' values before training, read from the plan's payloads and external files. These are in `folder`, the
/// one of the plan as it was compiled.
class InitialWeights {
public:
  InitialWeights(const plan::PlanReader &reader, std::string folder) : reader(reader), folder(std::move(folder)) {}

  /// The variable's bytes, valid as long as this object lives. Error: the external file is missing or too short.
  Expected<std::span<const std::byte>> bytes(const plan::Variable &variable);

  /// Hands the same bytes over piece by piece, and gives each piece's pages back to the system: a file that is read so takes
  /// no memory. Error: as `bytes`, perhaps after the last piece, or the sink's.
  Status stream(const plan::Variable &variable, const ByteSink &sink);

private:
  /// The file of an external value and its bytes in it, not hashed yet.
  Expected<std::pair<const MappedFile *, std::span<const std::byte>>> external(const plan::Variable &variable);

  const plan::PlanReader &reader;
  std::string folder;
  std::map<std::string, std::shared_ptr<const MappedFile>> files;
  std::map<std::string, std::vector<std::byte>> filled;
};

/// Identity of a value as the plan starts with it, its scales included: the same whether the plan holds the bytes or
/// refers to a file.
uint64_t initialIdentity(const plan::Plan &plan, const plan::Variable &variable);

/// How weights that are given compare with the model's values, by name.
struct WeightsFit {
  size_t loaded = 0;
  NameList missing;    ///< values that training starts from and the weights lack; they keep the model's own
  NameList unexpected; ///< weights that the model has no value for
  NameList different;  ///< of another type or shape; frozen in a run with another value
  std::vector<int> replaced; ///< frozen variables, written by no entry, that got another value than the plan's
  bool averages = false;     ///< they are averaged weights: RUN@best, chosen by a metric of these
  NameList kept;       ///< other frozen values that a file lacks; they keep the model's own, which is no fault

  bool complete() const { return missing.empty() && unexpected.empty() && different.empty(); }
  /// "missing are 'a', 'b'; the model has no 'c'; …"
  std::string text() const;
};

/// The accepted weights: exactly the expected ones; the same, but any may be missing; those that fit.
enum class WeightsRule { Strict, MayBeMissing, WhatFits };

/// Copies weights into the variables of the same names, or of the same names in torch, peft's included: those of a
/// safetensors file, or of a run (RUN[@STEP|@last|@best]). A file without any adapter leaves the plan's as they are.
/// Expected are all parameters and running statistics; other frozen values, and copies of tied weights, may be there or
/// not. Error: the weights that the rule does not accept, all of them listed; nothing fits. Nothing is copied on an
/// error. Of a shard, `rank` takes its own part.
Expected<WeightsFit> loadWeights(const plan::Plan &plan, Device &device, const std::string &from, WeightsRule rule,
                                 uint32_t rank = 0);

/// The transpose of a row-major matrix.
std::vector<std::byte> transposedMatrix(std::span<const std::byte> elements, uint64_t rows, uint64_t columns);

/// The elements of the original of `tie`, in the copy's order of axes.
Expected<std::vector<std::byte>> tiedBytes(const plan::Tie &tie, const plan::Variable &of,
                                                 std::span<const std::byte> elements);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_WEIGHTS_H
