//===- StandardStreams.h - print, and report output that fails --*- C++ -*-===//
//
// fmt::print throws if its stream fails; in an error handler that would end the process. The functions here leave the
// failure in the stream, and main checks it once, at the end. They put words for advice (support/Advice.h), and escape
// what they print (TerminalText.h), since names come from files.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_STANDARDSTREAMS_H
#define TCC_TOOLS_COMMON_STANDARDSTREAMS_H

#include "support/Status.h"

#include <cstdio>

namespace tcc::tools {

/// Call first in main. Opens /dev/null on those of the descriptors 0 to 2 that the caller closed, in the direction that
/// makes their use fail. Otherwise the first file opened for writing would get that number, and messages would be
/// written into it.
void reserveStandardStreams();

/// Call last in main. Flushes both outputs; an error if anything that was printed did not reach its stream. So a result
/// that is sent to /dev/full is never taken for success, --help included.
Status finishStandardStreams();

/// The text as it is printed: advice in the command line's words (CommandLineWording.h), and escaped.
std::string shownText(const std::string &text);

/// Writes a message to standard error.
template <typename... Args> void printMessage(fmt::format_string<Args...> format, Args &&...args) {
  std::string text = shownText(fmt::format(format, std::forward<Args>(args)...));
  (void)!std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Writes a result to standard output.
template <typename... Args> void printResult(fmt::format_string<Args...> format, Args &&...args) {
  std::string text = shownText(fmt::format(format, std::forward<Args>(args)...));
  (void)!std::fwrite(text.data(), 1, text.size(), stdout);
}

/// Writes a result for people to standard output, wrapped to the terminal's width (columnsOf); not wrapped in a file or
/// a pipe.
void printText(const std::string &text);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_STANDARDSTREAMS_H
