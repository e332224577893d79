//===- MappedFile.cpp - a file's bytes, read through a mapping -----------===//
#include "support/MappedFile.h"
#include "support/BytesText.h"
#include "support/RegularFile.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace tcc {

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string &path) {
  auto opened = RegularFile::open(path);
  if (!opened)
    return opened.status();
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->name = path;
  file->length = static_cast<size_t>(opened->bytes());
  if (file->length != 0) {
    file->address = ::mmap(nullptr, file->length, PROT_READ, MAP_SHARED, opened->descriptor(), 0);
    if (file->address == MAP_FAILED) {
      file->address = nullptr;
      return error("{}: cannot map {} bytes: {}", path, file->length, std::strerror(errno));
    }
  }
  return std::shared_ptr<const MappedFile>(std::move(file));
}

std::shared_ptr<const MappedFile> MappedFile::fromBytes(std::string name, std::string content) {
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->name = std::move(name);
  file->memory = std::move(content);
  file->address = file->memory.data();
  file->length = file->memory.size();
  return file;
}

MappedFile::~MappedFile() {
  if (address && address != memory.data())
    ::munmap(address, length);
}

void MappedFile::releasePages() const {
  if (length)
    ::madvise(address, length, MADV_DONTNEED);
}

Expected<std::string> readFile(const std::string &path) {
  return readWhole(path, kMostFileBytes, RegularFile::Accept::PassedDownPipes);
}

Expected<std::string> readWhole(const std::string &path, uint64_t most, RegularFile::Accept accept) {
  auto opened = RegularFile::open(path, accept);
  if (!opened)
    return opened.status();
  auto tooLarge = [&] {
    return error("{}: it holds more than {}, the most that such a file may have", path, bytesText(most));
  };
  if (opened->bytes() > most)
    return tooLarge();
  std::string content;
  char block[65536];
  for (;;) {
    ssize_t count = ::read(opened->descriptor(), block, sizeof(block));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return error("{}: cannot read: {}", path, std::strerror(errno));
    if (count == 0)
      break;
    content.append(block, static_cast<size_t>(count));
    if (content.size() > most)
      return tooLarge();
  }
  return content;
}

} // namespace tcc
