//===- CodeObject.h - generated kernels loaded from memory ---------------===//
#ifndef TCC_RUNTIME_CPU_CODEOBJECT_H
#define TCC_RUNTIME_CPU_CODEOBJECT_H

#include "runtime/plan/KernelAbi.h"
#include "support/Status.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tcc::runtime {

/// A shared object that was loaded from bytes. It stays loaded, and its memory file open, until the process ends: the
/// loader identifies libraries by path, so a reused descriptor path would return the first library again.
class CodeObject {
public:
  static Expected<CodeObject> load(std::span<const std::byte> elf);

  /// The kernel of that name; null if there is none.
  plan::KernelFunction find(const std::string &symbol) const;

private:
  void *handle = nullptr;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CODEOBJECT_H
