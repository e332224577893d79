//===- Status.h - errors as values ---------------------------------------===//
//
// The runtime returns errors by value: a message for the user (what is wrong, where, and what to do) and the exit
// status of the command. Nothing in the runtime throws or ends the process on bad input.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_STATUS_H
#define TCC_SUPPORT_STATUS_H

#include <cassert>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <utility>

namespace tcc {

/// Exit statuses of the commands.
enum ExitCode : int {
  kExitDone = 0,
  kExitFault = 1,      ///< the input, the data or the machine is at fault
  kExitUsage = 2,      ///< wrong usage
  kExitOverBudget = 3, ///< no plan fits the budget
  kExitNonFinite = 4,  ///< training stopped on a non-finite loss
};

/// Success, or a message and an exit code. A default-made Status is success.
class [[nodiscard]] Status {
public:
  Status() = default;
  explicit Status(std::string message, int exitCode = kExitFault) : text(std::move(message)), code(exitCode) {}

  static Status success() { return Status(); }

  bool ok() const { return code == kExitDone; }
  const std::string &message() const { return text; }
  int exitCode() const { return code; }

  /// The same error with "prefix: " in front; success stays success.
  Status withContext(const std::string &prefix) const { return ok() ? *this : Status(prefix + ": " + text, code); }

private:
  std::string text;
  int code = kExitDone;
};

/// An error made from a format string: `return error("{}: cannot open: {}", path, reason);`
template <typename... Args> Status error(fmt::format_string<Args...> format, Args &&...args) {
  return Status(fmt::format(format, std::forward<Args>(args)...));
}

/// A value or the error that prevented it.
template <typename T> class [[nodiscard]] Expected {
public:
  Expected(T result) : value(std::move(result)) {}
  Expected(Status failure) : problem(std::move(failure)) { assert(!problem.ok() && "success needs a value"); }

  bool ok() const { return value.has_value(); }
  explicit operator bool() const { return ok(); }

  T &operator*() { return *value; }
  const T &operator*() const { return *value; }
  T *operator->() { return &*value; }
  const T *operator->() const { return &*value; }

  /// The value, moved out; only where ok().
  T take() { return std::move(*value); }

  /// The error, or success where there is a value.
  const Status &status() const { return problem; }
  const std::string &message() const { return problem.message(); }

private:
  std::optional<T> value;
  Status problem;
};

} // namespace tcc

#endif // TCC_SUPPORT_STATUS_H
