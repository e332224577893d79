//===- StandardStreams.h - print, and report output that fails --*- C++ -*-===//
//
// fmt::print throws where its stream fails: from a handler of errors that ends the process. The functions here keep the
// failure in the stream, and main asks for it once, at the end. What they print is escaped (TerminalText.h): names come from
// files.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_STANDARDSTREAMS_H
#define TCC_TOOLS_COMMON_STANDARDSTREAMS_H

#include "support/Status.h"
#include "support/TerminalText.h"

#include <cstdio>

namespace tcc::tools {

/// Call first in main. Opens /dev/null on those of the descriptors 0 to 2 that the caller closed, in the direction that
/// fails: else the first file that is opened for writing gets the number, and messages end up inside it.
void reserveStandardStreams();

/// Call last in main. Flushes both outputs; an error if anything that was printed did not reach its stream. So a result
/// that is sent to /dev/full is never taken for success, --help included.
Status finishStandardStreams();

/// Writes a message to standard error.
template <typename... Args> void printMessage(fmt::format_string<Args...> format, Args &&...args) {
  std::string text = terminalText(fmt::format(format, std::forward<Args>(args)...));
  (void)!std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Writes a result to standard output.
template <typename... Args> void printResult(fmt::format_string<Args...> format, Args &&...args) {
  std::string text = terminalText(fmt::format(format, std::forward<Args>(args)...));
  (void)!std::fwrite(text.data(), 1, text.size(), stdout);
}

/// Writes a result for people to standard output, its lines as wide as the terminal (columnsOf); to a file or a pipe as
/// they are.
void printText(const std::string &text);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_STANDARDSTREAMS_H
