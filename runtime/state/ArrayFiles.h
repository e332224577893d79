//===- ArrayFiles.h - predictions and gradients as files -------------------===//
//
// The suffix of the path chooses the format: .safetensors, .npz, .npy (one array) or .csv (a row for each sample).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_ARRAYFILES_H
#define TCC_RUNTIME_STATE_ARRAYFILES_H

#include "runtime/tensors/Safetensors.h"

#include <span>

namespace tcc::runtime {

/// Safetensors is also the format for a device or FIFO whose path has no suffix of the other formats.
enum class ArrayFormat { Safetensors, Npz, Npy, Csv };

/// The format that the path's suffix names. Error (wrong usage): none of `allowed`.
Expected<ArrayFormat> arrayFormatOf(const std::string &path, std::span<const ArrayFormat> allowed);

/// An array to be written, before its values are known.
struct ArraySpec {
  std::string name;
  plan::TensorType type;
  int sampleAxis = -1; ///< -1: none
};
/// Checks, before any array is computed, that writeArrays will accept the path. Error: why not.
Status checkPlace(const std::string &path, ArrayFormat format);

/// Error: the format cannot hold these arrays; the message names formats that can.
Status checkArrays(const std::string &path, ArrayFormat format, const std::vector<ArraySpec> &arrays);

/// Writes arrays that checkArrays accepts; the file appears whole or not at all. After a floating-point array NAME
/// [samples, classes], a CSV file has a column NAME.class with the name of each row's largest class.
Status writeArrays(const std::string &path, ArrayFormat format, std::vector<StreamedValue> arrays,
                   const std::vector<std::string> &classes = {});

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_ARRAYFILES_H
