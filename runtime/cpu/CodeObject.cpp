//===- CodeObject.cpp - generated kernels loaded from memory -------------===//
#include "runtime/cpu/CodeObject.h"
#include "support/OwnFiles.h"

#include <atomic>
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
  static std::atomic<unsigned> counter{0};
  std::string name = fmt::format("tcc-kernels-{}", counter.fetch_add(1));
  int file = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_EXEC);
  return file >= 0 ? file : ::memfd_create(name.c_str(), MFD_CLOEXEC); // kernels that do not know the flag
}

/// If memory files cannot be executed: loads from a private file, which is unlinked as soon as it is loaded.
void *loadFromTemporary(std::span<const std::byte> elf, std::string &problem) {
  const TemporaryFolder folder("tcc-kernels");
  void *handle = nullptr;
  if (Status status = folder.write("kernels.so", {reinterpret_cast<const char *>(elf.data()), elf.size()}); !status.ok())
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
      object.handle = ::dlopen(fmt::format("/proc/self/fd/{}", file).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (object.handle)
        return object;
      problem = ::dlerror();
    }
    ::close(file);
  }
  object.handle = loadFromTemporary(elf, problem);
  if (!object.handle)
    return error("cannot load the generated kernels: {}", problem);
  return object;
}

plan::KernelFunction CodeObject::find(const std::string &symbol) const {
  return reinterpret_cast<plan::KernelFunction>(::dlsym(handle, symbol.c_str()));
}

} // namespace tcc::runtime
