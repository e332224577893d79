//===- CopyFile.h - a file's copy that shares its blocks where it can ----===//
#ifndef TCC_SUPPORT_COPYFILE_H
#define TCC_SUPPORT_COPYFILE_H

#include "support/OwnFiles.h"
#include "support/Status.h"

#include <string>

namespace tcc {

/// Makes `to` a copy of the regular file `from`. A `to` that exists must be of that kind; it is replaced atomically.
/// The file system shares the blocks until one of the files is written to (FICLONE), or copies them (copy_file_range),
/// or this process copies the bytes: in every case later changes of `from` do not affect `to`. Error: names the file.
Status copyFile(const std::string &from, const std::string &to, OwnFile kind);

} // namespace tcc

#endif // TCC_SUPPORT_COPYFILE_H
