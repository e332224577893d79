//===- CaseTableLoop.cpp - recurrences ------------------------------------===//
//
// Loops that can be cut into rows, and loops that mix rows; several states, which are updated simultaneously; steps in
// reverse order; states that a step passes on unchanged.
//
//===----------------------------------------------------------------------===//
#include "test/support/Cases.h"

namespace tcc::test {

namespace {

/// The loop's operands by kind, each "name: type", and its results' types; the body's arguments are %a0, %a1, ….
struct LoopText {
  std::vector<std::pair<std::string, std::string>> initial, sliced, fixed;
  std::vector<std::string> results;
  int steps;
  std::string body;
  /// The types of the body's arguments for `sliced`.
  std::vector<std::string> parts;
};

/// `gradient`: also test finite differences of every element, for small cases.
void add(std::vector<Case> &cases, const std::string &name, const LoopText &text, bool gradient, double slack = 16) {
  for (bool reverse : {false, true}) {
    std::string operands, types_, arguments, signature, results, names;
    int count = 0;
    auto list = [](std::string &to, const std::string &item) { to += (to.empty() ? "" : ", ") + item; };
    for (const auto *group : {&text.initial, &text.sliced, &text.fixed})
      for (const auto &[operand, type] : *group) {
        list(operands, operand);
        list(types_, type);
        list(signature, operand + ": " + type);
        const size_t part = size_t(count) - text.initial.size();
        list(arguments, "%a" + std::to_string(count++) + ": " + (group == &text.sliced ? text.parts[part] : type));
      }
    for (size_t i = 0; i < text.results.size(); ++i) {
      list(results, text.results[i]);
      list(names, "%r" + std::to_string(i));
    }
    const std::string segments = std::to_string(text.initial.size()) + ", " + std::to_string(text.sliced.size()) +
                                 ", " + std::to_string(text.fixed.size());
    cases.push_back({"loop_" + name + (reverse ? "_backwards" : ""),
                     "(" + signature + ") -> (" + results + ")",
                     names + " = train.loop " + operands + " steps " + std::to_string(text.steps) +
                         " {operandSegmentSizes = array<i32: " + segments +
                         ">, reverse = " + (reverse ? "true" : "false") + "} : (" + types_ + ") -> (" + results +
                         ") {\n^bb0(" + arguments + "):\n" + text.body + "}",
                     Types::Floats,
                     {{-1, 1}},
                     names,
                     gradient,
                     slack});
  }
}

} // namespace

void addLoopCases(std::vector<Case> &cases) {
  add(cases, "cell",
      {{{"%h", "tensor<3x5x$T>"}},
       {{"%x", "tensor<4x3x5x$T>"}},
       {{"%w", "tensor<5x$T>"}},
       {"tensor<3x5x$T>", "tensor<4x3x5x$T>", "tensor<4x3x1x$T>"},
       4,
       "%w0 = train.broadcast %a2 : tensor<5x$T> -> tensor<3x5x$T>\n"
       "%m = train.mul %a0, %w0 : tensor<3x5x$T>\n"
       "%s = train.add %m, %a1 : tensor<3x5x$T>\n"
       "%t = train.tanh %s : tensor<3x5x$T>\n"
       "%u = train.reduce sum %t [1] : tensor<3x5x$T> -> tensor<3x1x$T>\n"
       "train.next (%t : tensor<3x5x$T>) parts (%t, %u : tensor<3x5x$T>, tensor<3x1x$T>)\n",
       {"tensor<3x5x$T>"}},
      true);
  for (int width : {16, 2}) {
    // Cut along samples and heads, which the product merges into one dimension.
    const std::string w = std::to_string(width) + "x", of = "_of_" + std::to_string(width);
    auto tensor = [](const std::string &shape) { return "tensor<" + shape + "$T>"; };
    const std::string state = tensor("2x3x" + w + w), row = tensor("2x3x1x" + w), column = tensor("2x3x" + w + "1x"),
                      read = tensor("2x1x" + std::to_string(3 * width) + "x"), rows = tensor("6x1x" + w),
                      states = tensor("6x" + w + w);
    add(cases, "heads" + of,
        {{{"%h", state}},
         {{"%q", tensor("3x2x3x1x" + w)}, {"%k", tensor("3x2x3x" + w + "1x")}, {"%v", tensor("3x2x3x1x" + w)}},
         {},
         {state, tensor("3x2x1x" + std::to_string(3 * width) + "x")},
         3,
         "%k0 = train.broadcast %a2 : " + column + " -> " + state + "\n%v0 = train.broadcast %a3 : " + row + " -> " +
             state + "\n%o = train.mul %k0, %v0 : " + state + "\n%n = train.add %a0, %o : " + state +
             "\n%q0 = train.reshape %a1 : " + row + " -> " + rows + "\n%n0 = train.reshape %n : " + state + " -> " +
             states + "\n%p = train.matmul %q0, %n0 : (" + rows + ", " + states + ") -> " + rows +
             "\n%y = train.reshape %p : " + rows + " -> " + read + "\ntrain.next (%n : " + state +
             ") parts (%y : " + read + ")\n",
         {row, column, row}},
        width == 2);
    // Cut along samples and parts of the channels: one operand has no channels, another no samples.
    const std::string channels = width == 16 ? "64x" : "3x";
    const std::string hidden = tensor("2x" + channels + w), input = tensor("2x" + channels + "1x"),
                      factor = tensor("2x1x" + w), decay = tensor(channels + w);
    add(cases, "channels" + of,
        {{{"%h", hidden}},
         {{"%x", tensor("3x2x" + channels + "1x")}, {"%c", tensor("3x2x1x" + w)}},
         {{"%d", decay}},
         {hidden, tensor("3x2x" + channels + "1x")},
         3,
         "%d0 = train.broadcast %a3 : " + decay + " -> " + hidden + "\n%x0 = train.broadcast %a1 : " + input + " -> " +
             hidden + "\n%c0 = train.broadcast %a2 : " + factor + " -> " + hidden +
             "\n%m = train.mul %a0, %d0 : " + hidden + "\n%n = train.add %m, %x0 : " + hidden +
             "\n%o = train.mul %n, %c0 : " + hidden + "\n%y = train.reduce sum %o [2] : " + hidden + " -> " + input +
             "\ntrain.next (%n : " + hidden + ") parts (%y : " + input + ")\n",
         {input, factor}},
        width == 2);
  }
  // Products mix the state's last dimension, and its rows.
  for (bool small : {false, true}) {
    const std::string r = small ? "3x" : "20x", c = small ? "2x" : "16x";
    const std::string state = "tensor<1x" + r + c + "$T>", all = "tensor<3x1x" + r + c + "$T>",
                      right = "tensor<1x" + c + c + "$T>", left = "tensor<1x" + r + r + "$T>";
    add(cases, small ? "mixed_small" : "mixed",
        {{{"%h", state}},
         {{"%x", all}},
         {{"%w", right}, {"%m", left}},
         {state, all},
         3,
         "%p = train.matmul %a0, %a2 : (" + state + ", " + right + ") -> " + state + "\n%q = train.matmul %a3, %p : (" +
             left + ", " + state + ") -> " + state + "\n%s = train.add %q, %a1 : " + state +
             "\n%t = train.tanh %s : " + state + "\ntrain.next (%t : " + state + ") parts (%a0 : " + state + ")\n",
         {state}},
        small, 256);
  }
  // The outer product of a vector with itself: one dimension runs along both sides.
  add(cases, "outer",
      {{{"%h", "tensor<20x20x$T>"}},
       {{"%x", "tensor<3x20x$T>"}},
       {},
       {"tensor<20x20x$T>"},
       3,
       "%r = train.reshape %a1 : tensor<20x$T> -> tensor<20x1x$T>\n"
       "%r0 = train.broadcast %r : tensor<20x1x$T> -> tensor<20x20x$T>\n"
       "%c0 = train.broadcast %a1 : tensor<20x$T> -> tensor<20x20x$T>\n"
       "%o = train.mul %r0, %c0 : tensor<20x20x$T>\n"
       "%n = train.add %a0, %o : tensor<20x20x$T>\n"
       "train.next (%n : tensor<20x20x$T>)\n",
       {"tensor<20x$T>"}},
      false);
  // Several states are updated simultaneously: one counts steps, one is a part of the operand; one result is a
  // constant.
  add(cases, "states",
      {{{"%a", "tensor<6x$T>"}, {"%b", "tensor<6x$T>"}, {"%n", "tensor<i64>"}, {"%p", "tensor<6x$T>"}},
       {{"%x", "tensor<5x6x$T>"}},
       {},
       {"tensor<6x$T>", "tensor<6x$T>", "tensor<i64>", "tensor<6x$T>", "tensor<5x6x$T>", "tensor<5x2x$T>",
        "tensor<5x6x$T>"},
       5,
       "%one = train.constant dense<1> : tensor<i64>\n"
       "%z = train.constant dense<1.5> : tensor<2x$T>\n"
       "%next = train.add %a2, %one : tensor<i64>\n"
       "%f = train.cast %a2 : tensor<i64> -> tensor<$T>\n"
       "%f0 = train.broadcast %f : tensor<$T> -> tensor<6x$T>\n"
       "%m = train.mul %a0, %a3 : tensor<6x$T>\n"
       "%k = train.add %m, %a1 : tensor<6x$T>\n"
       "%l = train.sub %k, %f0 : tensor<6x$T>\n"
       "train.next (%a1, %l, %next, %a4 : tensor<6x$T>, tensor<6x$T>, tensor<i64>, tensor<6x$T>)"
       " parts (%l, %z, %a0 : tensor<6x$T>, tensor<2x$T>, tensor<6x$T>)\n",
       {"tensor<6x$T>"}},
      true, 64);
}

} // namespace tcc::test
