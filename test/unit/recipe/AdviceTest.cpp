//===- AdviceTest.cpp - advice in the words of the program that shows it ---===//
#include "support/Advice.h"
#include "tools/common/CommandLineWording.h"
#include "tools/common/StandardStreams.h"

#include <gtest/gtest.h>

using namespace tcc;

namespace {
struct Case {
  std::string text, typed, neutral;
};

/// Every kind of advice, with and without a value.
const std::vector<Case> &cases() {
  static const std::vector<Case> list = {
      {advice::option("out"), "--out", "out"},
      {advice::option("eval-data", "PATH"), "--eval-data PATH", "eval-data = PATH"},
      {advice::flag("shuffle"), "--shuffle", "shuffle = true"},
      {advice::flag("shuffle", false), "--no-shuffle", "shuffle = false"},
      {advice::set("data.max_bad", "N"), "--set data.max_bad=N", "data.max_bad = N"},
      {advice::set("data.constant", "[\"x\"]"), "--set 'data.constant=[\"x\"]'", "data.constant = [\"x\"]"},
      {advice::set("loss", "{ kind = 1 }"), "--set 'loss={ kind = 1 }'", "loss = { kind = 1 }"},
      {advice::command("data"), "trun data", "data"},
      {advice::run("out"), "trun --out", "out"},
      {advice::run("epochs", "N"), "trun --epochs N", "epochs = N"},
      {advice::resume("runs/a"), "trun … --resume runs/a", "resume runs/a"},
      {advice::compile("memory-budget"), "tcc --memory-budget", "memory-budget"},
      {advice::compile("entry", "train,evaluate"), "tcc --entry train,evaluate", "entry = train,evaluate"},
      {advice::compileSet("parallel.mode", "ddp"), "tcc --set parallel.mode=ddp", "parallel.mode = ddp"},
      {advice::compileSet("evaluate.metrics", "[\"f1\"]"), "tcc --set 'evaluate.metrics=[\"f1\"]'",
       "evaluate.metrics = [\"f1\"]"},
      {advice::compileCommand("frontier"), "tcc frontier", "frontier"},
  };
  return list;
}
} // namespace

TEST(Advice, EveryKindHasWords) {
  for (const Case &one : cases()) {
    EXPECT_EQ(worded(one.text, tools::CommandLineWording()), one.typed);
    EXPECT_EQ(worded(one.text, Wording()), one.neutral);
  }
}

TEST(Advice, ATextHoldsSeveral) {
  std::string text = "Größe: ", typed = text, neutral = text;
  for (const Case &one : cases()) {
    text += one.text + one.text + "; ";
    typed += one.typed + one.typed + "; ";
    neutral += one.neutral + one.neutral + "; ";
  }
  EXPECT_EQ(worded(text, tools::CommandLineWording()), typed);
  EXPECT_EQ(worded(text, Wording()), neutral);
  EXPECT_EQ(worded(typed, Wording()), typed) << "words are not advice";
}

TEST(Advice, TextWithoutAdviceStays) {
  for (const char *text : {"", "a: cannot open: No such file", "--out\n\ttab", "日本語 👍"})
    EXPECT_EQ(worded(text, tools::CommandLineWording()), text);
}

TEST(Advice, ATextThatWasCutEndsBeforeTheAdvice) {
  const std::string before = "give " + advice::option("out") + " or ";
  const std::string whole = before + advice::set("data.max_bad", "N");
  for (size_t size = before.size(); size < whole.size(); ++size)
    EXPECT_EQ(worded(whole.substr(0, size), tools::CommandLineWording()), "give --out or ") << size;
}

/// Names come from files, and may hold the characters of a mark.
TEST(Advice, NamesHideNoAdvice) {
  const std::string out = advice::option("out");
  for (const std::string name : {"a\x01", "\x01o\x01", "\x01\x02", "\x01\x02\x03", "a\x02\x03", "\x01o\x03"})
    EXPECT_EQ(worded(name + ": give " + out, tools::CommandLineWording()), name + ": give --out");
}

TEST(Advice, CommandsPrintItAsItIsTyped) {
  EXPECT_EQ(tools::shownText("\x1b[31m: give " + advice::option("out")), "\\u001b[31m: give --out");
}

TEST(Advice, ACommandNamesItselfInTheAdviceToResume) {
  tools::CommandLineWording wording;
  wording.resumeCommand = [](std::string_view run) { return "trun p.tplan --resume " + std::string(run); };
  EXPECT_EQ(worded("or " + advice::resume("r"), wording), "or trun p.tplan --resume r");
}
