//===- EvalOnnx.cpp - eval-onnx: an ONNX model through the importer and the naive evaluators -===//
//
// eval-onnx MODEL.onnx --dump                    prints the imported module
// eval-onnx MODEL.onnx --inspect                 prints what `tcc inspect` prints
// eval-onnx MODEL.onnx IN OUT [--dim NAME=N]…    reads IN/<i>.bin for graph input i (raw bytes, in order), writes OUT/<i>.bin
//                                                for graph output i
// It exists to compare the importer with other implementations of ONNX.
//
//===----------------------------------------------------------------------===//
#include "frontend/Import.h"
#include "test/support/EvaluateModel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace mlir;
using namespace tcc;

static int fail(const std::string &message) {
  std::cerr << message << "\n";
  return 1;
}

int main(int argc, char **argv) {
  std::vector<std::string> positional;
  frontend::ImportOptions options;
  bool dump = false, inspect = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--dump") {
      dump = true;
    } else if (argument == "--inspect") {
      inspect = true;
    } else if (argument == "--f64") {
      options.forceF64 = true;
    } else if (argument == "--dim" && i + 1 < argc) {
      std::string binding = argv[++i];
      options.dims[binding.substr(0, binding.find('='))] = std::stoll(binding.substr(binding.find('=') + 1));
    } else {
      positional.push_back(argument);
    }
  }
  if (positional.empty())
    return fail("usage: eval-onnx MODEL.onnx [--dump | --inspect | IN OUT] [--dim NAME=N]… [--f64]");
  MLIRContext context;
  if (inspect) {
    auto text = frontend::inspectModel(context, positional[0], options);
    if (!text)
      return fail(text.message());
    std::cout << text->text;
    return 0;
  }
  auto model = frontend::importModel(context, positional[0], options);
  if (!model)
    return fail(model.message());
  for (const std::string &warning : model->warnings)
    std::cerr << "warning: " << warning << "\n";
  if (dump)
    model->module->print(llvm::outs());
  if (positional.size() < 3)
    return 0;
  test::Tensors inputs;
  auto function = model->module->lookupSymbol<func::FuncOp>("forward");
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    train::HostTensor tensor(cast<RankedTensorType>(type));
    std::ifstream stream(positional[1] + "/" + std::to_string(i) + ".bin", std::ios::binary);
    if (!stream.read(tensor.data(), std::streamsize(tensor.sizeBytes())))
      return fail("input " + std::to_string(i) + ": cannot read " + std::to_string(tensor.sizeBytes()) + " bytes");
    inputs[function.getArgAttrOfType<StringAttr>(unsigned(i), "train.name").str()] = tensor;
  }
  auto outputs = test::evaluateModel(*model, inputs);
  if (!outputs)
    return fail(outputs.message());
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    const train::HostTensor &tensor = outputs->at(function.getResultAttrOfType<StringAttr>(i, "train.name").str());
    std::ofstream stream(positional[2] + "/" + std::to_string(i) + ".bin", std::ios::binary);
    stream.write(tensor.data(), std::streamsize(tensor.sizeBytes()));
    std::string shape;
    for (int64_t dim : tensor.shape())
      shape += (shape.empty() ? "" : "x") + std::to_string(dim);
    std::cout << i << " " << shape << "\n";
  }
  return 0;
}
