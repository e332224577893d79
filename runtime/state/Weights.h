//===- Weights.h - values of a plan's variables, from files and to the device -===//
#ifndef TCC_RUNTIME_STATE_WEIGHTS_H
#define TCC_RUNTIME_STATE_WEIGHTS_H

#include "runtime/Device.h"
#include "runtime/tensors/Safetensors.h"
#include "support/ShortText.h"

#include <map>
#include <optional>
#include <set>

namespace tcc::runtime {

/// Prefix of the module's names in a file of peft.
constexpr std::string_view kPeftPrefix = "base_model.model.";

/// The name of a variable in the torch module's state_dict; its name in the graph if no other is known.
const std::string &torchName(const plan::Variable &variable);
/// Its type in the torch module; `type` has the variable's shape.
plan::TensorType torchType(const plan::Variable &variable, const plan::TensorType &type);

/// Which variables some entry writes: by index into Plan.variables.
std::vector<bool> writtenVariables(const plan::Plan &plan);

/// True if the variable is an initializer of the model, a parameter or frozen.
inline bool isModelValue(const plan::Variable &variable) {
  return variable.role() == plan::PARAMETER || variable.role() == plan::FROZEN;
}

/// The variables that hold the scales of 8-bit variables.
std::set<std::string> scaleNames(const plan::Plan &plan);

/// The variables' values before training, read from the plan's payloads and from external files in `folder`, where the
/// plan was compiled.
class InitialWeights {
public:
  InitialWeights(const plan::PlanReader &reader, std::string folder) : reader(reader), folder(std::move(folder)) {}

  /// The variable's bytes, valid as long as this object lives. Error: the external file is missing or too short.
  Expected<std::span<const std::byte>> bytes(const plan::Variable &variable);

  /// Passes the same bytes to `sink` piece by piece, and releases each piece's pages, so that the file takes no memory.
  /// Error: as `bytes`, perhaps after the last piece, or the sink's.
  Status stream(const plan::Variable &variable, const ByteSink &sink);

private:
  /// The file of an external value and its bytes in it, not hashed yet.
  Expected<std::pair<const MappedFile *, std::span<const std::byte>>> external(const plan::Variable &variable);

  const plan::PlanReader &reader;
  std::string folder;
  std::map<std::string, std::shared_ptr<const MappedFile>> files;
  std::map<std::string, std::vector<std::byte>> filled;
};

/// What quantizeWeights wrote: tensors without their scales, how many of them it rounded, and all bytes.
struct QuantizedWeights {
  uint64_t tensors = 0, rounded = 0, bytes = 0;
};
/// Rounds the weights of a file or run (as loadWeights takes them, or in 16 bits) that the plan keeps in 8 or 4 bits,
/// and writes all to the safetensors file `to` under the names and in the types of checkpoints. Error: weights of
/// another model, or a plan without such weights.
Expected<QuantizedWeights> quantizeWeights(const plan::Plan &plan, const std::string &from, const std::string &to);

/// Identity of a variable's initial value, including its scales: the same whether the plan holds the bytes or refers to
/// a file.
uint64_t initialIdentity(const plan::Plan &plan, const plan::Variable &variable);

/// The result of comparing given weights with the model's values, by name.
struct WeightsFit {
  size_t loaded = 0;
  NameList missing;    ///< expected values that the weights lack; they keep the model's own
  NameList unexpected; ///< weights for which the model has no value
  NameList different;  ///< of another type or shape; or frozen in the run at another value
  std::vector<int> replaced; ///< frozen variables, written by no entry, whose value now differs from the plan's
  bool averages = false;     ///< the weights are averages: RUN@best, chosen by a metric of averages
  NameList kept;       ///< other frozen values that a file lacks; they keep the model's own, which is allowed

  bool complete() const { return missing.empty() && unexpected.empty() && different.empty(); }
  /// "missing are 'a', 'b'; the model has no 'c'; …"
  std::string text() const;
};

/// Which weights are accepted. Strict: exactly the expected ones; MayBeMissing: some may be missing; WhatFits: those
/// that fit, ignoring others.
enum class WeightsRule { Strict, MayBeMissing, WhatFits };

/// Copies the weights of a safetensors file or of a run (RUN[@STEP|@last|@best]) into the variables with their names,
/// which may be those of the graph, of torch or of peft; of sharded variables only the part of `rank`. All parameters
/// and running statistics are expected; other frozen values and copies of tied weights are optional. A file without any
/// adapter leaves the plan's adapters unchanged. Error, and nothing is copied: weights that the rule does not accept,
/// all of them listed; nothing fits.
Expected<WeightsFit> loadWeights(const plan::Plan &plan, Device &device, const std::string &from, WeightsRule rule,
                                 uint32_t rank = 0);

/// The transpose of a row-major matrix.
std::vector<std::byte> transposedMatrix(std::span<const std::byte> elements, uint64_t rows, uint64_t columns);

/// The elements of `of`, the original of `tie`, in the copy's order of axes.
Expected<std::vector<std::byte>> tiedBytes(const plan::Tie &tie, const plan::Variable &of,
                                                 std::span<const std::byte> elements);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_WEIGHTS_H
