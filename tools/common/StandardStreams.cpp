//===- StandardStreams.cpp - output that is written whole or reported -----===//
#include "tools/common/StandardStreams.h"
#include "support/TerminalText.h"
#include "tools/common/CommandLineWording.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <unistd.h>

namespace tcc::tools {

void reserveStandardStreams() {
  for (int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(number, F_GETFD) < 0 && errno == EBADF)
      (void)!::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY); // takes the lowest free number
}

Status finishStandardStreams() {
  errno = 0;
  bool failed = !std::cout.flush();
  failed = std::fflush(stdout) != 0 || std::ferror(stdout) || failed;
  int reason = errno;
  if (failed)
    return error("standard output: cannot be written{}{}", reason ? ": " : "", reason ? std::strerror(reason) : "");
  if (std::fflush(stderr) != 0 || std::ferror(stderr))
    return error("standard error: cannot be written");
  return Status::success();
}

std::string shownText(const std::string &text) { return terminalText(worded(text, commandLineWording())); }

void printText(const std::string &text) {
  const std::string shown = shownText(text);
  const std::optional<size_t> columns = columnsOf(STDOUT_FILENO);
  printResult("{}", columns ? wrapped(shown, *columns) : shown);
}

} // namespace tcc::tools
