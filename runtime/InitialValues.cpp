//===- InitialValues.cpp - the variables' values before training ---------===//
//
// External weights are hashed piece by piece while they are read: each byte passes through the cache once.
//
//===----------------------------------------------------------------------===//
#include "runtime/InitialValues.h"
#include "support/Advice.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/Shards.h"
#include "support/RegularFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace tcc::runtime {

namespace {
std::string resolve(const plan::PlanReader &reader, const std::string &path) {
  return !path.empty() && path[0] == '/' ? path : reader.folder() + "/" + path;
}
} // namespace

InitialValues::InitialValues(InitialValues &&other) noexcept
    : reader(other.reader), rank(other.rank), files(std::exchange(other.files, {})) {}

InitialValues::~InitialValues() {
  for (auto &[path, file] : files)
    ::close(file);
}

Expected<InitialValues> InitialValues::open(const plan::PlanReader &reader, uint32_t rank) {
  InitialValues values(reader, rank);
  for (const plan::Variable &variable : reader.plan().variables()) {
    if (!variable.has_external())
      continue;
    const plan::ExternalBytes &source = variable.external();
    std::string path = resolve(reader, source.path());
    auto known = values.files.find(source.path());
    if (known == values.files.end()) {
      auto file = RegularFile::open(path);
      if (!file)
        return error("variable '{}': external weights: {}; the plan refers to the model's own file, keep it there or "
                     "compile with {}",
                     variable.name(), file.message(), advice::compile("embed-weights"));
      known = values.files.emplace(source.path(), file->release()).first;
    }
    struct stat information {};
    uint64_t length = ::fstat(known->second, &information) == 0 ? static_cast<uint64_t>(information.st_size) : 0;
    if (source.offset() > length || source.bytes() > length - source.offset())
      return error("variable '{}': {} bytes at offset {} are not inside '{}' of {} bytes; the file is cut short or "
                   "not the one the plan was compiled with",
                   variable.name(), source.bytes(), source.offset(), path, length);
  }
  return values;
}

Status InitialValues::readHashed(const plan::ExternalBytes &source, uint64_t pieceBytes, const Room &room) const {
  std::string path = resolve(*reader, source.path());
  int file = files.at(source.path());
  plan::ByteHash hash;
  for (uint64_t done = 0; done < source.bytes();) {
    uint64_t want = std::min(pieceBytes, source.bytes() - done);
    Expected<std::byte *> to = room(done, want);
    if (!to)
      return to.status();
    for (uint64_t have = 0; have < want;) {
      ssize_t got = ::pread(file, *to + have, want - have, static_cast<off_t>(source.offset() + done + have));
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        return error("cannot read {} bytes at offset {} of '{}': {}", source.bytes(), source.offset(), path,
                     got == 0 ? "the file ends before" : std::strerror(errno));
      have += static_cast<uint64_t>(got);
    }
    hash.add(*to, want);
    done += want;
  }
  if (hash.value() != source.xxh3())
    return error("'{}' has other content than when the plan was compiled ({} bytes at offset {}); compile again, or "
                 "bring the file back",
                 path, source.bytes(), source.offset());
  return Status();
}

std::pair<uint64_t, uint64_t> InitialValues::ownBytes(const plan::Variable &variable, uint64_t all) const {
  if (!variable.has_shard())
    return {0, all};
  const uint64_t width = plan::dtypeBytes(variable.type().dtype());
  auto [begin, count] = plan::shardOf(all / width, reader->plan().training().parallel().ranks(), rank);
  return {begin * width, count * width};
}

/// Reads all bytes, because the checksum covers all of them, and keeps this rank's part.
Status InitialValues::readPart(const plan::ExternalBytes &source, std::pair<uint64_t, uint64_t> own,
                               uint64_t pieceBytes, const Room &room) const {
  std::vector<std::byte> piece(pieceBytes);
  uint64_t before = 0, have = 0; // of the piece that is in memory
  auto keep = [&]() -> Status {
    const uint64_t begin = std::max(own.first, before), end = std::min(own.first + own.second, before + have);
    if (begin >= end)
      return Status();
    Expected<std::byte *> to = room(begin - own.first, end - begin);
    if (to)
      std::memcpy(*to, piece.data() + (begin - before), end - begin);
    return to.status();
  };
  Status status = readHashed(source, pieceBytes, [&](uint64_t offset, uint64_t bytes) -> Expected<std::byte *> {
    if (Status kept = keep(); !kept.ok())
      return kept;
    before = offset;
    have = bytes;
    return piece.data();
  });
  return status.ok() ? keep() : status;
}

Status InitialValues::read(int index, uint64_t pieceBytes, const Room &room) const {
  const plan::Variable &variable = reader->plan().variables(index);
  if (variable.has_external() && variable.has_shard())
    return readPart(variable.external(), ownBytes(variable, variable.external().bytes()), pieceBytes, room)
        .withContext("variable '" + variable.name() + "'");
  if (variable.has_external())
    return readHashed(variable.external(), pieceBytes, room).withContext("variable '" + variable.name() + "'");
  if (!variable.has_payload() && variable.fill() == 0)
    return Status();
  std::span<const std::byte> payload =
      variable.has_payload() ? reader->payload(variable.payload()) : std::span<const std::byte>();
  if (const auto [begin, count] = ownBytes(variable, payload.size()); variable.has_payload())
    payload = payload.subspan(begin, count);
  uint64_t bytes = variable.has_payload() ? payload.size() : plan::tensorBytes(variable.type()).value_or(0);
  constexpr uint64_t kSmall = uint64_t(1) << 16;
  for (uint64_t done = 0; done < bytes;) {
    uint64_t count = std::min(pieceBytes, bytes - done);
    Expected<std::byte *> to = room(done, count);
    if (!to)
      return to.status();
    if (variable.has_payload()) {
      std::memcpy(*to, payload.data() + done, count);
      // Release the plan's mapped pages on the way: otherwise the weights would be in memory twice at the end.
      if (count >= kSmall)
        reader->releasePages();
    } else {
      plan::fillElements(*to, variable.type().dtype(), count / plan::dtypeBytes(variable.type().dtype()),
                         variable.fill());
    }
    done += count;
  }
  return Status();
}

} // namespace tcc::runtime
