//===- OnnxText.h - models in ONNX's own text -------------------*- C++ -*-===//
#ifndef TCC_TEST_FRONTEND_ONNXTEXT_H
#define TCC_TEST_FRONTEND_ONNXTEXT_H

#include "test/unit/frontend/OnnxModel.h"

#undef MAP_TYPE // sys/mman.h has a macro of this name
#include <onnx/defs/parser.h>

#include <gtest/gtest.h>

namespace tcc::test {

/// A model from text: `<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { [name] y = Neg (x) }`.
/// Without a header, opset 20.
inline OnnxModel fromText(const std::string &text) {
  OnnxModel m;
  m.model.Clear();
  std::string whole = text;
  if (text.find("opset_import") == text.npos)
    whole = "<ir_version: 10, opset_import: [\"\" : 20]>" + text;
  onnx::Common::Status status = onnx::OnnxParser::Parse(m.model, whole.c_str());
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  return m;
}

} // namespace tcc::test

#endif // TCC_TEST_FRONTEND_ONNXTEXT_H
