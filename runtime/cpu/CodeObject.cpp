//===- CodeObject.cpp - generated kernels loaded from memory -------------===//
//
// The loader identifies a library by the path that it was opened with, and by the file's device and inode, as long as
// it is loaded. The path of a memory file is its descriptor's, so the descriptor stays open until the library is
// unloaded: no other memory file can have that path before, and the loader has forgotten it afterwards.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/CodeObject.h"
#include "support/OwnFiles.h"

#include <cerrno>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace tcc::runtime {

namespace {
bool writeAll(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

int openMemoryFile() {
  constexpr const char *name = "tcc-kernels"; // for /proc/PID/maps; it need not be unique
  int file = ::memfd_create(name, MFD_CLOEXEC | MFD_EXEC);
  return file >= 0 ? file : ::memfd_create(name, MFD_CLOEXEC); // kernels that do not know the flag
}

std::string pathOf(int file) { return fmt::format("/proc/self/fd/{}", file); }

/// True if the loader still knows a library of this path: one that forbids unloading (DF_1_NODELETE).
bool staysLoaded(const std::string &path) {
  void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return handle && ::dlclose(handle) == 0;
}

/// If memory files cannot be executed: loads from a private file, which is unlinked as soon as it is loaded.
void *loadFromTemporary(std::span<const std::byte> elf, std::string &problem) {
  const TemporaryFolder folder("tcc-kernels");
  void *handle = nullptr;
  if (Status status = folder.write("kernels.so", {reinterpret_cast<const char *>(elf.data()), elf.size()});
      !status.ok())
    problem += "; " + status.message();
  else if (handle = ::dlopen(folder.path("kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL); !handle)
    problem += fmt::format("; {}", ::dlerror());
  return handle;
}
} // namespace

Expected<CodeObject> CodeObject::load(std::span<const std::byte> elf) {
  CodeObject object;
  std::string problem = "no memory file";
  if (int file = openMemoryFile(); file >= 0) {
    if (writeAll(file, elf)) {
      object.handle = ::dlopen(pathOf(file).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (object.handle) {
        object.file = file;
        return object;
      }
      problem = ::dlerror();
    }
    ::close(file);
  }
  object.handle = loadFromTemporary(elf, problem);
  if (!object.handle)
    return error("cannot load the generated kernels: {}", problem);
  return object;
}

CodeObject::~CodeObject() {
  if (handle)
    ::dlclose(handle);
  // tcc links no library that forbids unloading. If a plan has one all the same, its path must never become another's.
  if (file >= 0 && !staysLoaded(pathOf(file)))
    ::close(file);
}

plan::KernelFunction CodeObject::find(const std::string &symbol) const {
  return reinterpret_cast<plan::KernelFunction>(::dlsym(handle, symbol.c_str()));
}

} // namespace tcc::runtime
