//===- Lexer.h - words of PTX text ---------------------------------------===//
//
// Cuts PTX into words: identifiers with their dots (`ld.global.v4.b32`, `%tid.x`, `.reg`), numbers and punctuation.
// Comments are skipped (PTX ISA, section 4.1).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_PTX_LEXER_H
#define TCC_TEST_EMULATION_PTX_LEXER_H

#include <cstdint>
#include <string>
#include <string_view>

namespace tcc::emulation::ptx {

struct Token {
  enum class Kind { End, Word, Integer, Float32, Float64, String, Punctuation, Bad };
  Kind kind = Kind::End;
  std::string_view text;
  uint64_t bits = 0; ///< of a number
  unsigned line = 0;

  bool is(std::string_view other) const { return (kind == Kind::Word || kind == Kind::Punctuation) && text == other; }
};

class Lexer {
public:
  explicit Lexer(std::string_view text) : text(text) { advance(); }

  const Token &peek() const { return next; }
  Token take() {
    Token token = next;
    advance();
    return token;
  }
  /// The text from one token up to, not including, another.
  std::string_view between(const Token &from, const Token &to) const {
    return text.substr(static_cast<size_t>(from.text.data() - text.data()),
                       static_cast<size_t>(to.text.data() - from.text.data()));
  }

private:
  void advance();
  void skipBlanks();
  void number();

  std::string_view text;
  size_t at = 0;
  unsigned line = 1;
  Token next;
};

} // namespace tcc::emulation::ptx

#endif // TCC_TEST_EMULATION_PTX_LEXER_H
