//===- PlanFile.cpp - write and read a plan file --------------------------===//
//
// The header contains the payload offsets as varints, and the offsets depend on the header's length. Its length grows
// with the offsets, so repeating the layout from zero upwards ends at the smallest consistent one.
//
//===----------------------------------------------------------------------===//
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/Variants.h"
#include "support/AtomicFile.h"
#include "support/RegularFile.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <string_view>
#include <sys/mman.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tcc::plan {

/// The first bytes of every plan file.
constexpr std::string_view kMagic("TCCPLAN\0", 8);
/// Magic, format version, and the header's length.
constexpr uint64_t kPreambleBytes = 16;
constexpr uint64_t kMaxHeaderBytes = uint64_t(1) << 30;

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

namespace {
uint32_t readU32(const char *at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
bool allZero(const char *begin, const char *end) {
  for (; begin != end; ++begin)
    if (*begin != 0)
      return false;
  return true;
}
} // namespace

/// The bytes: a mapped file, or a copy in memory that starts at a 64-byte boundary like a mapping does.
struct PlanReader::Storage {
  const char *data = nullptr;
  size_t bytes = 0;
  bool mapped = false;
  std::unique_ptr<char, void (*)(void *)> memory{nullptr, ::free};

  ~Storage() {
    if (mapped)
      ::munmap(const_cast<char *>(data), bytes);
  }
};

PlanReader::PlanReader() = default;
PlanReader::PlanReader(PlanReader &&) = default;
PlanReader &PlanReader::operator=(PlanReader &&) = default;
PlanReader::~PlanReader() = default;

Expected<PlanReader> PlanReader::open(const std::string &path) {
  Expected<tcc::RegularFile> file =
      tcc::RegularFile::open(path, tcc::RegularFile::Accept::RegularFiles, "the plan");
  if (!file)
    return file.status();
  PlanReader reader;
  reader.name = path;
  reader.storage = std::make_unique<Storage>();
  reader.storage->bytes = static_cast<size_t>(file->bytes());
  if (reader.storage->bytes > 0) {
    void *address = ::mmap(nullptr, reader.storage->bytes, PROT_READ, MAP_PRIVATE, file->descriptor(), 0);
    if (address == MAP_FAILED)
      return error("{}: cannot map the plan: {}", path, std::strerror(errno));
    reader.storage->data = static_cast<const char *>(address);
    reader.storage->mapped = true;
  }
  if (Status status = reader.check(); !status.ok())
    return status.withContext(path);
  return reader;
}

Expected<PlanReader> PlanReader::fromBuffer(std::string bytes, const std::string &name) {
  PlanReader reader;
  reader.name = name;
  reader.storage = std::make_unique<Storage>();
  reader.storage->bytes = bytes.size();
  size_t rounded = (bytes.size() / kAlignmentBytes + 1) * kAlignmentBytes;
  reader.storage->memory.reset(static_cast<char *>(std::aligned_alloc(kAlignmentBytes, rounded)));
  if (!reader.storage->memory)
    return error("{}: not enough memory for a plan of {} bytes", name, bytes.size());
  std::memcpy(reader.storage->memory.get(), bytes.data(), bytes.size());
  reader.storage->data = reader.storage->memory.get();
  if (Status status = reader.check(); !status.ok())
    return status.withContext(name);
  return reader;
}

Expected<PlanReader> PlanReader::over(std::string_view bytes, const std::string &name) {
  PlanReader reader;
  reader.name = name;
  reader.storage = std::make_unique<Storage>();
  reader.storage->bytes = bytes.size();
  reader.storage->data = bytes.data();
  if (Status status = reader.check(); !status.ok())
    return status.withContext(name);
  return reader;
}

Status PlanReader::check() {
  const char *data = storage->data;
  uint64_t bytes = storage->bytes;
  if (!std::string_view(data, bytes).starts_with(kMagic))
    return error("not a plan: its first bytes are not those of a plan; give a file that tcc wrote");
  if (bytes < kPreambleBytes + sizeof(uint64_t))
    return error("header: the plan is cut short after {} bytes; compile again", bytes);
  uint32_t version = readU32(data + 8);
  if (version > kPlanFormatVersion)
    return error(
        "the plan has format version {}, newer than {}, the newest that this program reads; recompile the model "
        "with the tcc that came with this trun, or update trun",
        version, kPlanFormatVersion);
  uint64_t length = readU32(data + 12);
  if (kPreambleBytes + length + sizeof(uint64_t) > bytes)
    return error("header: the plan is cut short: its header takes {} bytes, the file has {}; compile again",
                 kPreambleBytes + length + sizeof(uint64_t), bytes);
  if (length > kMaxHeaderBytes)
    return error("header: a length of {} bytes is not allowed", length);
  uint64_t stored, headEnd = kPreambleBytes + length;
  std::memcpy(&stored, data + headEnd, sizeof(stored));
  if (hashBytes(data, headEnd) != stored)
    return error("header: the checksum does not match, the file is damaged; compile again");
  if (version < kPlanFormatVersion)
    return error("the plan has format version {}, this program reads {}; recompile the model with tcc", version,
                 kPlanFormatVersion);

  auto parsed = std::make_shared<Plan>();
  if (!parsed->ParseFromArray(data + kPreambleBytes, static_cast<int>(length)))
    return error("header: not a valid plan message; compile again");
  if (parsed->format_version() != version)
    return error("header: it states format version {}, the file's start {}", parsed->format_version(), version);

  uint64_t at = headEnd + sizeof(uint64_t);
  for (int i = 0; i < parsed->payloads_size(); ++i) {
    const Payload &payload = parsed->payloads(i);
    if (payload.offset() % kAlignmentBytes != 0 || payload.offset() < at)
      return error("payload {}: offset {} is not allowed", i, payload.offset());
    if (payload.offset() > bytes || payload.bytes() > bytes - payload.offset())
      return error("payload {}: the plan is cut short: {} bytes at offset {} are beyond the file's {}; compile again",
                   i, payload.bytes(), payload.offset(), bytes);
    if (!allZero(data + at, data + payload.offset()))
      return error("payload {}: the padding before it is not zero, the file is damaged; compile again", i);
    // Pages are released piece by piece, so that checking a large payload takes no more memory than the run does.
    constexpr uint64_t kPiece = uint64_t(1) << 20;
    ByteHash hash;
    for (uint64_t done = 0; done < payload.bytes(); done += kPiece) {
      hash.add(data + payload.offset() + done, std::min(kPiece, payload.bytes() - done));
      if (payload.bytes() > kPiece)
        releasePages();
    }
    releasePages();
    if (hash.value() != payload.xxh3())
      return error("payload {}: the checksum does not match, the file is damaged; compile again", i);
    at = payload.offset() + payload.bytes();
  }
  if (at != bytes)
    return error("the file has {} bytes after its last payload; it is damaged", bytes - at);
  message = std::move(parsed);
  return Status::success();
}

void PlanReader::selectTarget(uint32_t target) {
  if (!message->targets().empty())
    message = std::make_shared<Plan>(targetOf(*message, target));
}

void PlanReader::selectVariant(uint32_t variant) { message = std::make_shared<Plan>(variantOf(*message, variant)); }

Plan withoutShards(const Plan &plan) {
  Plan joined = plan;
  for (Variable &variable : *joined.mutable_variables()) {
    *variable.mutable_type() = wholeType(variable);
    variable.clear_shard();
  }
  return joined;
}

void PlanReader::joinShards() {
  if (hasShards(*message))
    message = std::make_shared<Plan>(withoutShards(*message));
}

void PlanReader::releasePages() const {
  if (storage->mapped)
    ::madvise(const_cast<char *>(storage->data), storage->bytes, MADV_DONTNEED);
}

std::span<const std::byte> PlanReader::payload(uint32_t index) const {
  if (index >= static_cast<uint32_t>(message->payloads_size()))
    return {};
  const Payload &entry = message->payloads(static_cast<int>(index));
  return {reinterpret_cast<const std::byte *>(storage->data + entry.offset()), entry.bytes()};
}

std::string PlanReader::folder() const {
  if (!weightsFolder.empty())
    return weightsFolder;
  size_t slash = name.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : name.substr(0, slash);
}

uint64_t PlanReader::fileBytes() const { return storage->bytes; }

std::span<const std::byte> PlanReader::bytes() const {
  return {reinterpret_cast<const std::byte *>(storage->data), storage->bytes};
}

uint64_t PlanReader::checksum() const {
  uint64_t stored;
  std::memcpy(&stored, storage->data + kPreambleBytes + readU32(storage->data + 12), sizeof(stored));
  return stored;
}

} // namespace tcc::plan
