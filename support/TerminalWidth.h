//===- TerminalWidth.h - how wide lines may be ------------------*- C++ -*-===//
#ifndef TCC_SUPPORT_TERMINALWIDTH_H
#define TCC_SUPPORT_TERMINALWIDTH_H

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tcc {

/// Columns of what the descriptor writes to: the variable COLUMNS where it is set, else those of a terminal; nothing for
/// a file or a pipe.
std::optional<size_t> columnsOf(int descriptor);

/// Characters of a UTF-8 text: bytes that do not go on with another character.
size_t characters(std::string_view text);

/// The text with lines of at most `width` characters, broken at spaces. A broken line goes on below the text that follows
/// its first gap of two spaces, as in a list of options, or else two columns further in than it began. Longer words stay
/// whole.
std::string wrapped(std::string_view text, size_t width);

} // namespace tcc

#endif // TCC_SUPPORT_TERMINALWIDTH_H
