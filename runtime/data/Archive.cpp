//===- Archive.cpp - members of a tar or zip file ------------------------===//
#include "runtime/data/Archive.h"
#include "runtime/data/Limits.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>

using namespace tcc;
using namespace tcc::runtime;

Archive::Archive(std::shared_ptr<const MappedFile> file)
    : file(std::move(file)), reader(archive_read_new(), archive_read_free) {}

/// libarchive's message, if it has one.
static std::string reasonOf(archive *reader) {
  const char *reason = archive_error_string(reader);
  return reason ? reason : "its bytes are none";
}

Status Archive::damaged(const std::string &place) const {
  return error("{}: damaged or truncated: {}", place, reasonOf(reader.get()));
}

Expected<Archive> Archive::open(std::shared_ptr<const MappedFile> file, Kind kind) {
  Archive result(std::move(file));
  result.kind = kind;
  archive *reader = result.reader.get();
  if (kind == Kind::Zip) {
    archive_read_support_format_zip(reader);
  } else {
    archive_read_support_format_tar(reader);
    archive_read_support_filter_gzip(reader); // other filters need unbounded memory, or external programs
  }
  std::span<const std::byte> bytes = result.file->bytes();
  if (archive_read_open_memory(reader, bytes.data(), bytes.size()) != ARCHIVE_OK)
    return error("{}: cannot read as {}: {}", result.file->path(), kind == Kind::Zip ? ".npz" : "tar",
                       reasonOf(reader));
  return result;
}

Status Archive::checkInflation() {
  uint64_t bytes = file->bytes().size(), most = limits::mostInflatedBytes(bytes);
  auto filtered = static_cast<uint64_t>(std::max<int64_t>(archive_filter_bytes(reader.get(), 0), 0));
  if (std::max(inflated, filtered) <= most)
    return Status();
  return error(
      "{}: it inflates to more than {} bytes, {} times its size, which compressed data cannot: its members "
      "overlap or are compressed several times; write it anew",
      file->path(), most, limits::kMostInflation);
}

Status Archive::skipRest() {
  // The directory of a zip locates the next member. In a compressed tar, the bytes up to the next member are inflated
  // block by block, so that the bound on inflated bytes is enforced.
  if (kind == Kind::Zip || archive_filter_count(reader.get()) <= 1)
    return Status();
  const void *block = nullptr;
  size_t size = 0;
  la_int64_t offset = 0;
  int result;
  while ((result = archive_read_data_block(reader.get(), &block, &size, &offset)) == ARCHIVE_OK)
    if (Status status = checkInflation(); !status.ok())
      return status;
  return result == ARCHIVE_EOF || result == ARCHIVE_WARN ? Status() : damaged(where());
}

Expected<bool> Archive::next() {
  for (;;) {
    if (inMember)
      if (Status status = skipRest(); !status.ok())
        return status;
    inMember = false;
    archive_entry *entry = nullptr;
    int result = archive_read_next_header(reader.get(), &entry);
    if (result == ARCHIVE_EOF)
      return false;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) { // a warning: e.g. a name that is no UTF-8
      return error("{}: cannot read as {}, or truncated: {}", file->path(), kind == Kind::Zip ? ".npz" : "tar",
                         reasonOf(reader.get()));
    }
    inMember = true;
    if (Status status = checkInflation(); !status.ok())
      return status;
    const char *text = archive_entry_pathname(entry);
    if (!text)
      text = archive_entry_pathname_utf8(entry);
    name = text ? text : "";
    claimed.reset();
    if (archive_entry_size_is_set(entry))
      claimed = static_cast<uint64_t>(std::max<int64_t>(archive_entry_size(entry), 0));
    if (archive_entry_filetype(entry) == AE_IFREG)
      return true;
  }
}

bool Archive::isStored() const { return kind == Kind::Tar && archive_filter_count(reader.get()) <= 1; }

Expected<std::string_view> Archive::readAll(std::string &copy) {
  const uint64_t size = claimed.value_or(0);
  if (size == 0)
    return error("{}: damaged or truncated", where());
  // A tar that is not compressed hands out pointers into the mapping.
  if (isStored()) {
    const void *block = nullptr;
    size_t length = 0;
    la_int64_t offset = 0;
    if (archive_read_data_block(reader.get(), &block, &length, &offset) != ARCHIVE_OK)
      return damaged(where());
    const std::string_view text = file->text();
    const auto *begin = static_cast<const char *>(block);
    if (offset == 0 && length == size && begin >= text.data() && begin + size <= text.data() + text.size()) {
      inflated += size;
      if (Status status = checkInflation(); !status.ok())
        return status;
      return std::string_view(begin, size);
    }
    copy.assign(size, '\0'); // a sparse member: its blocks have offsets
    for (;;) {
      if (offset < 0 || uint64_t(offset) > size || length > size - uint64_t(offset))
        return error("{}: damaged or truncated", where());
      std::copy_n(static_cast<const char *>(block), length, copy.data() + offset);
      inflated += length;
      if (Status status = checkInflation(); !status.ok())
        return status;
      const int result = archive_read_data_block(reader.get(), &block, &length, &offset);
      if (result == ARCHIVE_EOF)
        return std::string_view(copy);
      if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
        return damaged(where());
    }
  }
  copy.resize(size);
  auto count = read(reinterpret_cast<std::byte *>(copy.data()), size);
  if (!count)
    return count.status();
  if (*count != size)
    return error("{}: damaged or truncated", where());
  return std::string_view(copy);
}

Expected<uint64_t> Archive::read(std::byte *destination, uint64_t size) {
  uint64_t done = 0;
  while (done < size) {
    la_ssize_t count =
        archive_read_data(reader.get(), destination + done, std::min<uint64_t>(size - done, uint64_t(1) << 20));
    if (count < 0)
      return damaged(where());
    if (count == 0)
      break;
    done += static_cast<uint64_t>(count);
    inflated += static_cast<uint64_t>(count);
    if (Status status = checkInflation(); !status.ok())
      return status;
  }
  return done;
}
