//===- OnnxStream.cpp - ONNX files written tensor by tensor --------------===//
#include "runtime/state/OnnxStream.h"
#include "support/AtomicFile.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <limits>
#include <onnx/onnx-ml.pb.h>

using namespace tcc;
using namespace tcc::runtime;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::internal::WireFormatLite;

namespace {
/// The tag and length that precede a field of `bytes` bytes.
std::string head(int field, uint64_t bytes) {
  uint8_t text[2 * 10];
  uint8_t *end = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), text);
  end = CodedOutputStream::WriteVarint64ToArray(bytes, end);
  return {reinterpret_cast<char *>(text), reinterpret_cast<char *>(end)};
}

Status writeMessage(const google::protobuf::MessageLite &message, AtomicFile &file) {
  std::string bytes;
  if (!message.SerializePartialToString(&bytes))
    return error("the model is too large for one file");
  return file.write(bytes);
}
} // namespace

Status tcc::runtime::writeOnnx(onnx::ModelProto &model, const std::map<int, StreamedTensor> &tensors,
                                     AtomicFile &file) {
  onnx::GraphProto graph;
  graph.Swap(model.mutable_graph());
  model.clear_graph();
  google::protobuf::RepeatedPtrField<onnx::TensorProto> initializers;
  initializers.Swap(graph.mutable_initializer());

  auto streamed = [&](int i) {
    auto found = tensors.find(i);
    return found == tensors.end() ? nullptr : &found->second;
  };
  auto tensorBytes = [&](int i) {
    uint64_t bytes = initializers.Get(i).ByteSizeLong();
    if (const StreamedTensor *source = streamed(i))
      bytes += head(onnx::TensorProto::kRawDataFieldNumber, source->bytes).size() + source->bytes;
    return bytes;
  };
  uint64_t graphBytes = graph.ByteSizeLong();
  for (int i = 0; i < initializers.size(); ++i) {
    uint64_t bytes = tensorBytes(i);
    graphBytes += head(onnx::GraphProto::kInitializerFieldNumber, bytes).size() + bytes;
  }
  if (model.ByteSizeLong() + graphBytes + 16 > uint64_t(std::numeric_limits<int32_t>::max()))
    return error("the model is too large for one file of 2 GiB, protobuf's limit");

  Status status = writeMessage(model, file);
  if (status.ok())
    status = file.write(head(onnx::ModelProto::kGraphFieldNumber, graphBytes));
  if (status.ok())
    status = writeMessage(graph, file);
  for (int i = 0; status.ok() && i < initializers.size(); ++i) {
    status = file.write(head(onnx::GraphProto::kInitializerFieldNumber, tensorBytes(i)));
    if (status.ok())
      status = writeMessage(initializers.Get(i), file);
    const StreamedTensor *source = streamed(i);
    if (!status.ok() || !source)
      continue;
    status = file.write(head(onnx::TensorProto::kRawDataFieldNumber, source->bytes));
    uint64_t written = 0;
    if (status.ok())
      status = source->make([&](std::span<const std::byte> piece) {
        written += piece.size();
        return file.write(piece.data(), piece.size());
      });
    if (status.ok() && written != source->bytes)
      status = error("internal error: initializer '{}' has {} bytes, not {}", initializers.Get(i).name(), written,
                           source->bytes);
  }
  return status;
}
