//===- CopyFile.h - a file's copy that shares its blocks where it can ----===//
#ifndef TCC_SUPPORT_COPYFILE_H
#define TCC_SUPPORT_COPYFILE_H

#include "support/OwnFiles.h"
#include "support/Status.h"

#include <string>

namespace tcc {

/// Makes `to` a copy of the regular file `from`; `to`, a file of ours of that kind, is replaced in one step, or keeps its bytes. The file system
/// shares the blocks until one of the files is written to (FICLONE), copies by itself (copy_file_range), or the bytes
/// pass through this process: in every case later changes of `from` leave `to` alone. Error: names the file.
Status copyFile(const std::string &from, const std::string &to, OwnFile kind);

} // namespace tcc

#endif // TCC_SUPPORT_COPYFILE_H
