//===- Safetensors.h - the tensor format of data, weights and checkpoints -===//
//
// A safetensors file is u64 header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}}, then the bytes
// of all tensors without gaps (https://github.com/huggingface/safetensors, format section).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TENSORS_SAFETENSORS_H
#define TCC_RUNTIME_TENSORS_SAFETENSORS_H

#include "runtime/plan/DType.h"
#include "support/ByteSink.h"
#include "support/MappedFile.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::runtime {

struct Tensor {
  std::string name;
  plan::TensorType type;
  std::span<const std::byte> bytes; ///< row-major, dense, little endian; perhaps unaligned
};

/// A mapped file; tensors are sorted by name.
class SafetensorsFile {
public:
  /// Checks the header against the file: every error says what is wrong and with which tensor.
  static Expected<SafetensorsFile> open(const std::string &path);
  static Expected<SafetensorsFile> parse(std::shared_ptr<const MappedFile> file);

  const std::vector<Tensor> &tensors() const { return all; }
  const Tensor *find(std::string_view name) const;
  const std::map<std::string, std::string> &metadata() const { return notes; }
  const std::shared_ptr<const MappedFile> &file() const { return mapped; }

private:
  std::shared_ptr<const MappedFile> mapped;
  std::vector<Tensor> all;
  std::map<std::string, std::string> notes;
};

/// A tensor whose bytes are streamed piece by piece when it is written.
struct StreamedValue {
  std::string name;
  plan::TensorType type;
  std::function<Status(const ByteSink &)> stream;
};

/// The order of tensors in a file: wide elements come first so that every tensor stays aligned, then by name.
bool comesBefore(const StreamedValue &a, const StreamedValue &b);

/// Offset of the first tensor's bytes in the file that writeSafetensors makes of these; does not call their streams.
uint64_t safetensorsDataOffset(std::vector<StreamedValue> tensors);

/// The metadata that mark the shard of a checkpoint, for writeSafetensors.
extern const std::map<std::string, std::string> kShardMetadata;

/// Writes the file atomically, with tensors in their order (comesBefore), so its bytes depend only on the content.
/// Returns the XXH3-64 of the file.
Expected<uint64_t> writeSafetensors(const std::string &path, std::vector<StreamedValue> tensors,
                                    const std::map<std::string, std::string> &metadata = {});
Expected<uint64_t> writeSafetensors(const std::string &path, const std::vector<Tensor> &tensors,
                                    const std::map<std::string, std::string> &metadata = {});

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TENSORS_SAFETENSORS_H
