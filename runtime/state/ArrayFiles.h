//===- ArrayFiles.h - predictions and gradients as files -------------------===//
//
// The suffix of the path chooses the format: .safetensors, .npz, .npy (one array) or .csv (a row for each sample).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_ARRAYFILES_H
#define TCC_RUNTIME_STATE_ARRAYFILES_H

#include "runtime/state/Safetensors.h"

#include <span>

namespace tcc::runtime {

/// The first is what a path without a suffix of the others gives if it names no regular file: a device, a FIFO.
enum class ArrayFormat { Safetensors, Npz, Npy, Csv };

/// The format that the path's suffix names. Error (wrong usage): none of `allowed`.
Expected<ArrayFormat> arrayFormatOf(const std::string &path, std::span<const ArrayFormat> allowed);

/// What a file is to hold, before its values are known.
struct ArraySpec {
  std::string name;
  plan::TensorType type;
  int sampleAxis = -1; ///< -1: none
};
/// Error: what writeArrays would refuse of the place, before any array is computed.
Status checkPlace(const std::string &path, ArrayFormat format);

/// Error: the format cannot hold these arrays, and which can.
Status checkArrays(const std::string &path, ArrayFormat format, const std::vector<ArraySpec> &arrays);

/// Writes arrays that checkArrays accepts; the file appears whole or not at all. Behind a floating-point
/// array NAME [samples, classes], a CSV file has a column NAME.class: the name of the largest of each row.
Status writeArrays(const std::string &path, ArrayFormat format, std::vector<StreamedValue> arrays,
                   const std::vector<std::string> &classes = {});

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_ARRAYFILES_H
