//===- Importing.h - imports and evaluates a tiny model ---------*- C++ -*-===//
#ifndef TCC_TEST_FRONTEND_IMPORTING_H
#define TCC_TEST_FRONTEND_IMPORTING_H

#include "frontend/Import.h"
#include "test/support/EvaluateModel.h"
#include "test/unit/frontend/OnnxModel.h"

#include "mlir/IR/MLIRContext.h"

#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tcc::test {

class Importing : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "import-XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  Expected<ImportedModel> import(const OnnxModel &model, const frontend::ImportOptions &options = {}) {
    model.save(folder + "/m.onnx");
    return frontend::importModel(context, folder + "/m.onnx", options);
  }
  std::string problem(const OnnxModel &model, const frontend::ImportOptions &options = {}) {
    auto imported = import(model, options);
    return imported ? "accepted" : imported.message();
  }
  std::string text(ImportedModel &model) {
    std::string out;
    llvm::raw_string_ostream stream(out);
    model.module->print(stream);
    return out;
  }
  /// The first output's elements, for inputs in the graph's order.
  std::vector<double> evaluate(const OnnxModel &model, const std::vector<std::vector<double>> &inputs) {
    auto imported = import(model);
    EXPECT_TRUE(imported) << imported.message();
    if (!imported)
      return {};
    auto function = imported->module->lookupSymbol<mlir::func::FuncOp>("forward");
    Tensors tensors;
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
      train::HostTensor tensor(mlir::cast<mlir::RankedTensorType>(type));
      EXPECT_EQ(tensor.size(), int64_t(inputs.at(i).size()));
      for (int64_t k = 0; k < tensor.size(); ++k)
        tensor.isFloat() ? tensor.setDouble(k, inputs[i][size_t(k)]) : tensor.setInt(k, int64_t(inputs[i][size_t(k)]));
      tensors[function.getArgAttrOfType<mlir::StringAttr>(unsigned(i), "train.name").str()] = tensor;
    }
    auto outputs = evaluateModel(*imported, tensors);
    EXPECT_TRUE(outputs) << outputs.message();
    std::vector<double> values;
    if (!outputs)
      return values;
    const train::HostTensor &result = outputs->at(model.model.graph().output(0).name());
    shape.assign(result.shape().begin(), result.shape().end());
    for (int64_t k = 0; k < result.size(); ++k)
      values.push_back(result.isFloat() ? result.getDouble(k) : double(result.getInt(k)));
    return values;
  }

  mlir::MLIRContext context;
  std::string folder;
  Dims shape; ///< of the last evaluated output
};

} // namespace tcc::test

#endif // TCC_TEST_FRONTEND_IMPORTING_H
