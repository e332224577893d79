//===- CaseTableIndexing.cpp - cases of scatters, scans and sorts -*- C++ -*-===//
#include "test/support/Cases.h"

namespace tcc::test {

namespace {

std::string scatterTensor(const std::string &shape, const std::string &element = "$T") {
  return "tensor<" + shape + "x" + element + ">";
}

/// Indices repeat, count from the end where negative, and are clamped beyond either end.
void addScatters(std::vector<Case> &cases) {
  struct Shape {
    const char *name, *whole, *indices, *part, *axis;
  };
  const Shape shapes[] = {{"vector", "7", "11", "11", "0"},
                          {"last", "3x7", "3x9", "3x9", "1"},
                          {"first", "5x70", "4x70", "4x70", "0"},
                          {"middle", "2x5x3", "2x4x3", "2x4x3", "1"},
                          {"smaller", "4x5x6", "3x7x2", "3x7x2", "1"},
                          {"rows", "5x70", "4x1", "4x70", "0"},
                          {"batches", "2x5x19", "2x4x1", "2x4x19", "1"},
                          {"cache", "2x3x6x5", "2x1x2x1", "2x3x2x5", "2"},
                          {"shared", "2x5x3", "1x4x3", "2x4x3", "1"},
                          {"one", "5x7", "5x1", "5x1", "1"}};
  for (const Shape &s : shapes) {
    std::string whole = scatterTensor(s.whole), part = scatterTensor(s.part), axis = s.axis;
    for (const char *index : {"i64", "ui8"}) {
      std::string at = scatterTensor(s.indices, index), suffix = std::string(s.name) + "_" + index;
      cases.push_back({"gather_elements_" + suffix,
                       "(%x: " + whole + ", %i: " + at + ") -> " + part,
                       "%r = train.gather_elements %x, %i axis = " + axis + " : (" + whole + ", " + at + ") -> " + part,
                       Types::All,
                       {{-9, 9}, {-4, 8}},
                       "%r",
                       true,
                       8});
    }
    std::string at = scatterTensor(s.indices, "i64");
    for (const char *kind : {"set", "add", "mul", "max", "min"})
      cases.push_back({std::string("scatter_") + kind + "_" + s.name,
                       "(%x: " + whole + ", %i: " + at + ", %u: " + part + ") -> " + whole,
                       std::string("%r = train.scatter ") + kind + " %x, %i, %u axis = " + axis + " : (" + whole +
                           ", " + at + ", " + part + ") -> " + whole,
                       Types::All,
                       {{-2, 2}, {-4, 8}, {-2, 2}},
                       "%r",
                       true,
                       8});
  }
  // So many rows that a warp of a card owns several, and more indices to search than a warp has threads. Rows repeat;
  // in the second list a third of the updates has row 0, where indices below the first row are clamped, in the third
  // all have one row.
  struct Rows {
    const char *name, *count;
    double least, most;
    std::vector<std::string> ops;
  };
  for (const Rows &rows : {Rows{"many", "203", -40, 90, {"scatter_add", "scatter add", "scatter set", "scatter max"}},
                           Rows{"padded", "700", -18000, 9000, {"scatter_add", "scatter set"}},
                           Rows{"equal", "700", 5, 5, {"scatter_add", "scatter set"}}})
    for (const std::string &op : rows.ops)
      for (const std::string columns : {"3", "40"}) {
        const bool flat = op == "scatter_add"; // the indices of scatter_add are a one-dimensional list
        const std::string element = columns == "3" ? "bf16" : "f32", count = rows.count;
        std::string whole = scatterTensor("9001x" + columns, element);
        std::string part = scatterTensor(count + "x" + columns, element);
        std::string at = scatterTensor(flat ? count : count + "x1", "i64");
        std::string name = op + "_" + rows.name + "_rows_" + columns;
        std::replace(name.begin(), name.end(), ' ', '_');
        cases.push_back({flat ? name + "_listed" : name,
                         "(%x: " + whole + ", %i: " + at + ", %u: " + part + ") -> " + whole,
                         "%r = train." + op + " %x, %i, %u axis = 0 : (" + whole + ", " + at + ", " + part + ") -> " +
                             whole,
                         Types::None,
                         {{-2, 2}, {rows.least, rows.most}, {-2, 2}},
                         "%r",
                         false,
                         32});
      }
  cases.push_back(
      {"scatter_bool",
       "(%x: tensor<9xi1>, %i: tensor<7xi64>, %u: tensor<7xi1>) -> (tensor<9xi1>, tensor<9xi1>)",
       "%r = train.scatter set %x, %i, %u axis = 0 : (tensor<9xi1>, tensor<7xi64>, tensor<7xi1>) -> tensor<9xi1>\n"
       "%s = train.scatter add %x, %i, %u axis = 0 : (tensor<9xi1>, tensor<7xi64>, tensor<7xi1>) -> tensor<9xi1>",
       Types::None,
       {{0, 1}, {-4, 8}, {0, 1}},
       "%r, %s"});
  // mul: one and two factors of 0 at one place, and an initial element of 0. max: equal elements.
  const std::string given = "%i = train.constant dense<[0, 0, 1, 1, 1, 2, 2, 3]> : tensor<8xi64>\n"
                            "%z = train.constant dense<[0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]> : tensor<8xf64>\n"
                            "%w = train.constant dense<[1.0, 1.0, 1.0, 0.0]> : tensor<4xf64>\n";
  cases.push_back({"scatter_mul_through_zeros",
                   "(%x: tensor<4xf64>, %u: tensor<8xf64>) -> tensor<4xf64>",
                   given + "%a = train.mul %u, %z : tensor<8xf64>\n%b = train.mul %x, %w : tensor<4xf64>\n"
                           "%r = train.scatter mul %b, %i, %a axis = 0 : (tensor<4xf64>, tensor<8xi64>, tensor<8xf64>) "
                           "-> tensor<4xf64>",
                   Types::None,
                   {{0.5, 2}},
                   "%r",
                   true,
                   8});
}

void addScans(std::vector<Case> &cases) {
  struct Shape {
    const char *shape, *dim;
  };
  struct Options {
    const char *text, *name;
  };
  for (Options o : {Options{"", ""},
                    {"{exclusive = true}", "_exclusive"},
                    {"{reverse = true}", "_reverse"},
                    {"{exclusive = true, reverse = true}", "_exclusive_reverse"}})
    for (Shape s : {Shape{"17", "0"}, {"3x5", "1"}, {"2x5x70", "1"}, {"2x3x4", "1"}, {"1x3", "0"}, {"1500x4", "1"}}) {
      std::string type = scatterTensor(s.shape),
                  arguments = std::string(" dim = ") + s.dim + " " + o.text + " : " + type;
      bool small = std::string(s.shape).size() < 6; // finite differences need evaluations for each element
      for (const char *op : {"cumsum", "cumprod"})
        cases.push_back({std::string(op) + "_" + s.shape + o.name,
                         "(%x: " + type + ") -> " + type,
                         std::string("%r = train.") + op + " %x" + arguments,
                         Types::All,
                         {{-2, 2}},
                         "%r",
                         small,
                         16});
      // A scan over elements of which some are 0.
      if (std::string(s.shape) == "3x5")
        cases.push_back({std::string("cumprod_through_zeros") + o.name,
                         "(%x: tensor<3x5xf64>) -> tensor<3x5xf64>",
                         "%z = train.constant dense<[[1.0, 0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, "
                         "1.0, 1.0, 0.0]]> : "
                         "tensor<3x5xf64>\n%a = train.mul %x, %z : tensor<3x5xf64>\n%r = train.cumprod %a dim = 1 " +
                             std::string(o.text) + " : tensor<3x5xf64>",
                         Types::None,
                         {{0.5, 2}}});
      if (std::string(o.text).find("exclusive") == std::string::npos)
        cases.push_back({std::string("linear_scan_") + s.shape + o.name,
                         "(%a: " + type + ", %b: " + type + ") -> " + type,
                         "%r = train.linear_scan %a, %b" + arguments,
                         Types::All,
                         {{-1, 1}},
                         "%r",
                         small,
                         16});
    }
}

void addSorts(std::vector<Case> &cases) {
  struct Shape {
    const char *from, *dim, *to;
  };
  for (bool descending : {false, true})
    for (Shape s : {Shape{"17", "0", "17"},
                    {"3x70", "1", "3x70"},
                    {"9x5", "0", "9x5"},
                    {"2x9x3", "1", "2x4x3"},
                    {"3x33", "1", "3x1"},
                    {"1500x3", "1", "1500x2"},
                    {"4x1", "1", "4x1"}}) {
      std::string from = scatterTensor(s.from), to = scatterTensor(s.to), places = scatterTensor(s.to, "i64");
      // Integers come from a small range, so that many are equal.
      cases.push_back({std::string("sort_") + s.from + "_to_" + s.to + (descending ? "_descending" : ""),
                       "(%x: " + from + ") -> (" + to + ", " + places + ")",
                       std::string("%r, %i = train.sort %x dim = ") + s.dim +
                           (descending ? " {descending = true}" : "") + " : " + from + " -> " + to + ", " + places,
                       Types::All,
                       {{-5, 5}},
                       "%r, %i",
                       from.size() < 20 && from[7] != '1'});
    }
}

/// NaN sorts after every number, and −0 equals 0.
void addSortOfSpecials(std::vector<Case> &cases) {
  for (bool descending : {false, true})
    cases.push_back(
        {std::string("sort_specials") + (descending ? "_descending" : ""),
         "(%x: tensor<9xf64>) -> (tensor<6xf64>, tensor<6xi64>)",
         "%c = train.constant dense<[0.0, 0x7FF8000000000000, -0.0, 0x7FF0000000000000, 0.0, 0xFFF0000000000000, "
         "0x7FF8000000000000, 1.0, -1.0]> : tensor<9xf64>\n%z = train.sub %x, %x : tensor<9xf64>\n"
         "%a = train.add %c, %z : tensor<9xf64>\n%r, %i = train.sort %a dim = 0 " +
             std::string(descending ? "{descending = true}" : "") + " : tensor<9xf64> -> tensor<6xf64>, tensor<6xi64>",
         Types::None,
         {{1, 2}},
         "%r, %i",
         false});
}

} // namespace

void addScatterCases(std::vector<Case> &cases) {
  addScatters(cases);
  addScans(cases);
  addSorts(cases);
  addSortOfSpecials(cases);
}

} // namespace tcc::test
