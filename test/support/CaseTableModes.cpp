//===- CaseTableModes.cpp - cases of random numbers, dropout and batch norm -*- C++ -*-===//
#include "test/support/Cases.h"

namespace tcc::test {

void addModeCases(std::vector<Case> &cases) {
  auto type = [](const std::string &shape, const std::string &element = "$T") {
    return "tensor<" + shape + element + ">";
  };
  const std::string key = type("4x", "ui32");
  // Keys of the generator may be any words.
  const Range words{0, 4e9}, values{-2, 2};
  struct Shape {
    const char *name, *shape;
  };
  const Shape shapes[] = {{"scalar", ""}, {"1", "1x"}, {"37", "37x"}, {"3x5x17", "3x5x17x"}};
  for (Shape s : shapes) {
    for (const char *kind : {"uniform", "normal"})
      cases.push_back(
          {std::string("random_") + kind + "_" + s.name,
           "(%k: " + key + ") -> " + type(s.shape),
           std::string("%r = train.random ") + kind + " %k id = -81985529216486896 : " + key + " -> " + type(s.shape),
           Types::Floats,
           {words},
           "%r",
           false,
           16});
    cases.push_back({std::string("random_bits_") + s.name,
                     "(%k: " + key + ") -> " + type(s.shape, "ui32"),
                     "%r = train.random bits %k id = 81985529216486895 : " + key + " -> " + type(s.shape, "ui32"),
                     Types::None,
                     {words}});
  }
  // Fused into a transpose, each element must keep its own random number.
  cases.push_back({"random_transposed",
                   "(%k: " + key + ") -> " + type("17x5x", "ui32"),
                   "%b = train.random bits %k id = 3 : " + key + " -> " + type("5x17x", "ui32") +
                       "\n%r = train.transpose %b [1, 0] : " + type("5x17x", "ui32") + " -> " + type("17x5x", "ui32"),
                   Types::None,
                   {words}});
  for (const char *p : {"0.0", "0.25", "1.0"})
    for (Shape s : shapes) {
      std::string x = type(s.shape), mask = type(s.shape, "i1");
      cases.push_back({std::string("dropout_") + p[0] + p[2] + "_" + s.name,
                       "(%x: " + x + ", %k: " + key + ") -> (" + x + ", " + mask + ")",
                       std::string("%r, %m = train.dropout %x, %k id = 12345678901 p = ") + p + " : (" + x + ", " +
                           key + ") -> (" + x + ", " + mask + ")",
                       Types::Floats,
                       {values, words},
                       "%r, %m"});
    }
  struct Norm {
    const char *name, *shape, *channels;
  };
  for (Norm n : {Norm{"2d", "9x5x", "5x"}, {"4d", "3x5x4x3x", "5x"}, {"one_channel", "6x1x7x", "1x"}})
    for (const char *element : {"f64", "f32"}) {
      std::string x = type(n.shape, element), c = type(n.channels, element);
      cases.push_back({std::string("batch_norm_") + n.name + "_" + element,
                       "(%x: " + x + ", %s: " + c + ", %b: " + c + ", %m: " + c + ", %v: " + c + ") -> (" + x + ", " +
                           c + ", " + c + ")",
                       "%r, %mean, %variance = train.batch_norm %x, %s, %b, %m, %v epsilon = 1.0e-5 : (" + x + ", " +
                           c + ", " + c + ", " + c + ", " + c + ") -> (" + x + ", " + c + ", " + c + ")",
                       Types::None,
                       {values},
                       "%r, %mean, %variance",
                       true,
                       8});
    }
  std::string x = type("8x3x5x", "bf16"), c = type("3x", "bf16"), statistic = type("3x", "f32");
  cases.push_back({"batch_norm_bf16",
                   "(%x: " + x + ", %s: " + c + ", %b: " + c + ", %m: " + c + ", %v: " + c + ") -> " + x,
                   "%r, %mean, %variance = train.batch_norm %x, %s, %b, %m, %v epsilon = 1.0e-5 : (" + x + ", " + c +
                       ", " + c + ", " + c + ", " + c + ") -> (" + x + ", " + statistic + ", " + statistic + ")",
                   Types::None,
                   {values}});
}

} // namespace tcc::test
