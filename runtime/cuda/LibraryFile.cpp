//===- LibraryFile.cpp - opens the libraries of NVIDIA ----------------------===//
#include "runtime/cuda/LibraryFile.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>

namespace tcc::cuda {

namespace {
namespace fs = std::filesystem;

/// The folders of a folder, sorted; none if it cannot be read.
std::vector<fs::path> foldersOf(const fs::path &folder) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->is_directory(code))
      found.push_back(at->path());
  std::ranges::sort(found);
  return found;
}

/// The path of the program or library that holds this code.
std::string ownPath() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void *>(&foldersOf), &info) && info.dli_fname ? info.dli_fname : "";
}
} // namespace

std::vector<std::string> pipFolders(const std::string &own, const std::string &environment) {
  std::vector<fs::path> packages;
  for (fs::path folder = fs::path(own).parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages")
      packages.push_back(folder);
  if (!environment.empty())
    for (const fs::path &version : foldersOf(fs::path(environment) / "lib"))
      packages.push_back(version / "site-packages");
  std::vector<std::string> found;
  std::error_code code;
  for (const fs::path &package : packages)
    for (const fs::path &part : foldersOf(package / "nvidia"))
      if (fs::is_directory(part / "lib", code))
        found.push_back((part / "lib").string());
  return found;
}

void *openLibrary(std::span<const std::string> names, std::string &reasons) {
  const char *environment = std::getenv("VIRTUAL_ENV");
  const std::vector<std::string> folders = pipFolders(ownPath(), environment ? environment : "");
  for (const std::string &name : names) {
    if (void *handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
      return handle;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", ::dlerror());
    std::error_code code;
    for (const std::string &folder : folders)
      if (const fs::path path = fs::path(folder) / name; fs::exists(path, code)) {
        if (void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
          return handle;
        reasons += fmt::format("; {}", ::dlerror());
      }
  }
  return nullptr;
}

} // namespace tcc::cuda
