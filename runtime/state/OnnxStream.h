//===- OnnxStream.h - ONNX files written tensor by tensor ----------------===//
//
// Serialising a model would need its bytes in memory a second time, and tensors with copies of their bytes, too. Here
// the large initializers stay empty until they are written: their sizes are known, and protobuf's lengths follow from
// sizes (https://protobuf.dev/programming-guides/encoding, "Length-Delimited Records"; fields may come in any order).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_ONNXSTREAM_H
#define TCC_RUNTIME_STATE_ONNXSTREAM_H

#include "runtime/state/Weights.h"

#include <functional>
#include <map>

namespace onnx {
class ModelProto;
}

namespace tcc {
class AtomicFile;
}

namespace tcc::runtime {


/// The raw bytes of one initializer, streamed piece by piece when they are written.
struct StreamedTensor {
  uint64_t bytes = 0;
  /// Calls its argument with one piece after the other, `bytes` in total; a piece must be valid only during that call.
  std::function<Status(const ByteSink &)> make;
};

/// Writes `model` to `file` (not committed yet); initializer number i of its graph gets the bytes of `tensors[i]`.
/// Needs memory only for the model without these. Empties `model`. Error: a stream's, a full disk, 2 GiB or more
/// (protobuf's limit).
Status writeOnnx(onnx::ModelProto &model, const std::map<int, StreamedTensor> &tensors, AtomicFile &file);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_ONNXSTREAM_H
