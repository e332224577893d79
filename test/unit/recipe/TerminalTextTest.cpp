//===- TerminalTextTest.cpp - text that is safe for terminals --------------===//
#include "support/TerminalText.h"

#include <gtest/gtest.h>

using tcc::oneLine;
using tcc::terminalText;
using tcc::wrapped;

TEST(TerminalText, EscapeSequencesBecomeText) {
  EXPECT_EQ(terminalText("a\x1b[31mb\rc\b\x7f"), "a\\u001b[31mb\\u000dc\\u0008\\u007f");
  EXPECT_EQ(terminalText("\xc2\x9b" "31m"), "\\u009b31m"); // C1: the same as ESC [
  EXPECT_EQ(terminalText(std::string("\0x", 2)), "\\u0000x");
}

TEST(TerminalText, MarksOfDirectionBecomeText) {
  EXPECT_EQ(terminalText("\xe2\x80\xae" "txt.exe"), "\\u202etxt.exe");
  EXPECT_EQ(terminalText("\xe2\x81\xa6" "a\xe2\x80\xa8"), "\\u2066a\\u2028");
}

TEST(TerminalText, BytesThatAreNoTextBecomeText) {
  EXPECT_EQ(terminalText("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(terminalText("\xc0\xaf\xed\xa0\x80"), "\\xc0\\xaf\\xed\\xa0\\x80"); // overlong, surrogate
}

TEST(TerminalText, TextStays) {
  const char *text = "Größe → 日本語 👍\n\ttab";
  EXPECT_EQ(terminalText(text), text);
  EXPECT_EQ(oneLine("a\nb\tc"), "a\\u000ab\\u0009c");
}

TEST(TerminalWidth, LinesBreakAtSpaces) {
  EXPECT_EQ(wrapped("one two three\nfour\n", 9), "one two\n  three\nfour\n");
  EXPECT_EQ(wrapped("  one two three four", 10), "  one two\n    three\n    four");
  // Continuation lines of a list of options are indented to the text.
  EXPECT_EQ(wrapped("  --a N  the first of them all", 20), "  --a N  the first\n         of them all");
  // Words are not broken, and widths are counted in characters, not bytes.
  EXPECT_EQ(wrapped("averyveryverylongword next", 8), "averyveryverylongword\n  next");
  EXPECT_EQ(wrapped("äöü äöü äöü", 7), "äöü äöü\n  äöü");
  EXPECT_EQ(wrapped("", 5), "");
  EXPECT_EQ(wrapped("a\n\nb\n", 5), "a\n\nb\n");
}
