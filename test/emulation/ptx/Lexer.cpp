//===- Lexer.cpp - words of PTX text -------------------------------------===//
#include "test/emulation/ptx/Lexer.h"

#include <charconv>

namespace tcc::emulation::ptx {

namespace {
bool startsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || c == '.';
}
bool digit(char c) { return c >= '0' && c <= '9'; }
bool continuesWord(char c) { return startsWord(c) || digit(c); }
} // namespace

void Lexer::skipBlanks() {
  while (at < text.size()) {
    if (text[at] == '\n') {
      ++line;
      ++at;
    } else if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
      ++at;
    } else if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at, 2) == "/*") {
      size_t end = text.find("*/", at + 2);
      for (; at < std::min(end, text.size()); ++at)
        line += text[at] == '\n';
      at = std::min(at + 2, text.size());
    } else {
      return;
    }
  }
}

/// 0f and 0d are followed by the bits of a float in hexadecimal; integers may end in U (PTX ISA, section 4.5).
void Lexer::number() {
  size_t begin = at;
  auto read = [&](size_t skip, int base) {
    auto [end, problem] = std::from_chars(text.data() + begin + skip, text.data() + text.size(), next.bits, base);
    at = static_cast<size_t>(end - text.data());
    if (problem != std::errc() || at == begin + skip)
      next.kind = Token::Kind::Bad;
  };
  std::string_view prefix = text.substr(at, 2);
  next.kind = Token::Kind::Integer;
  if (prefix == "0f" || prefix == "0F") {
    next.kind = Token::Kind::Float32;
    read(2, 16);
    if (at - begin != 10)
      next.kind = Token::Kind::Bad;
  } else if (prefix == "0d" || prefix == "0D") {
    next.kind = Token::Kind::Float64;
    read(2, 16);
    if (at - begin != 18)
      next.kind = Token::Kind::Bad;
  } else if (prefix == "0x" || prefix == "0X") {
    read(2, 16);
  } else if (prefix == "0b" || prefix == "0B") {
    read(2, 2);
  } else {
    bool octal = text[at] == '0' && at + 1 < text.size() && digit(text[at + 1]);
    read(0, octal ? 8 : 10);
  }
  if (at < text.size() && text[at] == 'U' && next.kind == Token::Kind::Integer)
    ++at;
  // "8.0", the version, is the only number with a point: it becomes two tokens, the number 8 and the word ".0".
  if (at < text.size() && continuesWord(text[at]) && text[at] != '.')
    next.kind = Token::Kind::Bad;
}

void Lexer::advance() {
  skipBlanks();
  next = Token();
  next.line = line;
  size_t begin = at;
  if (at >= text.size()) {
    next.text = text.substr(text.size());
    return;
  }
  char c = text[at];
  if (startsWord(c)) {
    next.kind = Token::Kind::Word;
    while (at < text.size() && continuesWord(text[at]))
      ++at;
    // Template arguments never occur; "%p<10>" of a declaration is three tokens and a number.
  } else if (digit(c)) {
    number();
  } else if (c == '"') {
    next.kind = Token::Kind::String;
    at = text.find('"', at + 1);
    at = at == std::string_view::npos ? text.size() : at + 1;
  } else {
    next.kind = Token::Kind::Punctuation;
    ++at;
  }
  next.text = text.substr(begin, at - begin);
}

} // namespace tcc::emulation::ptx
