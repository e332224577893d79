//===- ShapeChoice.h - the shape that each sample goes to ------------------===//
//
// An entry in several shapes has a BatchReader for each. A sample goes to the smallest shape that holds it in every
// axis. The choice follows from the sizes of samples alone, so threads, ranks and resumed runs agree.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_SHAPECHOICE_H
#define TCC_RUNTIME_DATA_SHAPECHOICE_H

#include "runtime/data/BatchReader.h"

namespace tcc::runtime {

using ShapeReaders = std::span<const std::unique_ptr<BatchReader>>;

/// Shapes by the memory of one sample, the least first, and the largest batch before the others.
std::vector<size_t> shapesBySize(ShapeReaders shapes);
/// The smallest shape that holds each sample, of several that take the same samples the one with the largest batch; for
/// a sample that none holds, the shape that cuts least of it.
std::vector<uint8_t> shapesOfSamples(ShapeReaders shapes);
/// By shape: those that take the same samples in smaller batches.
std::vector<std::vector<uint8_t>> smallerBatches(ShapeReaders shapes);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_SHAPECHOICE_H
