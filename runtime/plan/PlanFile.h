//===- PlanFile.h - writing and reading plan files -----------------------===//
//
// A plan file is a 16-byte preamble (magic, format version, header length), the serialised Plan message, the XXH3-64 of
// both, then payloads at multiples of 64 bytes with zeros between them. Every byte is covered: by the header's
// checksum, by a payload's, or by the rule that padding is zero and the file ends with its last payload.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_PLANFILE_H
#define TCC_RUNTIME_PLAN_PLANFILE_H

#include "runtime/plan/KernelAbi.h"
#include "support/Status.h"
#include "runtime/plan/plan.pb.h"

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::plan {

/// XXH3-64 of bytes, the one hash of plan files and external weights.
uint64_t hashBytes(const void *data, size_t bytes);

/// The same hash of bytes that arrive piece by piece.
class ByteHash {
public:
  ByteHash();
  ~ByteHash();
  ByteHash(const ByteHash &) = delete;
  ByteHash &operator=(const ByteHash &) = delete;
  void add(const void *data, size_t bytes);
  uint64_t value() const;

private:
  struct State;
  std::unique_ptr<State> state;
};

/// The serialised plan with map fields in key order, so that equal plans give equal bytes.
std::string serialize(const Plan &plan);

/// Collects payloads and writes the file. Payloads of equal content are stored once.
class PlanWriter {
public:
  /// Copies the bytes; returns the index for Variable.payload, CodeObject.payload, Plan.model_payload.
  uint32_t addPayload(const void *data, size_t bytes);
  uint32_t addPayload(std::string_view bytes) { return addPayload(bytes.data(), bytes.size()); }

  /// As addPayload without the copy: `data` must stay valid until the plan is written.
  uint32_t addPayloadView(const void *data, size_t bytes);

  size_t payloadCount() const { return payloads.size(); }

  /// Writes to `path` as AtomicFile does: a regular file is replaced as a whole, anything else (a pipe) is written to.
  /// `format_version` and `payloads` of `plan` are replaced. Errors: the folder is missing, unwritable or full; the
  /// header is over 1 GiB.
  Status write(const Plan &plan, const std::string &path) const;

  /// The same bytes in memory.
  Expected<std::string> toBuffer(const Plan &plan) const;

  /// Writes the result of `toBuffer` in the way of `write`.
  static Status writeBytes(std::string_view bytes, const std::string &path);

private:
  /// Preamble, header, checksum and padding up to the first payload.
  Expected<std::string> makeHead(const Plan &plan, std::vector<uint64_t> &offsets) const;

  static Status writePieces(const std::vector<std::string_view> &pieces, const std::string &path);

  struct Bytes {
    const void *data;
    size_t bytes;
    uint64_t hash;
  };
  std::vector<Bytes> payloads;
  std::deque<std::string> owned;
  std::multimap<uint64_t, uint32_t> byHash;
};

/// An open plan: the file stays mapped as long as the reader lives.
class PlanReader {
public:
  /// Maps the file and checks all of it: magic, version, checksums of header and payloads, bounds, padding, length.
  /// Errors name the file, and the place: "header" or "payload N".
  static Expected<PlanReader> open(const std::string &path);

  /// The same from memory. Messages name the file `name`; its folder (up to the last '/') is that of external weights.
  static Expected<PlanReader> fromBuffer(std::string bytes, const std::string &name = "plan in memory");

  /// The same without a copy: `bytes` must stay valid as long as the reader, and payloads are aligned only as `bytes`
  /// is.
  static Expected<PlanReader> over(std::string_view bytes, const std::string &name);

  PlanReader(PlanReader &&);
  PlanReader &operator=(PlanReader &&);
  ~PlanReader();

  const Plan &plan() const { return *message; }
  std::shared_ptr<const Plan> sharedPlan() const { return message; }

  /// Bytes of payload `index`, checked when the plan was opened; empty for an index out of range. 64-byte aligned.
  std::span<const std::byte> payload(uint32_t index) const;

  /// Selects one target of a plan for several: `plan()` then is as if compiled for this target alone, except for the
  /// indices of its payloads. No effect on a plan for one target (see Targets.h).
  void selectTarget(uint32_t target);

  /// Selects one variant of a fat plan: `plan()` then has only the entries of this variant (see Variants.h).
  void selectVariant(uint32_t variant);

  /// Replaces every shard by the whole variable: for exports, which run no entry and supply whole values.
  void joinShards();

  /// Releases the memory of the mapped file's pages; an access reads them from the file again.
  void releasePages() const;

  /// The file's path as given, and the folder that external weights are relative to: the file's ("." if it has none),
  /// or the one of setFolder, from which the plan was copied.
  const std::string &path() const { return name; }
  std::string folder() const;
  void setFolder(std::string path) { weightsFolder = std::move(path); }
  uint64_t fileBytes() const;
  std::span<const std::byte> bytes() const;

  /// Identity of the whole file: the header's checksum, which covers those of the payloads.
  uint64_t checksum() const;

private:
  struct Storage;
  PlanReader();
  Status check();

  std::unique_ptr<Storage> storage;
  std::shared_ptr<const Plan> message;
  std::string name, weightsFolder;
};

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_PLANFILE_H
