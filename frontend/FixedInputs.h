//===- FixedInputs.h - graph inputs that are settings -----------*- C++ -*-===//
#ifndef TCC_FRONTEND_FIXEDINPUTS_H
#define TCC_FRONTEND_FIXEDINPUTS_H

#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"

namespace tcc::frontend {

struct FixedInputs {
  std::vector<std::string> files; ///< that values were read from, each once
};

/// Turns the inputs that model.fix names into initializers: constants of the program, and inputs with a default in an
/// exported model. A single number fills the whole input. `dims` and `shapes` give the extents that the file leaves
/// open; `where` has places of recipe keys. Errors: no such input (names the nearest), a shape or a value that does not
/// fit the input, a file or tensor that cannot be read.
Expected<FixedInputs> fixInputs(OnnxFile &file, const std::map<std::string, FixedValue> &fixed,
                                      const std::map<std::string, int64_t> &dims,
                                      const std::map<std::string, std::vector<int64_t>> &shapes,
                                      const std::map<std::string, std::string> &where);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_FIXEDINPUTS_H
