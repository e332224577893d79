//===- Archive.h - members of a tar or zip file --------------------------===//
#ifndef TCC_RUNTIME_DATA_ARCHIVE_H
#define TCC_RUNTIME_DATA_ARCHIVE_H

#include "support/MappedFile.h"

struct archive;
struct archive_entry;

namespace tcc::runtime {

/// Reads regular files from an archive, one after the other. The output is bounded by the size to which deflate can
/// inflate the file's bytes, however many layers of compression the file claims to have.
class Archive {
public:
  enum class Kind { Tar, Zip }; ///< a tar may be compressed by gzip
  static Expected<Archive> open(std::shared_ptr<const MappedFile> file, Kind kind);

  /// Advances to the next regular file; false after the last one.
  Expected<bool> next();
  const std::string &member() const { return name; }
  /// "FILE: MEMBER", for messages.
  std::string where() const { return file->path() + ": " + name; }
  /// The member's size by its header, if that states one.
  std::optional<uint64_t> claimedBytes() const { return claimed; }
  /// True if members are stored without compression, so that readAll() copies nothing.
  bool isStored() const;
  /// All bytes of the member: a view of the mapped file if they are stored without compression, else copied to `copy`,
  /// which gets the claimed size. Error: damaged, or another size than claimed.
  Expected<std::string_view> readAll(std::string &copy);
  /// Reads up to `size` bytes of the member; fewer only at its end.
  Expected<uint64_t> read(std::byte *destination, uint64_t size);

private:
  explicit Archive(std::shared_ptr<const MappedFile> file);
  Status checkInflation();
  Status skipRest();
  Status damaged(const std::string &place) const;

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
