//===- OutOfMemory.h - end with a message where memory ends ----------*- C++ -*-===//
//
// A lack of memory usually arrives as std::bad_alloc in main(). Two ways lead past it, and would abort: a thread or a
// noexcept function that throws, and LLVM, which is compiled without exceptions and calls a handler of its own. Both end
// in endOutOfMemory.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_OUTOFMEMORY_H
#define TCC_TOOLS_COMMON_OUTOFMEMORY_H

#include <exception>

namespace tcc::tools {

/// From now on std::terminate for lack of memory, or of a thread, ends in endOutOfMemory; `prefix` begins its message.
void endOnLackOfMemory(const char *prefix);

/// In a child process: end with this status and without a message, which the parent writes.
void endQuietlyOnLackOfMemory(int status);

/// Ends the process so if the exception stands for a lack of memory, or of a thread.
void endIfOutOfMemory(const std::exception &problem);

/// Writes the message, without taking memory, and ends the process with exit status 1.
[[noreturn]] void endOutOfMemory();

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_OUTOFMEMORY_H
