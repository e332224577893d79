//===- CaseTableQuantization.cpp - cases of fake quantisation and 4 bits -*- C++ -*-===//
#include "test/support/Cases.h"

namespace tcc::test {

void addQuantizationCases(std::vector<Case> &cases) {
  auto label = [](const std::string &shape) { return shape.empty() ? "scalar" : shape.substr(0, shape.size() - 1); };
  struct Quantizer {
    const char *name, *scale, *zeroPoint, *bounds;
    Range range;
  };
  // Scales are powers of two, so that quotients are exact in every type; in 16-bit types many are ties.
  for (const Quantizer &q : {Quantizer{"signed", "0.25", "0.0", "-128 to 127", {-40, 40}},
                             {"unsigned", "0.0625", "93.0", "0 to 255", {-8, 13}},
                             {"narrow", "0.5", "3.0", "-7 to 7", {-9, 9}}})
    for (const char *shape : {"", "1x", "17x", "3x1x5x"})
      cases.push_back({std::string("fake_quantize_") + q.name + "_" + label(shape),
                       "(%x: tensor<$S$T>) -> tensor<$S$T>",
                       std::string("%s = train.constant dense<") + q.scale +
                           "> : tensor<$S$T>\n%z = train.constant dense<" + q.zeroPoint +
                           "> : tensor<$S$T>\n%r = train.fake_quantize %x, %s, %z within " + q.bounds +
                           " : tensor<$S$T>",
                       Types::Floats,
                       {q.range},
                       "%r",
                       /*gradient=*/false,
                       1,
                       shape});
  // A scale for each row; f32 quotients of random numbers are not ties.
  cases.push_back({"fake_quantize_rows",
                   "(%x: tensor<5x13xf32>, %s: tensor<5x1xf32>, %z: tensor<5x1xf32>) -> tensor<5x13xf32>",
                   "%a = train.broadcast %s : tensor<5x1xf32> -> tensor<5x13xf32>\n"
                   "%b = train.broadcast %z : tensor<5x1xf32> -> tensor<5x13xf32>\n"
                   "%r = train.fake_quantize %x, %a, %b within -20 to 20 : tensor<5x13xf32>",
                   Types::None,
                   {{-9, 9}, {0.2, 0.9}, {-3, 3}},
                   "%r",
                   /*gradient=*/false});
  // Numbers of a table, found by each element's share of its row's largest: one kernel, as that of moments in 8 bits.
  for (const char *columns : {"256", "37"}) {
    const std::string full = std::string("tensor<5x") + columns + "x", row = "tensor<5x1xf32>";
    cases.push_back({std::string("table_of_shares_") + columns,
                     "(%x: " + full + "f32>) -> (" + full + "f32>, " + row + ")",
                     "%a = train.abs %x : " + full + "f32>\n%m = train.reduce max %a [1] : " + full + "f32> -> " + row +
                         "\n%w = train.broadcast %m : " + row + " -> " + full + "f32>\n%n = train.div %x, %w : " + full +
                         "f32>\n%c = train.constant dense<3.3> : " + full + "f32>\n%s = train.mul %n, %c : " + full +
                         "f32>\n%p = train.add %s, %c : " + full + "f32>\n%i = train.cast %p : " + full + "f32> -> " +
                         full +
                         "i32>\n%t = train.constant dense<[-1.5, 0.5, 3.0, -0.25, 7.0, 2.5, 9.0]> : tensor<7xf32>\n"
                         "%g = train.gather %t, %i axis = 0 : (tensor<7xf32>, " +
                         full + "i32>) -> " + full + "f32>\n%r = train.mul %g, %x : " + full + "f32>",
                     Types::None,
                     {{-9, 9}},
                     "%r, %m",
                     /*gradient=*/false});
  }
  // Quantisation steps far below those of finite differences: the slope is 1 within ±1 and 0 beyond.
  cases.push_back({"fake_quantize_fine",
                   "(%x: tensor<31xf64>) -> tensor<31xf64>",
                   "%s = train.constant dense<1.1368683772161603e-13> : tensor<31xf64>\n"
                   "%z = train.constant dense<0.0> : tensor<31xf64>\n"
                   "%r = train.fake_quantize %x, %s, %z within -8796093022208 to 8796093022208 : tensor<31xf64>",
                   Types::None,
                   {{-2, 2}}});
  for (const char *shape : {"", "1x", "37x", "3x5x7x"})
    cases.push_back(
        {"observed_range_" + label(shape),
         std::string("(%x: tensor<") + shape + "$T>, %l: tensor<$T>, %h: tensor<$T>) -> (tensor<$T>, tensor<$T>)",
         std::string("%r, %q = train.observed_range %x, %l, %h rate = 0.25 : (tensor<") + shape +
             "$T>, tensor<$T>, tensor<$T>) -> (tensor<$T>, tensor<$T>)",
         Types::Floats,
         {{-9, 9}, {-4, 0}, {0, 4}},
         "%r, %q"});
  // Matrices stored along their rows and columns, with blocks that end inside a row, at its end and beyond the matrix;
  // a filter; rows of a table, of which one has an odd number of codes.
  struct Packed {
    const char *name, *code, *bytes, *scales, *block, *shape, *strides, *result;
  };
  for (const Packed &p : {Packed{"rows", "nf4", "256", "8", "64", "8, 64", "64, 1", "8x64"},
                          {"odd_rows", "nf4", "84", "6", "32", "7, 24", "24, 1", "7x24"},
                          {"columns", "nf4", "59", "2", "64", "13, 9", "1, 13", "13x9"},
                          {"padded", "int4", "218", "14", "32", "7, 51", "64, 1", "7x51"},
                          {"padded_columns", "int4", "167", "6", "64", "77, 3", "1, 128", "77x3"},
                          {"filter", "int4", "73", "5", "32", "5, 3, 3, 2", "32, 6, 2, 1", "5x3x3x2"}})
    cases.push_back({std::string("unpack_") + p.name,
                     std::string("(%b: tensor<") + p.bytes + "xui8>, %s: tensor<" + p.scales + "xf32>) -> tensor<" +
                         p.result + "xf32>",
                     std::string("%r = train.unpack ") + p.code + " %b, %s block = " + p.block + " shape = [" +
                         p.shape + "] strides = [" + p.strides + "] : (tensor<" + p.bytes + "xui8>, tensor<" +
                         p.scales + "xf32>) -> tensor<" + p.result + "xf32>",
                     Types::None,
                     {{0, 255}, {-2, 2}},
                     "%r",
                     /*gradient=*/false});
  for (const char *code : {"nf4", "int4"})
    cases.push_back(
        {std::string("unpack_lookup_") + code,
         "(%b: tensor<129xui8>, %s: tensor<5xf32>, %i: tensor<2x3xi64>) -> tensor<2x3x35xf32>",
         std::string("%r = train.unpack ") + code +
             " %b, %s at %i block = 64 shape = [4, 35] strides = [74, 1] : (tensor<129xui8>, tensor<5xf32>, "
             "tensor<2x3xi64>) -> tensor<2x3x35xf32>",
         Types::None,
         {{0, 255}, {-2, 2}, {-5, 5}},
         "%r",
         /*gradient=*/false});
  // Nested scales: codes of numbers, of which every 256 have a magnitude.
  for (const char *lookup : {"", "lookup_"}) {
    const bool taken = *lookup != 0;
    const std::string result = taken ? "tensor<2x3x4129xf32>" : "tensor<3x4129xf32>";
    cases.push_back(
        {std::string("unpack_") + lookup + "nested",
         std::string("(%b: tensor<6194xui8>, %s: tensor<388xui8>, %n: tensor<3xf32>, %m: tensor<256xf32>") +
             (taken ? ", %i: tensor<2x3xi64>" : "") + ") -> " + result,
         std::string("%r = train.unpack nf4 %b, %s nested %n by %m ") + (taken ? "at %i " : "") +
             "block = 32 shape = [3, 4129] strides = [4129, 1] : (tensor<6194xui8>, tensor<388xui8>, tensor<3xf32>, "
             "tensor<256xf32>" +
             (taken ? ", tensor<2x3xi64>" : "") + ") -> " + result,
         Types::None,
         taken ? std::vector<Range>{{0, 255}, {0, 255}, {-2, 2}, {-1, 1}, {-3, 3}}
               : std::vector<Range>{{0, 255}, {0, 255}, {-2, 2}, {-1, 1}},
         "%r",
         /*gradient=*/false});
  }
  // As files store them: blocks along rows that are padded to whole blocks, along columns, one scale for each row or
  // for all; zero points in codes and in f32.
  struct Grid {
    const char *name, *code, *bytes, *scales, *zeros, *shape, *strides, *grid, *result;
  };
  for (const Grid &g :
       {Grid{"rows", "int4", "112", "14", "", "7, 27", "32, 1",
             "blocks = array<i64: 1, 16>, scaleStrides = array<i64: 2, 1>", "7x27"},
        {"rows_zeros", "uint4", "336", "21", "14xui8", "7, 41", "96, 1",
         "blocks = array<i64: 1, 32>, scaleStrides = array<i64: 3, 1>, zeroStrides = array<i64: 4, 1>", "7x41"},
        {"rows_numbers", "uint4", "112", "14", "14xf32", "7, 27", "32, 1",
         "blocks = array<i64: 1, 16>, scaleStrides = array<i64: 2, 1>, zeroStrides = array<i64: 2, 1>", "7x27"},
        {"columns", "sint4", "93", "15", "", "37, 5", "5, 1",
         "blocks = array<i64: 16, 1>, scaleStrides = array<i64: 5, 1>", "37x5"},
        {"columns_zeros", "sint4", "93", "15", "8xui8", "37, 5", "5, 1",
         "blocks = array<i64: 16, 1>, scaleStrides = array<i64: 5, 1>, zeroStrides = array<i64: 5, 1>", "37x5"},
        {"per_axis", "uint4", "52", "13", "7xui8", "8, 13", "13, 1",
         "blocks = array<i64: 8, 1>, scaleStrides = array<i64: 0, 1>, zeroStrides = array<i64: 0, 1>", "8x13"},
        {"per_tensor", "sint4", "52", "1", "", "8, 13", "13, 1",
         "blocks = array<i64: 8, 13>, scaleStrides = array<i64: 0, 0>", "8x13"}}) {
    const std::string zeros = g.zeros, types = std::string("tensor<") + g.bytes + "xui8>, tensor<" + g.scales +
                                               "xf32>" + (zeros.empty() ? "" : ", tensor<" + zeros + ">");
    cases.push_back({std::string("unpack_grid_") + g.name,
                     std::string("(%b: tensor<") + g.bytes + "xui8>, %s: tensor<" + g.scales + "xf32>" +
                         (zeros.empty() ? "" : ", %z: tensor<" + zeros + ">") + ") -> tensor<" + g.result + "xf32>",
                     std::string("%r = train.unpack ") + g.code + " %b, %s " + (zeros.empty() ? "" : "minus %z ") +
                         "block = 0 shape = [" + g.shape + "] strides = [" + g.strides + "] {" + g.grid + "} : (" +
                         types + ") -> tensor<" + g.result + "xf32>",
                     Types::None,
                     zeros.ends_with("f32") ? std::vector<Range>{{0, 255}, {-2, 2}, {-3, 9}}
                     : zeros.empty()        ? std::vector<Range>{{0, 255}, {-2, 2}}
                                            : std::vector<Range>{{0, 255}, {-2, 2}, {0, 255}},
                     "%r",
                     /*gradient=*/false});
  }
  cases.push_back(
      {"unpack_grid_lookup",
       "(%b: tensor<81xui8>, %s: tensor<12xf32>, %z: tensor<6xui8>, %i: tensor<2x3xi64>) -> tensor<2x3x40xf32>",
       "%r = train.unpack uint4 %b, %s minus %z at %i block = 0 shape = [4, 40] strides = [40, 1] {blocks = "
       "array<i64: 1, 16>, scaleStrides = array<i64: 3, 1>, zeroStrides = array<i64: 3, 1>} : (tensor<81xui8>, "
       "tensor<12xf32>, tensor<6xui8>, tensor<2x3xi64>) -> tensor<2x3x40xf32>",
       Types::None,
       {{0, 255}, {-2, 2}, {0, 255}, {-4, 4}},
       "%r",
       /*gradient=*/false});
}

} // namespace tcc::test
