//===- RecipeText.cpp - read the text of a recipe file --------------------===//
#include "compiler/recipe/RecipeText.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tcc::recipe {


Expected<std::string> readRecipeFile(const std::string &path) {
  // Without waiting for the writer of a FIFO.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return error("{}: cannot open the recipe: {}", path, std::strerror(errno));
  struct stat info = {};
  std::string text;
  Status status;
  if (fstat(file, &info) != 0)
    status = error("{}: cannot read the recipe: {}", path, std::strerror(errno));
  else if (S_ISDIR(info.st_mode))
    status = error("{}: is a folder, not a recipe", path);
  else if (!S_ISREG(info.st_mode))
    status = error("{}: is not a regular file (a FIFO, socket or device); write the recipe to a file first", path);
  else if (uint64_t(info.st_size) > kMostRecipeBytes)
    status = error("{}: is larger than {} KiB, the most that a recipe may have", path, kMostRecipeBytes >> 10);
  char part[65536];
  while (status.ok() && text.size() <= kMostRecipeBytes) {
    const ssize_t count = read(file, part, sizeof part);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      status = error("{}: cannot read the recipe: {}", path, std::strerror(errno));
    if (count <= 0)
      break;
    text.append(part, size_t(count));
  }
  close(file);
  if (!status.ok())
    return status;
  return text;
}

} // namespace tcc::recipe
