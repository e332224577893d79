//===- OutOfMemory.cpp - end with a message when memory runs out ----------===//
#include "tools/common/ExitStatus.h"
#include "tools/common/OutOfMemory.h"
#include "support/Status.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>
#include <unistd.h>

namespace tcc::tools {

namespace {
const char *messagePrefix = "error: ";
int quietStatus = kExitDone; ///< kExitDone: write the message

void writeText(const char *text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

[[noreturn]] void terminated() {
  try {
    if (std::exception_ptr problem = std::current_exception())
      std::rethrow_exception(problem);
  } catch (const std::exception &problem) {
    endIfOutOfMemory(problem);
  } catch (...) {
  }
  std::abort();
}
} // namespace

void endOnLackOfMemory(const char *prefix) {
  messagePrefix = prefix;
  std::set_terminate(terminated);
}

void endQuietlyOnLackOfMemory(int status) { quietStatus = status; }

void endIfOutOfMemory(const std::exception &problem) {
  const auto *system = dynamic_cast<const std::system_error *>(&problem);
  if (dynamic_cast<const std::bad_alloc *>(&problem) ||
      (system && (system->code() == std::errc::resource_unavailable_try_again ||
                  system->code() == std::errc::not_enough_memory)))
    endOutOfMemory();
}

void endOutOfMemory() {
  if (quietStatus == kExitDone) {
    writeText(messagePrefix);
    writeText("out of memory; raise the limit (ulimit -v), end other programs, or give a smaller batch\n");
  }
  ::_exit(quietStatus == kExitDone ? kExitFault : quietStatus);
}

} // namespace tcc::tools
