//===- MemorySize.h - parse sizes such as 512MiB or 60% ---------*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_MEMORYSIZE_H
#define TCC_TOOLS_COMMON_MEMORYSIZE_H

#include "support/Status.h"

#include <cstdint>
#include <string>

namespace tcc::tools {

/// "4096", "512MiB", "1.5 GiB" or "60%" (of `wholeBytes`; 0: percentages are refused) in bytes, at least 1. Errors name
/// `option`.
Expected<uint64_t> parseMemorySize(const std::string &option, const std::string &text, uint64_t wholeBytes = 0);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_MEMORYSIZE_H
