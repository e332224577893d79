//===- CaseTableContraction.cpp - products, windows, indices ----*- C++ -*-===//
#include "test/support/Cases.h"

namespace tcc::test {

static std::string tensor(const std::string &shape, const std::string &element = "$T") {
  return "tensor<" + shape + "x" + element + ">";
}

void addIndexingCases(std::vector<Case> &cases) {
  struct Shape {
    const char *name, *input, *indices, *axis, *result;
  };
  const Shape shapes[] = {{"rows", "7x19", "5", "0", "5x19"},   {"rows_2d", "7x3", "2x4", "0", "2x4x3"},
                          {"columns", "3x7", "9", "1", "3x9"},  {"middle", "2x5x3", "4", "1", "2x4x3"},
                          {"vector", "7", "11", "0", "11"},     {"wide", "3x130", "4", "0", "4x130"}};
  for (const char *index : {"i64", "i32", "ui8"})
    for (const Shape &s : shapes) {
      std::string in = tensor(s.input), at = tensor(s.indices, index), out = tensor(s.result), suffix = std::string(s.name) + "_" + index;
      // Negative indices count from the end; indices beyond either end are clamped.
      cases.push_back({"gather_" + suffix, "(%x: " + in + ", %i: " + at + ") -> " + out,
                       "%r = train.gather %x, %i axis = " + std::string(s.axis) + " : (" + in + ", " + at + ") -> " + out, Types::All,
                       {{-9, 9}, {-4, 8}}});
      cases.push_back({"scatter_add_" + suffix, "(%x: " + in + ", %i: " + at + ", %u: " + out + ") -> " + in,
                       "%r = train.scatter_add %x, %i, %u axis = " + std::string(s.axis) + " : (" + in + ", " + at + ", " + out + ") -> " + in,
                       Types::All, {{-9, 9}, {-4, 8}, {-9, 9}}, "%r", true, 8});
    }
  struct Pick {
    const char *input, *indices, *dim;
  };
  for (Pick s : {Pick{"5x7", "5x1", "1"}, {"7x5", "1x5", "0"}, {"3x4x17", "3x1x17", "1"}}) {
    std::string in = tensor(s.input), at = tensor(s.indices, "i64"), out = tensor(s.indices);
    cases.push_back({std::string("pick_") + s.input, "(%x: " + in + ", %i: " + at + ") -> " + out,
                     "%r = train.pick %x, %i dim = " + std::string(s.dim) + " : (" + in + ", " + at + ") -> " + out, Types::All, {{-9, 9}, {-2, 7}}});
  }
}

static void addMatmuls(std::vector<Case> &cases) {
  // The right operand, f32, is rounded to bf16 as it is read. Some of its numbers are ties.
  for (const char *flags : {"", "{transB = true}"}) {
    std::string a = tensor("1x5x7", "bf16"), b = tensor(*flags ? "1x9x7" : "1x7x9", "f32"), c = tensor("1x5x9", "f32");
    cases.push_back({std::string("matmul_rounded") + (*flags ? "_transB" : ""), "(%a: " + a + ", %b: " + b + ") -> " + c,
                     std::string("%r = train.matmul %a, %b ") + flags + " : (" + a + ", " + b + ") -> " + c, Types::None,
                     {{-2, 2}}, "%r", false, 8});
  }
  for (bool transA : {false, true})
    for (bool transB : {false, true})
      for (auto [batch, m, n, k] : {std::array{1, 3, 5, 7}, {2, 1, 17, 3}, {3, 4, 1, 1}, {1, 19, 33, 5}}) {
        auto matrix = [&](int rows, int columns, bool transposed) {
          if (transposed)
            std::swap(rows, columns);
          return tensor(std::to_string(batch) + "x" + std::to_string(rows) + "x" + std::to_string(columns));
        };
        std::string a = matrix(m, k, transA), b = matrix(k, n, transB), c = matrix(m, n, false);
        std::string flags = std::string("{transA = ") + (transA ? "true" : "false") + ", transB = " + (transB ? "true" : "false") + "}";
        cases.push_back({"matmul_" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + (transA ? "_transA" : "") + (transB ? "_transB" : ""),
                         "(%a: " + a + ", %b: " + b + ") -> " + c, "%r = train.matmul %a, %b " + flags + " : (" + a + ", " + b + ") -> " + c,
                         Types::All, {{-3, 3}}, "%r", true, 8});
      }
  for (auto [batch, m, n, k] : {std::array{1, 3, 5, 7}, {2, 1, 17, 3}, {1, 19, 33, 5}}) {
    auto matrix = [&, batch = batch](int rows, int columns) {
      return tensor(std::to_string(batch) + "x" + std::to_string(rows) + "x" + std::to_string(columns));
    };
    std::string a = matrix(k, m), b = matrix(k, n), c = matrix(m, n);
    cases.push_back({"matmul_add_" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k),
                     "(%a: " + a + ", %b: " + b + ", %c: " + c + ") -> " + c,
                     "%r = train.matmul %a, %b add %c {transA = true} : (" + a + ", " + b + ", " + c + ") -> " + c,
                     Types::All, {{-3, 3}}, "%r", true, 8});
  }
}

/// The channels-last form of a shape N, C, spatial: "2x3x9" becomes "2x9x3".
static std::string channelsLast(const std::string &shape) {
  size_t first = shape.find('x'), second = shape.find('x', first + 1);
  return shape.substr(0, first) + shape.substr(second) + shape.substr(first, second - first);
}

static void addConvolutions(std::vector<Case> &cases) {
  struct Shape {
    const char *name, *x, *w, *y, *window;
  };
  const Shape shapes[] = {
      {"1d", "2x3x9", "4x3x3", "2x4x7", "strides = array<i64: 1>, dilations = array<i64: 1>, padsBegin = array<i64: 0>, padsEnd = array<i64: 0>"},
      {"2d_padded", "1x2x5x7", "3x2x3x3", "1x3x5x7",
       "strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>"},
      {"2d_strided", "2x2x7x8", "2x2x3x2", "2x2x4x4",
       "strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 0>, padsEnd = array<i64: 1, 0>"},
      {"2d_dilated_grouped", "1x4x7x7", "6x2x2x3", "1x6x5x3",
       "strides = array<i64: 1, 2>, dilations = array<i64: 2, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, groups = 2 : i64"},
      {"depthwise", "2x3x4x17", "3x1x1x3", "2x3x4x17",
       "strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 1>, padsEnd = array<i64: 0, 1>, groups = 3 : i64"},
      {"pointwise", "1x3x1x5", "2x3x1x1", "1x2x1x5",
       "strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>"},
      {"3d_left_over", "1x1x4x3x6", "1x1x2x2x2", "1x1x2x2x3",
       "strides = array<i64: 3, 1, 2>, dilations = array<i64: 1, 1, 1>, padsBegin = array<i64: 1, 0, 0>, padsEnd = array<i64: 1, 0, 0>"},
  };
  for (bool last : {false, true})
    for (const Shape &s : shapes) {
      std::string x = last ? channelsLast(s.x) : s.x, y = last ? channelsLast(s.y) : s.y, w = s.w;
      for (auto &[op, first, second, result] :
           {std::array<std::string, 4>{"conv", x, w, y}, {"conv_input_grad", y, w, x}, {"conv_weight_grad", x, y, w}}) {
        std::string a = tensor(first), b = tensor(second), c = tensor(result);
        cases.push_back({op + "_" + s.name + (last ? "_channels_last" : ""), "(%a: " + a + ", %b: " + b + ") -> " + c,
                         "%r = train." + op + " %a, %b {" + s.window + (last ? ", channelsLast = true" : "") + "} : (" + a + ", " + b + ") -> " + c,
                         Types::Floats, {{-1, 1}}, "%r", true, 16});
      }
    }
}

static void addPools(std::vector<Case> &cases) {
  struct Shape {
    const char *name, *x, *y, *window, *winners = "ui8";
  };
  const Shape shapes[] = {
      {"1d", "2x3x9", "2x3x4", "kernel = array<i64: 2>, strides = array<i64: 2>, dilations = array<i64: 1>, padsBegin = array<i64: 0>"},
      {"2d_overlapping", "1x2x7x8", "1x2x4x4",
       "kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>"},
      {"2d_dilated", "2x1x7x17", "2x1x5x13", "kernel = array<i64: 2, 3>, strides = array<i64: 1, 1>, dilations = array<i64: 2, 2>, padsBegin = array<i64: 0, 0>"},
      {"3d", "1x1x3x4x5", "1x1x2x2x5",
       "kernel = array<i64: 2, 2, 1>, strides = array<i64: 1, 2, 1>, dilations = array<i64: 1, 1, 1>, padsBegin = array<i64: 0, 0, 0>"},
      // Wide enough for vectors; adjacent and overlapping windows, some with few inputs.
      {"2d_wide", "1x33x6x7", "1x33x3x3", "kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>"},
      {"2d_long_overlapping", "1x2x5x40", "1x2x3x21",
       "kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 2>"},
      {"2d_deep_overlapping", "1x35x5x6", "1x35x3x4",
       "kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 2>"},
      {"2d_beyond", "1x3x5x6", "1x3x4x3",
       "kernel = array<i64: 2, 3>, strides = array<i64: 3, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 3, 1>"},
      // Offsets of 254 and more, which do not fit a byte.
      {"2d_large", "1x2x16x18", "1x2x1x2", "kernel = array<i64: 16, 16>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>",
       "i32"},
  };
  for (bool last : {false, true})
    for (const Shape &s : shapes) {
      std::string from = last ? channelsLast(s.x) : s.x, to = last ? channelsLast(s.y) : s.y, name = std::string(s.name) + (last ? "_channels_last" : "");
      std::string x = tensor(from), y = tensor(to), i = tensor(to, s.winners),
                  window = std::string(" {") + s.window + (last ? ", channelsLast = true" : "") + "} : ";
      cases.push_back({std::string("max_pool_") + name, "(%x: " + x + ") -> (" + y + ", " + i + ")",
                       "%r, %i = train.max_pool %x" + window + "(" + x + ") -> (" + y + ", " + i + ")", Types::All, {{-9, 9}}, "%r, %i"});
      cases.push_back({std::string("sum_pool_") + name, "(%x: " + x + ") -> " + y, "%r = train.sum_pool %x" + window + "(" + x + ") -> " + y,
                       Types::All, {{-3, 3}}, "%r", true, 4});
      cases.push_back({std::string("sum_pool_grad_") + name, "(%g: " + y + ") -> " + x, "%r = train.sum_pool_grad %g" + window + "(" + y + ") -> " + x,
                       Types::All, {{-3, 3}}, "%r", true, 4});
      cases.push_back({std::string("max_pool_grad_") + name, "(%x: " + x + ", %g: " + y + ") -> " + x,
                       "%m, %i = train.max_pool %x" + window + "(" + x + ") -> (" + y + ", " + i + ")\n%r = train.max_pool_grad %g, %i" + window +
                           "(" + y + ", " + i + ") -> " + x,
                       Types::All, {{-9, 9}, {-3, 3}}, "%r", true, 4});
    }
}

/// Tiles have 4×4 outputs and are processed 16 (24) at a time; channels fill registers, features come in parts of 32
/// or 64.
static void addWinograds(std::vector<Case> &cases) {
  struct Shape {
    int batch, height, width, channels, features, padTop, padLeft, rows, columns, down = 1, across = 1; ///< dilations
  };
  const Shape shapes[] = {
      {1, 1, 1, 1, 1, 1, 1, 1, 1},      // one pixel, all its neighbours outside
      {2, 3, 3, 5, 3, 0, 0, 1, 1},      // one window
      {1, 6, 6, 16, 32, 0, 0, 4, 4},    // one tile, inside
      {2, 13, 9, 17, 33, 1, 1, 13, 9},  // tails everywhere; one lane in the last register of 16-bit results
      {1, 7, 11, 3, 70, 2, 0, 9, 9},    // other pads; two parts of features, the last not full
      {3, 4, 4, 70, 40, 1, 1, 4, 4},    // two blocks of channels in the gradient
      {2, 14, 14, 3, 96, 1, 1, 14, 14}, // three parts
      {5, 31, 30, 2, 5, 1, 1, 31, 30},  // several chunks of tiles, the last not full
      {17, 2, 2, 256, 5, 1, 1, 2, 2},  // few tiles, whose sums are stored until the second block of channels
      {2, 16, 8, 17, 33, 2, 2, 16, 8, 2, 2},   // four grids of full tiles
      {1, 13, 11, 3, 70, 3, 4, 14, 9, 3, 2},   // grids that differ in rows and columns; other pads
      {2, 5, 4, 16, 32, 6, 1, 5, 4, 6, 1},     // more grids than rows, none along the columns
      {3, 9, 10, 256, 5, 4, 4, 9, 10, 4, 4},   // several grids, and sums stored between blocks of channels
  };
  auto dims = [](std::initializer_list<int> extents) {
    std::string text;
    for (int extent : extents)
      text += (text.empty() ? "" : "x") + std::to_string(extent);
    return text;
  };
  // A NaN or ∞ of an input may reach all results computed from its tile of 6×6 inputs; one of a tap all outputs of its
  // feature.
  auto pair = [](int a, int b) { return "array<i64: " + std::to_string(a) + ", " + std::to_string(b) + ">"; };
  auto spread = [&](const std::string &name, const std::string &type, const Shape &s) {
    return "%wide_" + name + " = train.sum_pool %" + name + " {kernel = array<i64: 11, 11>, strides = array<i64: 1, 1>, dilations = " +
           pair(s.down, s.across) + ", padsBegin = " + pair(5 * s.down, 5 * s.across) + ", channelsLast = true} : (" + type + ") -> " + type + "\n";
  };
  auto overTaps = [](const std::string &from, const std::string &to, const std::string &type, const std::string &taps) {
    std::string one = type;
    one.replace(one.rfind("x3x3x") + 1, 3, "1x1");
    return "%taps = train.reduce sum %" + from + " " + taps + " : " + type + " -> " + one + "\n%" + to + " = train.broadcast %taps : " +
           one + " -> " + type + "\n";
  };
  for (const Shape &s : shapes) {
    std::string name = dims({s.batch, s.height, s.width, s.channels, s.features, s.padTop, s.padLeft}),
                x = tensor(dims({s.batch, s.height, s.width, s.channels})), y = tensor(dims({s.batch, s.rows, s.columns, s.features}));
    std::string pads = "padsBegin = " + pair(s.padTop, s.padLeft);
    if (s.down * s.across > 1) {
      pads += ", dilations = " + pair(s.down, s.across);
      name += "_dilated_" + dims({s.down, s.across});
    }
    for (bool transposed : {false, true}) {
      std::string w = tensor(transposed ? dims({s.channels, s.features, 3, 3}) : dims({s.features, s.channels, 3, 3}));
      cases.push_back({"winograd_conv_" + name + (transposed ? "_transposed" : ""), "(%x: " + x + ", %w: " + w + ") -> " + y,
                       "%r = train.winograd_conv %x, %w {" + pads + ", transposed = " + (transposed ? "true" : "false") + "} : (" +
                           x + ", " + w + ") -> " + y,
                       Types::Floats, {{-2, 2}, {-1, 1}}, "%r", false, 16, "",
                       spread("x", x, s) + overTaps("w", "wide_w", w, "[2, 3]") + "%r = train.winograd_conv %wide_x, %wide_w {" + pads + ", transposed = " +
                           (transposed ? "true" : "false") + "} : (" + x + ", " + w + ") -> " + y});
    }
    for (std::string element : {"f64", "f32", "bf16", "f16"}) {
      // The type of the sums. The number of parts follows from the number of tiles and blocks.
      std::string sums = element == "f64" ? "f64" : "f32";
      auto along = [](int outputs, int dilation) { return dilation * (((outputs + dilation - 1) / dilation + 3) / 4); };
      int tiles = s.batch * along(s.rows, s.down) * along(s.columns, s.across), parts = tiles > 128 ? (tiles > 256 ? 5 : 3) : tiles > 64 ? 2 : 1;
      std::string in = tensor(dims({s.batch, s.height, s.width, s.channels}), element),
                  grad = tensor(dims({s.batch, s.rows, s.columns, s.features}), element),
                  r = tensor(dims({parts, s.features, s.channels, 3, 3}), sums);
      cases.push_back({"winograd_weight_grad_" + name + "_" + element, "(%x: " + in + ", %g: " + grad + ") -> " + r,
                       "%r = train.winograd_weight_grad %x, %g {" + pads + "} : (" + in + ", " + grad + ") -> " + r, Types::None,
                       {{-2, 2}, {-1, 1}}, "%r", false, 64, "",
                       spread("x", in, s) + spread("g", grad, s) + "%some = train.winograd_weight_grad %wide_x, %wide_g {" + pads + "} : (" +
                           in + ", " + grad + ") -> " + r + "\n" + overTaps("some", "r", r, "[3, 4]")});
    }
  }
}

void addContractionCases(std::vector<Case> &cases) {
  addWinograds(cases);
  addMatmuls(cases);
  addConvolutions(cases);
  addPools(cases);
}

} // namespace tcc::test
