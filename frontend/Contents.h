//===- Contents.h - classify an initializer by its values -------*- C++ -*-===//
//
// Exporters lift constants of a model's code (masks, position tables) into initializers, where they look like weights.
// Their values identify them: a matrix of 0 and −∞ is no weight.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_CONTENTS_H
#define TCC_FRONTEND_CONTENTS_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// Names the kind of constant that the values form: "a mask of 0 and -inf", "a table of sines or cosines", "a grid of
/// evenly spaced coordinates", "positions 0, 1, 2, …"; empty if they may be a weight's. `multiplied`: a matrix product
/// or convolution reads it as its weight, so that zeros and ones are no mask. Errors: bytes that cannot be read.
Expected<std::string> constantContents(const OnnxInitializer &initializer, bool multiplied);

/// The value of an initializer of one element. Errors: bytes that cannot be read.
Expected<double> onlyElement(const OnnxInitializer &initializer);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_CONTENTS_H
