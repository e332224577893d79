//===- OutOfMemory.h - end with a message when memory runs out --*- C++ -*-===//
//
// A lack of memory usually arrives as std::bad_alloc in main(). Two cases do not reach main() and would abort: a thread
// or a noexcept function that throws, and LLVM, which is compiled without exceptions and calls a handler of its own. In
// both, endOutOfMemory ends the process.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_OUTOFMEMORY_H
#define TCC_TOOLS_COMMON_OUTOFMEMORY_H

#include <exception>

namespace tcc::tools {

/// From now on std::terminate calls endOutOfMemory if memory, or a thread, is lacking; `prefix` begins its message.
void endOnLackOfMemory(const char *prefix);

/// In a child process: end with this status and without a message, which the parent writes.
void endQuietlyOnLackOfMemory(int status);

/// Calls endOutOfMemory if the exception means that memory, or a thread, is lacking.
void endIfOutOfMemory(const std::exception &problem);

/// Writes the message, without allocating, and ends the process with exit status 1, or as endQuietlyOnLackOfMemory
/// says.
[[noreturn]] void endOutOfMemory();

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_OUTOFMEMORY_H
