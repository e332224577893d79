//===- TrustedFolder.h - a folder that nobody else can write to -*- C++ -*-===//
//
// The cache holds machine code under keys that anybody can compute, so a user who may write to it can run code as its
// owner.
// Files are therefore reached from one checked folder by openat, without following links, and each step must belong to
// the user (or root) and be writable by nobody else. The folder's own path may contain links, since users move their
// caches to larger disks; each part of it must be out of other users' reach too, where a sticky folder such as /tmp
// protects the entries that the user owns.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_CACHE_TRUSTEDFOLDER_H
#define TCC_COMPILER_CACHE_TRUSTEDFOLDER_H

#include <string>
#include <utility>

#include <sys/stat.h>

namespace tcc::cache {

/// An open file, closed at the end of the scope; -1 for none.
class Descriptor {
public:
  explicit Descriptor(int number = -1) : number(number) {}
  ~Descriptor();
  Descriptor(Descriptor &&other) noexcept : number(std::exchange(other.number, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept;
  explicit operator bool() const { return number >= 0; }
  int get() const { return number; }

private:
  int number;
};

/// Why other users could change the content of `path`: its owner or mode. Empty if only this user and root can.
std::string whyUntrusted(const std::string &path, const struct stat &status);

/// Opens a folder after checking every part of its path, and makes it and its parents (for the owner alone) if `make`.
/// Without a result `problem` says why; it is empty if the folder is missing and was not to be made.
Descriptor openTrustedFolder(const std::string &path, bool make, std::string &problem);

/// Opens a folder inside a trusted one; a link is refused. `path` stands for it in `problem`.
Descriptor openTrustedChild(const Descriptor &parent, const std::string &name, const std::string &path, bool make,
                            std::string &problem);

/// Opens a regular file inside a trusted folder for reading. No result if it is missing, a link, not a regular file,
/// has further hard links, or is writable by others: then the cache did not write it.
Descriptor openTrustedFile(const Descriptor &folder, const std::string &name, struct stat &status);

} // namespace tcc::cache

#endif // TCC_COMPILER_CACHE_TRUSTEDFOLDER_H
