//===- Parameters.h - which initializers are trained ------------*- C++ -*-===//
//
// Every initializer becomes a parameter (trained), a frozen variable, or a constant of the program. By default,
// parameters are the floating-point initializers that the exporter's notes call parameters, of any rank. Without such
// notes they are those of rank 1 and more that are no buffer, running statistic or lifted constant, scalars with a
// module's name, and tensors of Constant nodes and inner graphs that are read or named like weights. The recipe's
// model.trainable and model.frozen choose among them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_PARAMETERS_H
#define TCC_FRONTEND_PARAMETERS_H

#include "compiler/model/TorchShape.h"
#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"
#include "frontend/WeightReads.h"
#include "frontend/Weights.h"

namespace tcc::frontend {

enum class Role { Parameter, Frozen, Constant };

/// The lists by which reports and recipes sort initializers; each initializer is in exactly one.
enum class List { Trained, Frozen, Buffer, Constant };

/// "trained", "frozen", "buffer", "constant".
const char *listName(List list);

struct InitializerRole {
  Role role = Role::Constant;
  List list = List::Constant;
  std::string display;           ///< the one parameter it was folded from, by the exporter's notes
  std::string node;              ///< a node that reads it
  std::vector<std::string> uses; ///< "bias", "norm", "embedding", "1d"
  bool lifted = false;           ///< a lifted constant or running statistic
  std::string sign;              ///< why it is trained or not
  bool doubtful = false;         ///< trained although no sign says that it is a weight
  std::vector<std::string> sources; ///< the parameters of the module that it was computed from
  std::string function;          ///< the computation, if it does more than move their elements: not to be trained
  TorchShape torch;              ///< its shape in the module
  std::string torchName;         ///< its parameter's name in the module, if that differs and is certain
  bool namedByNode = false;      ///< `torchName` follows from its reader's name only
  bool fourBits = false;         ///< a weight, or its zero points, that the file stores in 4 bits
  bool computed = false;         ///< no part of the module's state, by the exporter's notes
};

struct Roles {
  std::map<std::string, InitializerRole> initializers;
  std::vector<std::string> warnings;
  std::vector<std::string> refusals; ///< values stored in place of parameters; if there are any, training is refused
};

/// Initializers up to this size (bytes) that are no parameters are constants of the program.
constexpr uint64_t kConstantBytes = 64 * 1024;

/// `graph` is the prepared one. Errors: a glob of the recipe that matches nothing, with its place (`where`, by key) and
/// the nearest names.
Expected<Roles> decideRoles(const OnnxFile &file, const onnx::GraphProto &graph, const ModelSettings &settings,
                            const std::map<std::string, std::string> &where, const UseOfInput &useOfInput);

/// True if an initializer of that name is a parameter.
bool isTrained(const Roles &roles, const std::string &name);

/// All values that are stored in a parameter's place but cannot be trained as that parameter.
std::vector<std::string> refusalsOf(const Restored &restored, const Roles &roles);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_PARAMETERS_H
