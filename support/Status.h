//===- Status.h - errors as values ---------------------------------------===//
//
// Errors are returned by value: a message for the user (what is wrong, where, and what to do) and its kind. Nothing
// throws or ends the process on bad input; programs make an exit status of the kind (tools/common/ExitStatus.h).
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

enum class StatusCode {
  Ok,
  Fault,      ///< the input, the data or the machine is at fault
  Usage,      ///< what was asked for is wrong, or contradicts itself
  OverBudget, ///< no plan fits the memory budget
  NonFinite,  ///< training stopped on a loss, gradient or state that is not finite
};

/// Success, or a message and its kind. A default-made Status is success.
class [[nodiscard]] Status {
public:
  Status() = default;
  explicit Status(std::string message, StatusCode code = StatusCode::Fault) : text(std::move(message)), kind(code) {}

  static Status success() { return Status(); }

  bool ok() const { return kind == StatusCode::Ok; }
  const std::string &message() const { return text; }
  StatusCode code() const { return kind; }

  /// The same error with "prefix: " in front; success stays success.
  Status withContext(const std::string &prefix) const { return ok() ? *this : Status(prefix + ": " + text, kind); }

private:
  std::string text;
  StatusCode kind = StatusCode::Ok;
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
