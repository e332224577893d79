//===- TerminalText.h - text from files, made safe to print -----*- C++ -*-===//
//
// Names in a model, a recipe or a data set may hold anything: escape sequences that rewrite a terminal, characters that
// change the text direction, bytes that are not text. Everything that a command prints goes through here.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_TERMINALTEXT_H
#define TCC_SUPPORT_TERMINALTEXT_H

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tcc {

/// The text with control characters (C0 but for newline and tab, DEL, C1), line separators and marks of the text
/// direction escaped as \u001b, and bytes that are not UTF-8 as \xff. All other characters stay; so does JSON's
/// meaning.
std::string terminalText(std::string_view text);

/// The same for a name inside a line: newlines and tabs are written out, too.
std::string oneLine(std::string_view name);

/// True if all of the text is UTF-8 (RFC 3629).
bool isUtf8(std::string_view text);

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

#endif // TCC_SUPPORT_TERMINALTEXT_H
