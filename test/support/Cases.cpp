//===- Cases.cpp - from the table of cases to functions ---------*- C++ -*-===//
#include "test/support/Cases.h"

#include "compiler/kernels/Kernels.h"

#include "mlir/Parser/Parser.h"

#include <ostream>
#include <random>

using namespace mlir;
using tcc::train::HostTensor;

namespace tcc::test {

std::vector<std::string> Case::elementTypes() const {
  std::vector<std::string> floats = {"f64", "f32", "bf16", "f16"};
  std::vector<std::string> integers = {"i64", "i32", "i16", "i8", "ui64", "ui32", "ui16", "ui8"};
  switch (types) {
  case Types::Floats:
    return floats;
  case Types::Integers:
    return integers;
  case Types::All:
    floats.insert(floats.end(), integers.begin(), integers.end());
    return floats;
  case Types::None:
    break;
  }
  return {""};
}

void PrintTo(const Case &c, std::ostream *out) { *out << c.name; }

MLIRContext &testContext() {
  static MLIRContext &context = [] () -> MLIRContext & {
    DialectRegistry registry;
    train::registerKernels(registry);
    auto *made = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    made->loadDialect<train::TrainDialect, func::FuncDialect>();
    return *made;
  }();
  return context;
}

OwningOpRef<ModuleOp> parseCase(const Case &c, const std::string &elementType) {
  std::string resultTypes = c.signature.substr(c.signature.find("->") + 2);
  if (size_t open = resultTypes.find('('); open != std::string::npos)
    resultTypes = resultTypes.substr(open + 1, resultTypes.rfind(')') - open - 1);
  std::string text = "func.func @f" + c.signature + " {\n" + c.body + "\nreturn " + c.results + " : " + resultTypes + "\n}\n";
  for (auto [variable, value] : {std::pair<const char *, const std::string &>{"$S", c.shape}, {"$T", elementType}})
    for (size_t at; (at = text.find(variable)) != std::string::npos;)
      text.replace(at, 2, value);
  return parseSourceString<ModuleOp>(text, ParserConfig(&testContext()), c.name);
}

std::vector<HostTensor> argumentsOf(const Case &c, func::FuncOp function) {
  std::mt19937_64 random(1234);
  std::vector<HostTensor> arguments;
  for (Type type : function.getArgumentTypes()) {
    HostTensor tensor(cast<RankedTensorType>(type));
    Range range;
    if (!c.ranges.empty())
      range = c.ranges[std::min(arguments.size(), c.ranges.size() - 1)];
    bool isUnsigned = tensor.elementType().isUnsignedInteger() || tensor.elementType().isInteger(1);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      double unit = double(random() >> 11) * 0x1p-53;
      if (tensor.isFloat()) {
        tensor.setDouble(i, range.low + unit * (range.high - range.low));
      } else {
        int64_t low = isUnsigned ? 0 : int64_t(std::ceil(range.low)), high = int64_t(std::floor(range.high));
        tensor.setInt(i, low + int64_t(unit * double(high - low + 1)));
      }
    }
    arguments.push_back(std::move(tensor));
  }
  return arguments;
}

} // namespace tcc::test
