//===- ProgramFolder.cpp - where this program is --------------------------===//
#include "support/ProgramFolder.h"

#include <climits>
#include <string_view>
#include <unistd.h>

std::string tcc::programFolder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string_view text(path, length > 0 ? static_cast<size_t>(length) : 0);
  return std::string(text.substr(0, text.rfind('/') + 1));
}
