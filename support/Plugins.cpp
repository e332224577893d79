//===- Plugins.cpp - where plug-ins are -----------------------------------===//
//
// The process may be any program that loaded libtrun, as python: /proc/self/exe tells nothing then. The loader knows
// the file that this code came from.
//
//===----------------------------------------------------------------------===//
#include "support/Plugins.h"

#include <climits>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

using namespace tcc;

namespace {
/// The file that contains this code; empty if the loader does not tell.
std::string ownFile() {
  static const char here = 0;
  Dl_info info;
  link_map *map = nullptr;
  if (!::dladdr1(&here, &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP))
    return "";
  // The program itself has no name, nor need it have an origin.
  const std::string_view name = map->l_name;
  if (name.empty())
    return "/proc/self/exe";
  // A library's name may be relative to a folder that the process has left. Its origin was made absolute when it was
  // loaded.
  char origin[PATH_MAX];
  if (::dlinfo(map, RTLD_DI_ORIGIN, origin) != 0)
    return "";
  return std::string(origin) + "/" + std::string(name.substr(name.rfind('/') + 1));
}

/// Its folder, with a slash at the end. Links are followed, because plug-ins are beside what they lead to.
std::string ownFolder() {
  char path[PATH_MAX];
  const std::string_view file = ::realpath(ownFile().c_str(), path) ? path : "";
  return std::string(file.substr(0, file.rfind('/') + 1));
}
} // namespace

std::string tcc::pluginPath(std::string_view name) {
  const std::string folder = ownFolder();
  std::string path;
  for (const char *place : {"", "tcc/", TCC_PLUGINS_FROM_PROGRAMS "/"}) {
    path = folder + place + std::string(name);
    if (::access(path.c_str(), R_OK) == 0)
      break;
  }
  return path;
}
