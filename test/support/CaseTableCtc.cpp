//===- CaseTableCtc.cpp - connectionist temporal classification -*- C++ -*-===//
//
// Lengths are drawn so that there are empty targets, samples without steps, and targets without an alignment. There are
// few classes, so that labels repeat.
//
//===----------------------------------------------------------------------===//
#include "test/support/Cases.h"

namespace tcc::test {

namespace {

void add(std::vector<Case> &cases, const std::string &name, const std::string &element, int samples, int steps,
         int classes, int labels, int blank, double shortest, double mostLabels, bool gradient) {
  auto tensor = [](std::initializer_list<int> shape, const std::string &type) {
    std::string text = "tensor<";
    for (int extent : shape)
      text += std::to_string(extent) + "x";
    return text + type + ">";
  };
  const std::string x = tensor({samples, steps, classes}, element), y = tensor({samples, labels}, "i64"),
                    n = tensor({samples}, "i64"), loss = tensor({samples}, element),
                    alphas = tensor({samples, steps, 2 * labels + 1}, element),
                    attributes = " {blank = " + std::to_string(blank) + " : i64} : ";
  const Range logProbs{-3, -0.2}, target{0, classes - 1.0}, inputs{shortest, double(steps)}, lengths{0, mostLabels};
  const std::string forward = "%l, %a = train.ctc %x, %y, %n, %m" + attributes + "(" + x + ", " + y + ", " + n + ", " + n +
                              ") -> (" + loss + ", " + alphas + ")";
  const std::string in = "(%x: " + x + ", %y: " + y + ", %n: " + n + ", %m: " + n + ") -> ";
  cases.push_back({"ctc_" + name + "_" + element, in + loss, forward, Types::None, {logProbs, target, inputs, lengths}, "%l",
                   gradient, 64});
  cases.push_back({"ctc_alphas_" + name + "_" + element, in + "(" + loss + ", " + alphas + ")", forward, Types::None,
                   {logProbs, target, inputs, lengths}, "%l, %a", false, 64});
  cases.push_back({"ctc_grad_" + name + "_" + element,
                   "(%g: " + loss + ", %x: " + x + ", %y: " + y + ", %n: " + n + ", %m: " + n + ", %l: " + loss +
                       ", %a: " + alphas + ") -> " + x,
                   "%r = train.ctc_grad %g, %x, %y, %n, %m, %l, %a" + attributes + "(" + loss + ", " + x + ", " + y + ", " +
                       n + ", " + n + ", " + loss + ", " + alphas + ") -> " + x,
                   Types::None,
                   {{-1, 1}, logProbs, target, inputs, lengths, {1, 3}, {-4, -2}},
                   "%r",
                   false,
                   64});
}

} // namespace

void addCtcCases(std::vector<Case> &cases) {
  for (const char *element : {"f64", "f32"}) {
    add(cases, "small", element, 3, 5, 3, 2, 0, 4, 2, true);
    add(cases, "one", element, 1, 1, 1, 1, 0, 1, 0, true);
    add(cases, "impossible", element, 5, 4, 3, 4, 2, 0, 4, true);
    add(cases, "lanes", element, 4, 9, 5, 17, 1, 0, 5, true);
    add(cases, "wide", element, 3, 24, 4, 40, 3, 20, 40, false); // no finite differences: too many elements
  }
}

} // namespace tcc::test
