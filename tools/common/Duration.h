//===- Duration.h - parse times such as 90s or 1d12h ------------*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_DURATION_H
#define TCC_TOOLS_COMMON_DURATION_H

#include "support/Status.h"

#include <string>

namespace tcc::tools {

/// "90s", "30m", "1.5h", "1d12h" in seconds, above 0. A number without a unit is refused: schedulers disagree on its
/// meaning. Errors (wrong usage) name `option`.
Expected<double> parseDuration(const std::string &option, const std::string &text);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_DURATION_H
