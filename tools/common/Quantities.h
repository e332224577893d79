//===- Quantities.h - parse sizes and times: 512MiB, 60%, 1d12h -*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_QUANTITIES_H
#define TCC_TOOLS_COMMON_QUANTITIES_H

#include "support/Status.h"

#include <cstdint>
#include <string>

namespace tcc::tools {

/// "4096", "512MiB", "1.5 GiB" or "60%" (of `wholeBytes`; 0: percentages are refused) in bytes, at least 1. Errors name
/// `option`.
Expected<uint64_t> parseMemorySize(const std::string &option, const std::string &text, uint64_t wholeBytes = 0);

/// "90s", "30m", "1.5h", "1d12h" in seconds, above 0. A number without a unit is refused: schedulers disagree on its
/// meaning. Errors (wrong usage) name `option`.
Expected<double> parseDuration(const std::string &option, const std::string &text);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_QUANTITIES_H
