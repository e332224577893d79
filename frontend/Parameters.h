//===- Parameters.h - which initializers are trained ------------*- C++ -*-===//
//
// Every initializer becomes a parameter (trained), a frozen variable, or a constant of the program. The default set of
// parameters is every floating-point initializer of rank 1 and more that is no running statistic and no lifted constant,
// and of the tensors of Constant nodes and inner graphs those that are read, or named, as weights; the recipe's
// model.trainable and model.frozen choose from it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_PARAMETERS_H
#define TCC_FRONTEND_PARAMETERS_H

#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"
#include "frontend/TorchShape.h"
#include "frontend/WeightReads.h"

namespace tcc::frontend {

enum class Role { Parameter, Frozen, Constant };

struct InitializerRole {
  Role role = Role::Constant;
  std::string display;           ///< the one parameter it was folded from, by the exporter's notes
  std::string node;              ///< a node that reads it
  std::vector<std::string> uses; ///< "bias", "norm", "embedding", "1d"
  bool lifted = false;           ///< a lifted constant or running statistic
  std::string sign;              ///< why it is trained or not
  bool doubtful = false;         ///< trained for want of any sign
  TorchShape torch;              ///< its shape in the module
  std::string torchName;         ///< its parameter's name in the module, where that is another and certain: TorchNames.h
  bool namedByNode = false;      ///< only the name of its reader tells that name
  bool computed = false;         ///< no part of the module's state, by the exporter's notes
};

struct Roles {
  std::map<std::string, InitializerRole> initializers;
  std::vector<std::string> warnings;
};

/// Initializers up to this size (bytes) that are no parameters are constants of the program.
constexpr uint64_t kConstantBytes = 64 * 1024;

/// `graph` is the prepared one. Errors: a glob of the recipe that matches nothing, with its place (`where`, by key) and the
/// nearest names.
Expected<Roles> decideRoles(const OnnxFile &file, const onnx::GraphProto &graph, const ModelSettings &settings,
                                  const std::map<std::string, std::string> &where,
                                  const ReadWhenCompiling &readWhenCompiling);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_PARAMETERS_H
