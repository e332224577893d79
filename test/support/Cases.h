//===- Cases.h - one table of op cases for every test of ops ----*- C++ -*-===//
//
// A case is a function @f of one op under test, as MLIR text in which $T stands for the element type, and $S, where an op
// takes any shape, for the shape. Gradients are tested on the cases in f64, kernels on all element types that a case allows.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_CASES_H
#define TCC_TEST_SUPPORT_CASES_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace tcc::test {

enum class Types { Floats, Integers, All, None }; ///< what $T may be; None: the text names its types

struct Range {
  double low = -2, high = 2;
};

struct Case {
  std::string name;      ///< letters, digits and underscores
  std::string signature; ///< "(%x: tensor<2x$T>) -> tensor<2x$T>"
  std::string body;      ///< ops that define the values named in `results`
  Types types = Types::Floats;
  std::vector<Range> ranges = {}; ///< values of each argument; the last range holds for all further arguments
  std::string results = "%r";
  bool gradient = true; ///< false if finite differences are meaningless (ties, steps)
  double slack = 1;     ///< factor on the tolerance of kernels: long sums, steep functions
  std::string shape = ""; ///< what $S stands for: "17x", "" for a scalar
  /// If a NaN or ∞ may reach more results than the op's definition says (as 0·NaN of a masked key, or through a whole
  /// transformed tile), a body whose results are not finite wherever it may. There the actual result is NaN, ∞ or the
  /// exact value, never another number.
  std::string reach = "";
  /// False if kernels may skip elements whose weight is 0 (keys that are only padding). Then a NaN or ∞ in them need
  /// not reach the results.
  bool readsAll = true;

  /// True if the case can be of any shape.
  bool isResizable() const { return signature.find("$S") != std::string::npos; }

  /// The names of the element types that $T stands for, or one empty name.
  std::vector<std::string> elementTypes() const;
};
void PrintTo(const Case &c, std::ostream *out);

/// All cases: every op of the dialect that computes has at least one.
const std::vector<Case> &allCases();

/// A context with the dialects that cases use.
mlir::MLIRContext &testContext();

/// The module of a case for one element type; null, with diagnostics, if it does not parse or verify.
mlir::OwningOpRef<mlir::ModuleOp> parseCase(const Case &c, const std::string &elementType);

/// Deterministic arguments for @f: floats uniform in their range, integers from it, unsigned ones never negative.
std::vector<train::HostTensor> argumentsOf(const Case &c, mlir::func::FuncOp function);

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_CASES_H
