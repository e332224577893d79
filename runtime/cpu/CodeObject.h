//===- CodeObject.h - generated kernels loaded from memory ---------------===//
#ifndef TCC_RUNTIME_CPU_CODEOBJECT_H
#define TCC_RUNTIME_CPU_CODEOBJECT_H

#include "runtime/plan/KernelAbi.h"
#include "support/Status.h"

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace tcc::runtime {

/// A shared object that was loaded from bytes. The destructor unloads it: then none of its kernels may run any more.
class CodeObject {
public:
  static Expected<CodeObject> load(std::span<const std::byte> elf);

  CodeObject(CodeObject &&other) noexcept
      : handle(std::exchange(other.handle, nullptr)), file(std::exchange(other.file, -1)) {}
  CodeObject &operator=(CodeObject &&other) noexcept {
    std::swap(handle, other.handle);
    std::swap(file, other.file);
    return *this;
  }
  ~CodeObject();

  /// The kernel of that name; null if there is none.
  plan::KernelFunction find(const std::string &symbol) const;

private:
  CodeObject() = default;

  void *handle = nullptr;
  int file = -1; ///< the memory file that was loaded; -1: none
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CODEOBJECT_H
