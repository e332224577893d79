//===- Model.cpp - fuzz target: ONNX reader and importer -----------------===//
#include "frontend/Import.h"
#include "test/fuzz/InputFolder.h"

#include "mlir/IR/MLIRContext.h"

#include <onnx/onnx_pb.h>

#ifdef TCC_FUZZ
#include "test/fuzz/MutateWith.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return tcc::fuzz::mutateAs<onnx::ModelProto>(data, size, most, seed);
}
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tcc::fuzz::InputFolder folder;
  const std::string path = folder.write("model.onnx", {data, size});
  tcc::frontend::ImportOptions options;
  // Give each symbolic dimension a value: without values an import ends early.
  onnx::ModelProto model;
  if (model.ParseFromArray(data, int(size)))
    for (const onnx::ValueInfoProto &input : model.graph().input())
      for (const auto &dim : input.type().tensor_type().shape().dim())
        if (!dim.dim_param().empty() && options.dims.size() < 8)
          options.dims[dim.dim_param()] = 2;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  (void)tcc::frontend::inspectModel(context, path, options);
  (void)tcc::frontend::importModel(context, path, options);
  return 0;
}
