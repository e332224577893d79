//===- Archive.h - members of a tar or zip file --------------------------===//
#ifndef TCC_RUNTIME_DATA_ARCHIVE_H
#define TCC_RUNTIME_DATA_ARCHIVE_H

#include "runtime/state/MappedFile.h"

struct archive;
struct archive_entry;

namespace tcc::runtime {

/// Reads regular files out of an archive, one after the other. What comes out is bounded by what deflate can make of
/// the file's bytes, however many layers it claims to have.
class Archive {
public:
  enum class Kind { Tar, Zip }; ///< a tar may be compressed by gzip
  static plan::Expected<Archive> open(std::shared_ptr<const MappedFile> file, Kind kind);

  /// Goes on to the next regular file; false after the last one.
  plan::Expected<bool> next();
  const std::string &member() const { return name; }
  /// "FILE: MEMBER", for messages.
  std::string where() const { return file->path() + ": " + name; }
  /// What the header says that the member holds; nothing where it says nothing.
  std::optional<uint64_t> claimedBytes() const { return claimed; }
  /// Reads up to `size` bytes of the member; fewer only at its end.
  plan::Expected<uint64_t> read(std::byte *destination, uint64_t size);

private:
  explicit Archive(std::shared_ptr<const MappedFile> file);
  plan::Status checkInflation();
  plan::Status skipRest();
  plan::Status damaged(const std::string &place) const;

  std::shared_ptr<const MappedFile> file;
  std::unique_ptr<archive, int (*)(archive *)> reader;
  std::string name;
  std::optional<uint64_t> claimed;
  Kind kind = Kind::Tar;
  uint64_t inflated = 0;
  bool inMember = false;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_ARCHIVE_H
