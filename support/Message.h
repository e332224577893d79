//===- Message.h - messages from a library to its caller ---------*- C++ -*-===//
#ifndef TCC_SUPPORT_MESSAGE_H
#define TCC_SUPPORT_MESSAGE_H

#include <fmt/core.h>
#include <functional>
#include <string>
#include <utility>

namespace tcc {

/// A text for people, which may hold advice (support/Advice.h).
struct Message {
  enum class Tone { Plain, Note, Warning };
  Tone tone = Tone::Plain;
  std::string text;

  template <typename... Args> static Message plain(fmt::format_string<Args...> format, Args &&...args) {
    return {Tone::Plain, fmt::format(format, std::forward<Args>(args)...)};
  }
  template <typename... Args> static Message note(fmt::format_string<Args...> format, Args &&...args) {
    return {Tone::Note, fmt::format(format, std::forward<Args>(args)...)};
  }
  template <typename... Args> static Message warning(fmt::format_string<Args...> format, Args &&...args) {
    return {Tone::Warning, fmt::format(format, std::forward<Args>(args)...)};
  }

  /// "note: TEXT", "warning: TEXT", or the text alone.
  std::string line() const {
    return (tone == Tone::Note ? "note: " : tone == Tone::Warning ? "warning: " : "") + text;
  }
  bool operator==(const Message &) const = default;
};

using MessageSink = std::function<void(const Message &)>;

} // namespace tcc

#endif // TCC_SUPPORT_MESSAGE_H
