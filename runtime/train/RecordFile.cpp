//===- RecordFile.cpp - records that wait for space on the disk ----------===//
#include "runtime/train/RecordFile.h"
#include "support/OwnFiles.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

Expected<RecordFile> RecordFile::open(const std::string &path, bool append, size_t capacity) {
  RecordFile file;
  file.name = path;
  file.capacity = capacity;
  auto opened = openForAppending(path, /*mustBeNew=*/!append);
  if (!opened)
    return opened.status();
  file.descriptor = *opened;
  file.waiting = std::make_unique_for_overwrite<char[]>(capacity);
  return file;
}

RecordFile::RecordFile(RecordFile &&other) noexcept
    : name(std::move(other.name)), descriptor(other.descriptor), waiting(std::move(other.waiting)), used(other.used),
      capacity(other.capacity), lostRecords(other.lostRecords) {
  other.descriptor = -1;
  other.used = 0;
}

RecordFile::~RecordFile() {
  if (descriptor < 0)
    return;
  (void)flush();
  ::close(descriptor);
}

void RecordFile::add(std::string_view record) {
  if (used + record.size() > capacity)
    (void)flush();
  if (used + record.size() > capacity) {
    ++lostRecords;
    return;
  }
  std::memcpy(waiting.get() + used, record.data(), record.size());
  used += record.size();
}

Status RecordFile::flush() {
  size_t begin = 0;
  int reason = 0;
  while (begin < used && reason == 0) {
    ssize_t count = ::write(descriptor, waiting.get() + begin, used - begin);
    if (count > 0)
      begin += static_cast<size_t>(count);
    else if (count == 0)
      reason = ENOSPC;
    else if (errno != EINTR)
      reason = errno;
  }
  used -= begin;
  if (begin != 0 && used != 0)
    std::memmove(waiting.get(), waiting.get() + begin, used);
  return reason == 0 ? Status() : error("{}: cannot write: {}", name, std::strerror(reason));
}
