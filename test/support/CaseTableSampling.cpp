//===- CaseTableSampling.cpp - sums at given places -------------*- C++ -*-===//
#include "test/support/Cases.h"

namespace tcc::test {

/// Weights are f64 for elements of f64 and f32 for all others, so that each element type has a text of its own.
static void addSampling(std::vector<Case> &cases, const std::string &type) {
  struct Shape {
    const char *name, *x, *table, *y;
  };
  const Shape shapes[] = {{"points", "2x3x7x1", "2x4x37", "2x3x37x1"},
                          {"rows", "1x2x5x19", "1x3x4", "1x2x4x19"},
                          {"one_tap", "1x1x6x1", "1x1x9", "1x1x9x1"},
                          {"wide", "1x1x3x130", "1x2x2", "1x1x2x130"}};
  std::string sum = type == "f64" ? "f64" : "f32";
  double slack = 16;
  for (const char *index : {"i32", "i64", "ui8"})
    for (const Shape &s : shapes) {
      auto tensor = [](const std::string &shape, const std::string &element) {
        return "tensor<" + shape + "x" + element + ">";
      };
      std::string x = tensor(s.x, type), y = tensor(s.y, type), i = tensor(s.table, index), w = tensor(s.table, sum);
      std::string suffix = std::string("_") + s.name + "_" + index + "_" + type;
      // Some places are outside.
      Range places{-2, 7};
      cases.push_back({"sample" + suffix,
                       "(%x: " + x + ", %i: " + i + ", %w: " + w + ") -> " + y,
                       "%r = train.sample %x, %i, %w : (" + x + ", " + i + ", " + w + ") -> " + y,
                       Types::None,
                       {{-2, 2}, places, {-2, 2}},
                       "%r",
                       true,
                       slack});
      cases.push_back({"spread" + suffix,
                       "(%y: " + y + ", %i: " + i + ", %w: " + w + ") -> " + x,
                       "%r = train.spread %y, %i, %w : (" + y + ", " + i + ", " + w + ") -> " + x,
                       Types::None,
                       {{-2, 2}, places, {-2, 2}},
                       "%r",
                       true,
                       64});
      cases.push_back({"sample_weight_grad" + suffix,
                       "(%x: " + x + ", %i: " + i + ", %y: " + y + ") -> " + w,
                       "%r = train.sample_weight_grad %x, %i, %y : (" + x + ", " + i + ", " + y + ") -> " + w,
                       Types::None,
                       {{-2, 2}, places, {-2, 2}},
                       "%r",
                       true,
                       64});
    }
  // With a constant table the gradient is a sample as well; with an uneven one it stays a spread.
  for (auto [name, table] : {std::pair{"known", "[[0, 1, 2, -1, 3, 3, 1]]"}, {"uneven", "[[0, 0, 0, 0, 0, 0, 0]]"}}) {
    std::string x = "tensor<1x2x40x3x" + type + ">", y = "tensor<1x2x7x3x" + type + ">";
    cases.push_back({std::string("sample_") + name + "_" + type,
                     "(%x: " + x + ") -> " + y,
                     std::string("%i = train.constant dense<[") + table +
                         "]> : tensor<1x1x7xi32>\n%w = train.constant dense<0.75> : tensor<1x1x7x" + sum +
                         ">\n%r = train.sample %x, %i, %w : (" + x + ", tensor<1x1x7xi32>, tensor<1x1x7x" + sum +
                         ">) -> " + y,
                     Types::None,
                     {{-2, 2}},
                     "%r",
                     true,
                     slack});
  }
}

void addSamplingCases(std::vector<Case> &cases) {
  for (const char *type : {"f64", "f32", "bf16", "f16"})
    addSampling(cases, type);
}

} // namespace tcc::test
