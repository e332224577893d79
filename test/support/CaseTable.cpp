//===- CaseTable.cpp - the cases --------------------------------*- C++ -*-===//
//
// Shapes include scalars, extent 1, odd and prime extents, and more elements than a vector has lanes.
//
//===----------------------------------------------------------------------===//
#include "test/support/Cases.h"

namespace tcc::test {

namespace {

const Range kPositive{0.1, 3}, kSmallIntegers{-9, 9}, kAny{-2, 2};
const std::vector<std::string> kShapes = {"", "1x", "17x", "3x1x5x"};

std::string tensor(const std::string &shape, const std::string &element = "$T") { return "tensor<" + shape + element + ">"; }

/// A name for a shape: "3x1x5x" becomes "3x1x5", the scalar "scalar".
std::string label(const std::string &shape) { return shape.empty() ? "scalar" : shape.substr(0, shape.size() - 1); }

struct Table {
  std::vector<Case> cases;

  void add(Case c) { cases.push_back(std::move(c)); }
  void unary(const std::string &op, Range range = kAny, Types types = Types::Floats, const std::string &attributes = "",
             const std::string &suffix = "", double slack = 1) {
    for (const std::string &shape : kShapes)
      add({op + suffix + "_" + label(shape), "(%x: tensor<$S$T>) -> tensor<$S$T>",
           "%r = train." + op + " %x " + attributes + " : tensor<$S$T>", types, {range}, "%r", true, slack, shape});
  }
  void binary(const std::string &op, std::vector<Range> ranges = {kAny}, Types types = Types::All, double slack = 1) {
    for (const std::string &shape : kShapes)
      add({op + "_" + label(shape), "(%x: tensor<$S$T>, %y: tensor<$S$T>) -> tensor<$S$T>",
           "%r = train." + op + " %x, %y : tensor<$S$T>", types, ranges, "%r", true, slack, shape});
  }
  /// Adds a case of an op with one operand and a result of another shape.
  void movement(const std::string &name, const std::string &op, const std::string &from, const std::string &arguments,
                const std::string &to, Types types = Types::All) {
    add({name, "(%x: " + tensor(from) + ") -> " + tensor(to),
         "%r = train." + op + " %x " + arguments + " : " + tensor(from) + " -> " + tensor(to), types, {{-9, 9}}});
  }
};

void addElementwise(Table &t) {
  for (const char *op : {"neg", "abs", "relu", "sign"})
    t.unary(op, kSmallIntegers, Types::All);
  for (const char *op : {"exp", "tanh", "sigmoid", "erf", "sin", "cos", "atan", "gelu", "gelu_derivative", "silu", "expm1", "softplus", "sinh", "cosh", "asinh"})
    t.unary(op, {-4, 4});
  t.unary("gelu", {-4, 4}, Types::Floats, "{tanh = true}", "_tanh", 2);
  t.unary("gelu_derivative", {-4, 4}, Types::Floats, "{tanh = true}", "_tanh", 2);
  t.unary("stop_gradient");
  t.unary("log1p", {-0.9, 3});
  t.unary("tan", {-1.2, 1.2});
  for (const char *op : {"asin", "acos", "atanh"})
    t.unary(op, {-0.9, 0.9});
  t.unary("acosh", {1.1, 5});
  for (const char *op : {"log", "sqrt", "rsqrt"})
    t.unary(op, kPositive);
  for (const char *op : {"floor", "ceil", "round"})
    t.unary(op, {-9, 9}, Types::All);
  t.unary("not", kSmallIntegers, Types::Integers);
  for (const char *op : {"add", "sub", "mul", "max", "min"})
    t.binary(op, {kSmallIntegers});
  t.binary("div", {{-9, 9}, {0.5, 3}});
  t.binary("rem", {{-9, 9}, {0.5, 3}});
  t.binary("pow", {{0.2, 3}, {-3, 3}}, Types::Floats, 4);
  t.add({"pow_integers", "(%x: tensor<11x$T>, %y: tensor<11x$T>) -> tensor<11x$T>", "%r = train.pow %x, %y : tensor<11x$T>",
         Types::Integers, {{-3, 3}, {-4, 9}}});
  t.add({"div_integers_by_zero", "(%x: tensor<37x$T>, %y: tensor<37x$T>) -> tensor<37x$T>", "%r = train.div %x, %y : tensor<37x$T>",
         Types::Integers, {{-9, 9}, {-1, 1}}});
  t.add({"rem_integers_by_zero", "(%x: tensor<37x$T>, %y: tensor<37x$T>) -> tensor<37x$T>", "%r = train.rem %x, %y : tensor<37x$T>",
         Types::Integers, {{-9, 9}, {-1, 1}}});
  for (const char *exponent : {"1.0", "2.0", "3.0", "-1.5"})
    t.add({std::string("pow_constant_") + (exponent[0] == '-' ? "negative" : std::string(1, exponent[0])), "(%x: tensor<9x$T>) -> tensor<9x$T>",
           std::string("%c = train.constant dense<") + exponent + "> : tensor<9x$T>\n%r = train.pow %x, %c : tensor<9x$T>",
           Types::Floats, {kPositive}, "%r", true, 4});
  for (const char *op : {"and", "or", "xor"})
    t.binary(op, {{-100, 100}}, Types::Integers);
  for (const char *op : {"shift_left", "shift_right"})
    t.binary(op, {{-100, 100}, {-3, 70}}, Types::Integers);
  for (const auto &[from, to] : {std::pair("f64", "ui64"), {"i64", "f64"}, {"f32", "i32"}, {"ui32", "f32"}, {"f16", "i16"}, {"i16", "f16"},
                                 {"bf16", "ui16"}, {"ui16", "bf16"}, {"bf16", "f16"}, {"i1", "ui8"}, {"i8", "i1"}, {"ui8", "i8"}})
    t.add({std::string("bitcast_") + from + "_" + to, std::string("(%x: tensor<$S") + from + ">) -> tensor<$S" + to + ">",
           std::string("%r = train.bitcast %x : tensor<$S") + from + "> -> tensor<$S" + to + ">", Types::None,
           {from == std::string("i1") ? Range{0, 1} : Range{-300, 300}}, "%r", false, 1, "37x"});
  for (const char *op : {"and", "or", "xor"})
    t.add({std::string(op) + "_i1", "(%x: tensor<$Si1>, %y: tensor<$Si1>) -> tensor<$Si1>",
           std::string("%r = train.") + op + " %x, %y : tensor<$Si1>", Types::None, {{0, 1}}, "%r", true, 1, "19x"});
  for (const char *op : {"is_nan", "is_finite"})
    t.add({op, "(%x: tensor<$S$T>) -> tensor<$Si1>", std::string("%r = train.") + op + " %x : tensor<$S$T> -> tensor<$Si1>",
           Types::Floats, {}, "%r", false, 1, "9x"});
  for (const char *kind : {"eq", "ne", "lt", "le", "gt", "ge"})
    t.add({std::string("compare_") + kind, "(%x: tensor<$S$T>, %y: tensor<$S$T>) -> tensor<$Si1>",
           std::string("%r = train.compare ") + kind + " %x, %y : tensor<$S$T> -> tensor<$Si1>", Types::All, {{-2, 2}}, "%r", true, 1, "5x7x"});
  t.add({"select", "(%b: tensor<$Si1>, %x: tensor<$S$T>, %y: tensor<$S$T>) -> tensor<$S$T>",
         "%r = train.select %b, %x, %y : tensor<$Si1>, tensor<$S$T>", Types::All, {{0, 1}, {-9, 9}}, "%r", true, 1, "3x7x"});
  for (const char *from : {"f64", "f32", "bf16", "f16", "i64", "i32", "i16", "i8", "ui64", "ui32", "ui16", "ui8", "i1"})
    t.add({std::string("cast_from_") + from, std::string("(%x: tensor<$S") + from + ">) -> tensor<$S$T>",
           std::string("%r = train.cast %x : tensor<$S") + from + "> -> tensor<$S$T>", Types::All,
           {from == std::string("i1") ? Range{0, 1} : Range{-300, 300}}, "%r", true, 1, "19x"});
  t.add({"cast_to_i1", "(%x: tensor<$S$T>) -> tensor<$Si1>", "%r = train.cast %x : tensor<$S$T> -> tensor<$Si1>", Types::All, {{-1, 1}}, "%r", true, 1, "19x"});
}

void addShapes(Table &t) {
  t.add({"constant", "(%x: tensor<3x$T>) -> tensor<3x$T>", "%c = train.constant dense<3> : tensor<3x$T>\n%r = train.add %x, %c : tensor<3x$T>",
         Types::Integers, {kSmallIntegers}});
  for (const char *dim : {"0", "1", "2"})
    t.add({std::string("iota_") + dim, "() -> tensor<3x2x9x$T>", std::string("%r = train.iota dim = ") + dim + " : tensor<3x2x9x$T>", Types::All});
  t.movement("reshape_merge", "reshape", "3x5x7x", "", "15x7x");
  t.movement("reshape_split", "reshape", "30x", "", "5x1x6x");
  t.movement("reshape_regroup", "reshape", "6x10x", "", "4x15x");
  t.movement("reshape_scalar", "reshape", "1x1x", "", "");
  t.movement("transpose_2d", "transpose", "9x17x", "[1, 0]", "17x9x");
  t.movement("transpose_3d", "transpose", "3x5x7x", "[2, 0, 1]", "7x3x5x");
  t.movement("transpose_heads", "transpose", "2x3x4x5x", "[0, 2, 1, 3]", "2x4x3x5x");
  t.movement("broadcast_row", "broadcast", "17x", "", "3x17x");
  t.movement("broadcast_column", "broadcast", "5x1x", "", "5x9x");
  t.movement("broadcast_scalar", "broadcast", "", "", "2x3x");
  t.movement("broadcast_middle", "broadcast", "3x1x5x", "", "2x3x4x5x");
  t.movement("broadcast_past_unit", "broadcast", "4x1x1x6x", "", "4x1x5x6x");
  t.movement("broadcast_before_unit", "broadcast", "4x1x1x6x", "", "4x5x1x6x");
  t.movement("slice_plain", "slice", "9x7x", "starts [2, 1] steps [1, 1]", "4x5x");
  t.movement("slice_strided", "slice", "11x9x", "starts [1, 0] steps [3, 2]", "4x5x");
  t.movement("slice_backwards", "slice", "11x9x", "starts [10, 8] steps [-2, -1]", "5x9x");
  t.movement("slice_one", "slice", "11x", "starts [3] steps [-100]", "1x");
  t.movement("pad_edges", "pad", "3x5x", "low [1, 2] steps [1, 1] value 0.0", "5x9x");
  t.movement("pad_value", "pad", "7x", "low [0] steps [1] value 3.0", "10x");
  t.movement("pad_between", "pad", "4x3x", "low [1, 0] steps [3, 2] value 0.0", "12x5x");
  t.movement("reverse_all", "reverse", "3x7x", "[0, 1]", "3x7x");
  t.movement("reverse_last", "reverse", "2x3x17x", "[2]", "2x3x17x");
  t.add({"concat_rows", "(%x: tensor<2x5x$T>, %y: tensor<1x5x$T>, %z: tensor<3x5x$T>) -> tensor<6x5x$T>",
         "%r = train.concat dim = 0 %x, %y, %z : (tensor<2x5x$T>, tensor<1x5x$T>, tensor<3x5x$T>) -> tensor<6x5x$T>", Types::All, {{-9, 9}}});
  t.add({"concat_columns", "(%x: tensor<3x5x$T>, %y: tensor<3x8x$T>) -> tensor<3x13x$T>",
         "%r = train.concat dim = 1 %x, %y : (tensor<3x5x$T>, tensor<3x8x$T>) -> tensor<3x13x$T>", Types::All, {{-9, 9}}});
}

void addReductions(Table &t) {
  struct Shape {
    const char *from, *dims, *to;
  };
  for (const char *kind : {"sum", "max", "min", "prod"})
    for (Shape s : {Shape{"5x", "[0]", "1x"}, {"3x17x", "[1]", "3x1x"}, {"17x3x", "[0]", "1x3x"}, {"2x5x3x", "[0, 2]", "1x5x1x"}, {"3x1x", "[1]", "3x1x"}})
      t.add({std::string("reduce_") + kind + "_" + label(s.from) + "_to_" + label(s.to), "(%x: " + tensor(s.from) + ") -> " + tensor(s.to),
             std::string("%r = train.reduce ") + kind + " %x " + s.dims + " : " + tensor(s.from) + " -> " + tensor(s.to), Types::All,
             {{-3, 3}}, "%r", true, 4});
  // Rows so long that a block of warps shares each on a card; their length is prime.
  for (const char *kind : {"sum", "max"})
    t.add({std::string("reduce_") + kind + "_of_long_rows", "(%x: tensor<3x1031x$T>) -> tensor<3x1x$T>",
           std::string("%r = train.reduce ") + kind + " %x [1] : tensor<3x1031x$T> -> tensor<3x1x$T>", Types::All, {{-3, 3}}, "%r", false, 64});
  // Columns so long that the warps of a block share their rows.
  for (const char *kind : {"sum", "max"})
    for (Shape s : {Shape{"320x64x", "[0]", "1x64x"}, {"2x48x32x", "[1]", "2x1x32x"}})
      t.add({std::string("reduce_") + kind + "_of_long_columns_" + label(s.from), "(%x: " + tensor(s.from) + ") -> " + tensor(s.to),
             std::string("%r = train.reduce ") + kind + " %x " + s.dims + " : " + tensor(s.from) + " -> " + tensor(s.to), Types::All,
             {{-1, 1}}, "%r", false, 64});
  t.add({"reduce_any_of_long_columns", "(%x: tensor<320x64xi1>) -> tensor<1x64xi1>",
         "%r = train.reduce max %x [0] : tensor<320x64xi1> -> tensor<1x64xi1>", Types::None, {{0, 1}}, "%r", false});
  t.add({"reduce_any_of_long_rows", "(%x: tensor<3x1031xi1>) -> tensor<3x1xi1>",
         "%r = train.reduce max %x [1] : tensor<3x1031xi1> -> tensor<3x1xi1>", Types::None, {{0, 1}}, "%r", false});
  t.add({"softmax_of_long_rows", "(%x: tensor<3x1031x$T>) -> tensor<3x1031x$T>", "%r = train.softmax %x dim = 1 : tensor<3x1031x$T>", Types::Floats,
         {{-3, 3}}, "%r", false, 64});
  for (const char *options : {"", "{smallest = true}", "{last = true}", "{smallest = true, last = true}"})
    for (Shape s : {Shape{"3x17x", "1", "3x1x"}, {"9x5x", "0", "1x5x"}})
      t.add({"argmax_" + label(s.from) + (std::string(options).find("smallest") != std::string::npos ? "_smallest" : "") +
                 (std::string(options).find("last") != std::string::npos ? "_last" : ""),
             "(%x: " + tensor(s.from) + ") -> " + tensor(s.to, "i64"),
             std::string("%r = train.argmax %x dim = ") + s.dims + " " + options + " : " + tensor(s.from) + " -> " + tensor(s.to, "i64"), Types::All,
             {kSmallIntegers}});
  for (const char *op : {"softmax", "log_softmax"})
    for (Shape s : {Shape{"7x", "0", ""}, {"3x17x", "1", ""}, {"2x5x3x", "1", ""}, {"3x1x", "1", ""}})
      t.add({std::string(op) + "_" + label(s.from) + "_" + s.dims, "(%x: " + tensor(s.from) + ") -> " + tensor(s.from),
             std::string("%r = train.") + op + " %x dim = " + s.dims + " : " + tensor(s.from), Types::Floats, {{-3, 3}}, "%r", true, 4});
  for (Shape s : {Shape{"7x", "0", "1x"}, {"3x17x", "1", "3x1x"}, {"2x5x3x", "1", "2x1x3x"}})
    t.add({"logsumexp_" + label(s.from), "(%x: " + tensor(s.from) + ") -> " + tensor(s.to),
           std::string("%r = train.logsumexp %x dim = ") + s.dims + " : " + tensor(s.from) + " -> " + tensor(s.to), Types::Floats, {{-3, 3}}, "%r",
           true, 4});
  for (const char *statistics : {"f64", "f32"}) {
    // f64 keeps its statistics in f64; the narrower types keep them in f32.
    std::string type = statistics;
    t.add({"layer_norm_" + type, "(%x: tensor<3x17x" + type + ">, %s: tensor<17x" + type + ">, %b: tensor<17x" + type + ">) -> (tensor<3x17x" + type +
               ">, tensor<3x1x" + type + ">, tensor<3x1x" + type + ">)",
           "%r, %m, %d = train.layer_norm %x, %s, %b axis = 1 epsilon = 1.0e-5 : (tensor<3x17x" + type + ">, tensor<17x" + type + ">, tensor<17x" + type +
               ">) -> (tensor<3x17x" + type + ">, tensor<3x1x" + type + ">, tensor<3x1x" + type + ">)",
           Types::None, {}, "%r, %m, %d", true, 8});
  }
  t.add({"layer_norm_no_bias", "(%x: tensor<2x3x5xf64>, %s: tensor<3x5xf64>) -> tensor<2x3x5xf64>",
         "%r, %m, %d = train.layer_norm %x, %s axis = 1 epsilon = 1.0e-5 : (tensor<2x3x5xf64>, tensor<3x5xf64>) -> (tensor<2x3x5xf64>, "
         "tensor<2x1x1xf64>, tensor<2x1x1xf64>)",
         Types::None});
  t.add({"layer_norm_bf16", "(%x: tensor<4x16xbf16>, %s: tensor<16xbf16>, %b: tensor<16xbf16>) -> tensor<4x16xbf16>",
         "%r, %m, %d = train.layer_norm %x, %s, %b axis = 1 epsilon = 1.0e-5 : (tensor<4x16xbf16>, tensor<16xbf16>, tensor<16xbf16>) -> "
         "(tensor<4x16xbf16>, tensor<4x1xf32>, tensor<4x1xf32>)",
         Types::None});
}

} // namespace

void addContractionCases(std::vector<Case> &cases);
void addIndexingCases(std::vector<Case> &cases);
void addAttentionCases(std::vector<Case> &cases);
void addModeCases(std::vector<Case> &cases);
void addQuantizationCases(std::vector<Case> &cases);
void addRecurrentCases(std::vector<Case> &cases);
void addCtcCases(std::vector<Case> &cases);
void addLoopCases(std::vector<Case> &cases);
void addSamplingCases(std::vector<Case> &cases);
void addScatterCases(std::vector<Case> &cases);

const std::vector<Case> &allCases() {
  static const std::vector<Case> cases = [] {
    Table table;
    addElementwise(table);
    addShapes(table);
    addReductions(table);
    addIndexingCases(table.cases);
    addContractionCases(table.cases);
    addAttentionCases(table.cases);
    addModeCases(table.cases);
    addQuantizationCases(table.cases);
    addRecurrentCases(table.cases);
    addCtcCases(table.cases);
    addLoopCases(table.cases);
    addSamplingCases(table.cases);
    addScatterCases(table.cases);
    return table.cases;
  }();
  return cases;
}

} // namespace tcc::test
