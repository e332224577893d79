//===- Archive.h - members of a tar or zip file --------------------------===//
#ifndef TCC_RUNTIME_DATA_ARCHIVE_H
#define TCC_RUNTIME_DATA_ARCHIVE_H

#include "support/MappedFile.h"

struct archive;
struct archive_entry;

namespace tcc::runtime {

/// Reads regular files out of an archive, one after the other. The output is bounded by the most that deflate
/// can make of the file's bytes, however many layers it claims to have.
class Archive {
public:
  enum class Kind { Tar, Zip }; ///< a tar may be compressed by gzip
  static Expected<Archive> open(std::shared_ptr<const MappedFile> file, Kind kind);

  /// Goes on to the next regular file; false after the last one.
  Expected<bool> next();
  const std::string &member() const { return name; }
  /// "FILE: MEMBER", for messages.
  std::string where() const { return file->path() + ": " + name; }
  /// The member's size by its header, if that states one.
  std::optional<uint64_t> claimedBytes() const { return claimed; }
  /// True where the file holds the bytes of members as they are: readAll() copies none.
  bool isStored() const;
  /// All bytes of the member: in the mapped file where it holds them as they are, else copied to `copy`, which has the
  /// claimed size. Error: damaged, or another size than claimed.
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
