//===- TerminalWidth.h - how wide lines may be ------------------*- C++ -*-===//
#ifndef TCC_SUPPORT_TERMINALWIDTH_H
#define TCC_SUPPORT_TERMINALWIDTH_H

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tcc {

/// The width of the descriptor's output: the variable COLUMNS if it is set, else that of the terminal; nothing for a
/// file or a pipe.
std::optional<size_t> columnsOf(int descriptor);

/// The number of characters of a UTF-8 text: its bytes without continuation bytes.
size_t characters(std::string_view text);

/// The text with lines of at most `width` characters, broken at spaces. Continuation lines are aligned with the text
/// after the line's first gap of two spaces, as in a list of options, or else indented by two more columns. Longer
/// words stay whole.
std::string wrapped(std::string_view text, size_t width);

} // namespace tcc

#endif // TCC_SUPPORT_TERMINALWIDTH_H
