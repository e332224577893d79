//===- Shown.h - messages as the commands print them -------------*- C++ -*-===//
//
// For tests that compare advice in a message (support/Advice.h). Link TccWording.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_SHOWN_H
#define TCC_TEST_SUPPORT_SHOWN_H

#include "support/Status.h"
#include "tools/common/CommandLineWording.h"

namespace tcc::test {

/// The text with advice in the command line's words.
inline std::string shown(const std::string &text) { return worded(text, tools::CommandLineWording()); }
inline std::string shown(const Status &status) { return shown(status.message()); }
template <typename T> std::string shown(const Expected<T> &result) { return shown(result.message()); }

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_SHOWN_H
