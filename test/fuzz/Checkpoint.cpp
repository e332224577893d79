//===- Checkpoint.cpp - fuzz target: manifests and checkpoints -----------===//
//
// An input is a manifest, a zero byte, and the bytes of a shard. If the manifest is accepted, its checksums are
// corrected, each of its shards is written with those bytes, and the checkpoint is opened and read.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/state/SealedJson.h"
#include "test/fuzz/InputFolder.h"

using namespace tcc;
using namespace tcc::runtime;

#ifdef TCC_FUZZ
#include "test/fuzz/MutateJson.h"

/// Changes the manifest as a JSON tree, or any byte.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string_view all(reinterpret_cast<const char *>(data), size);
  const size_t end = std::min(all.find('\0'), size);
  auto root = nlohmann::json::parse(all.substr(0, end), nullptr, /*allow_exceptions=*/false);
  if (random() % 8 == 0 || root.is_discarded())
    return LLVMFuzzerMutate(data, size, most);
  for (uint64_t left = 1 + random() % 4; left; --left)
    fuzz::mutateJson(root, random);
  std::string bytes =
      root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + std::string(all.substr(end));
  if (bytes.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
#endif

namespace {
std::span<const uint8_t> bytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

/// The text of the manifest, in its own version, with the shard's true size and checksum.
std::string withTrueChecksums(Manifest manifest, std::string_view text, std::string_view shard) {
  const uint64_t hash = plan::hashBytes(shard.data(), shard.size());
  if (manifest.version == 1) {
    nlohmann::json root = nlohmann::json::parse(text);
    root["files"]["state.safetensors"]["xxh3"] = checksumText(hash);
    return root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  for (ManifestShard &one : manifest.shards) {
    one.bytes = shard.size();
    one.hash = hash;
  }
  return manifestText(manifest);
}
} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const fuzz::InputFolder folder;
  const std::string_view all(reinterpret_cast<const char *>(data), size);
  const size_t end = std::min(all.find('\0'), size);
  const std::string_view text = all.substr(0, end), shard = all.substr(std::min(end + 1, size));
  folder.clear();
  folder.write("checkpoints/best.json", bytesOf(text));
  (void)readBest(folder.path);
  (void)parseManifest(text, "manifest.json");
  auto manifest = parseManifestBody(text, "manifest.json");
  if (!manifest || manifest->shards.size() > 8)
    return 0;
  // An accepted manifest can be written, and reads back as the same manifest.
  if (manifest->version > 1) {
    const std::string written = manifestText(*manifest);
    auto again = parseManifest(written, "manifest.json");
    if (!again || manifestText(*again) != written) {
      std::fprintf(stderr, "%s\n%s\n", written.c_str(), again ? "reads otherwise" : again.message().c_str());
      std::abort();
    }
  }
  const std::string place = "checkpoints/step-" + std::to_string(manifest->position.step);
  for (const ManifestShard &one : manifest->shards)
    folder.write(place + "/" + one.file, bytesOf(shard));
  folder.write(place + "/manifest.json", bytesOf(withTrueChecksums(*manifest, text, shard)));
  auto reference = findCheckpoint({folder.path, "last"});
  auto checkpoint = reference ? Checkpoint::open(*reference) : Expected<Checkpoint>(reference.status());
  if (!checkpoint)
    return 0;
  unsigned sum = 0;
  for (const ManifestTensor &tensor : checkpoint->manifest().tensors) {
    std::vector<std::byte> copy(plan::tensorBytes(tensor.type).value());
    if (copy.size() > shard.size() * manifest->shards.size())
      std::abort(); // the tensor is larger than the shards: part of it would be zeros that no shard holds
    checkpoint->copyTo(tensor, copy.data());
    for (std::byte byte : checkpoint->bytes(tensor))
      sum += unsigned(byte);
  }
  static volatile unsigned sink;
  sink = sum;
  return 0;
}
