//===- PlanWriter.cpp - the bytes of a plan file -------------------------===//
//
// The header contains the payload offsets as varints, and the offsets depend on the header's length. Its length grows
// with the offsets, so repeating the layout from zero upwards ends at the smallest consistent one.
//
//===----------------------------------------------------------------------===//
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Preamble.h"
#include "support/AtomicFile.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace tcc::plan {

namespace {
constexpr char kZeros[kAlignmentBytes] = {};

uint64_t alignUp(uint64_t value) { return (value + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }
} // namespace

std::string serialize(const Plan &plan) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    plan.SerializeToCodedStream(&coded);
  }
  return bytes;
}

uint64_t hashBytes(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

struct ByteHash::State {
  XXH3_state_t *of = XXH3_createState();
  ~State() { XXH3_freeState(of); }
};

ByteHash::ByteHash() : state(std::make_unique<State>()) { XXH3_64bits_reset(state->of); }
ByteHash::~ByteHash() = default;
void ByteHash::add(const void *data, size_t bytes) { XXH3_64bits_update(state->of, data, bytes); }
uint64_t ByteHash::value() const { return XXH3_64bits_digest(state->of); }

uint32_t PlanWriter::addPayloadView(const void *data, size_t bytes) {
  uint64_t hash = hashBytes(data, bytes);
  auto [begin, end] = byHash.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Bytes &known = payloads[it->second];
    if (known.bytes == bytes && (bytes == 0 || std::memcmp(known.data, data, bytes) == 0))
      return it->second;
  }
  auto index = static_cast<uint32_t>(payloads.size());
  payloads.push_back({data, bytes, hash});
  byHash.emplace(hash, index);
  return index;
}

uint32_t PlanWriter::addPayload(const void *data, size_t bytes) {
  size_t before = payloads.size();
  uint32_t index = addPayloadView(data, bytes);
  if (payloads.size() > before) {
    owned.emplace_back(static_cast<const char *>(data), bytes);
    payloads[index].data = owned.back().data();
  }
  return index;
}

Expected<std::string> PlanWriter::makeHead(const Plan &plan, std::vector<uint64_t> &offsets) const {
  Plan header = plan;
  header.set_format_version(kPlanFormatVersion);
  header.clear_payloads();
  for (const Bytes &payload : payloads) {
    Payload *entry = header.add_payloads();
    entry->set_bytes(payload.bytes);
    entry->set_xxh3(payload.hash);
  }
  offsets.assign(payloads.size(), 0);
  std::string serialized;
  for (uint64_t base = 0;;) {
    uint64_t at = base;
    for (size_t i = 0; i < payloads.size(); ++i) {
      offsets[i] = at;
      header.mutable_payloads(static_cast<int>(i))->set_offset(at);
      at = alignUp(at + payloads[i].bytes);
    }
    if (header.ByteSizeLong() > kMaxHeaderBytes)
      return error("the plan's header would be {} bytes, more than the format's {}", header.ByteSizeLong(),
                   kMaxHeaderBytes);
    uint64_t needed = alignUp(kPreambleBytes + header.ByteSizeLong() + sizeof(uint64_t));
    if (needed <= base) {
      serialized = serialize(header);
      break;
    }
    base = needed;
  }
  std::string head(kMagic);
  uint32_t version = kPlanFormatVersion, length = static_cast<uint32_t>(serialized.size());
  head.append(reinterpret_cast<const char *>(&version), 4).append(reinterpret_cast<const char *>(&length), 4);
  head += serialized;
  uint64_t checksum = hashBytes(head.data(), head.size());
  head.append(reinterpret_cast<const char *>(&checksum), 8);
  if (!payloads.empty())
    head.resize(offsets[0], '\0');
  return head;
}

Expected<std::string> PlanWriter::toBuffer(const Plan &plan) const {
  std::vector<uint64_t> offsets;
  Expected<std::string> head = makeHead(plan, offsets);
  if (!head)
    return head;
  std::string bytes = head.take();
  if (!payloads.empty())
    bytes.reserve(offsets.back() + payloads.back().bytes);
  for (size_t i = 0; i < payloads.size(); ++i) {
    bytes.resize(offsets[i], '\0');
    bytes.append(static_cast<const char *>(payloads[i].data), payloads[i].bytes);
  }
  return bytes;
}

Status PlanWriter::write(const Plan &plan, const std::string &path) const {
  std::vector<uint64_t> offsets;
  Expected<std::string> head = makeHead(plan, offsets);
  if (!head)
    return head.status().withContext(path);
  std::vector<std::string_view> pieces{*head};
  uint64_t at = head->size();
  for (size_t i = 0; i < payloads.size(); ++i) {
    pieces.emplace_back(kZeros, offsets[i] - at);
    pieces.emplace_back(static_cast<const char *>(payloads[i].data), payloads[i].bytes);
    at = offsets[i] + payloads[i].bytes;
  }
  return writePieces(pieces, path);
}

Status PlanWriter::writeBytes(std::string_view bytes, const std::string &path) { return writePieces({bytes}, path); }

Status PlanWriter::writePieces(const std::vector<std::string_view> &pieces, const std::string &path) {
  Expected<tcc::AtomicFile> file = tcc::AtomicFile::create(path, OwnFile::Plan);
  if (!file)
    return file.status();
  for (std::string_view piece : pieces)
    if (Status status = file->write(piece); !status.ok())
      return status;
  return file->commit();
}

} // namespace tcc::plan
