//===- OnnxStream.h - ONNX files written tensor by tensor ----------------===//
//
// A serialised model is the whole once more in memory, and so are tensors that hold copies of their bytes. Here a model's
// large initializers stay empty until they are written: their sizes are known, and protobuf's lengths follow from sizes
// (https://protobuf.dev/programming-guides/encoding, "Length-Delimited Records"; fields may come in any order).
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


/// The raw bytes of one initializer, handed over piece by piece when it is its turn.
struct StreamedTensor {
  uint64_t bytes = 0;
  /// Calls its argument with one piece after the other, `bytes` in all; a piece needs to be valid during that call alone.
  std::function<Status(const ByteSink &)> make;
};

/// Writes `model` to `file` (not committed yet); initializer number i of its graph gets the bytes of `tensors[i]`. Takes
/// memory for the model without these. Empties `model`. Error: a source's, a full disk, 2 GiB or more (protobuf's limit).
Status writeOnnx(onnx::ModelProto &model, const std::map<int, StreamedTensor> &tensors, AtomicFile &file);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_ONNXSTREAM_H
