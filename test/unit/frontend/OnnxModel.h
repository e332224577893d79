//===- OnnxModel.h - tiny ONNX models for tests -----------------*- C++ -*-===//
#ifndef TCC_TEST_FRONTEND_ONNXMODEL_H
#define TCC_TEST_FRONTEND_ONNXMODEL_H

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace tcc::test {

using Dims = std::vector<int64_t>;
using Names = std::vector<std::string>;

/// Builds a ModelProto; each call adds to the graph.
class OnnxModel {
public:
  explicit OnnxModel(int64_t opset = 20) {
    model.set_ir_version(10);
    model.add_opset_import()->set_version(opset);
    model.mutable_graph()->set_name("g");
  }

  onnx::ModelProto model;
  onnx::GraphProto &graph() { return *model.mutable_graph(); }

  /// Dimensions are numbers or names.
  OnnxModel &input(const std::string &name, const Names &dims, int type = onnx::TensorProto::FLOAT) {
    declare(*graph().add_input(), name, dims, type);
    return *this;
  }
  OnnxModel &output(const std::string &name, const Names &dims = {"?"}, int type = onnx::TensorProto::FLOAT) {
    onnx::ValueInfoProto &value = *graph().add_output();
    declare(value, name, dims, type);
    if (dims == Names{"?"})
      value.mutable_type()->mutable_tensor_type()->clear_shape();
    return *this;
  }
  OnnxModel &floats(const std::string &name, const Dims &dims, const std::vector<float> &values) {
    onnx::TensorProto &tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    tensor.mutable_float_data()->Add(values.begin(), values.end());
    return *this;
  }
  OnnxModel &ints(const std::string &name, const Dims &dims, const std::vector<int64_t> &values) {
    onnx::TensorProto &tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    tensor.mutable_int64_data()->Add(values.begin(), values.end());
    return *this;
  }
  onnx::NodeProto &node(const std::string &op, const Names &inputs, const Names &outputs, const std::string &name = "") {
    onnx::NodeProto &result = *graph().add_node();
    result.set_op_type(op);
    result.set_name(name);
    for (const std::string &one : inputs)
      result.add_input(one);
    for (const std::string &one : outputs)
      result.add_output(one);
    return result;
  }

  void save(const std::string &path) const {
    std::ofstream stream(path, std::ios::binary);
    model.SerializeToOstream(&stream);
  }

private:
  static void declare(onnx::ValueInfoProto &value, const std::string &name, const Names &dims, int type) {
    value.set_name(name);
    onnx::TypeProto_Tensor &tensor = *value.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (const std::string &dim : dims) {
      auto &out = *tensor.mutable_shape()->add_dim();
      if (dim.find_first_not_of("0123456789") == dim.npos && !dim.empty())
        out.set_dim_value(std::stoll(dim));
      else if (!dim.empty())
        out.set_dim_param(dim);
    }
  }
};

inline void set(onnx::NodeProto &node, const std::string &name, int64_t value) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}
inline void set(onnx::NodeProto &node, const std::string &name, const Dims &values) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  attribute.mutable_ints()->Add(values.begin(), values.end());
}
inline void set(onnx::NodeProto &node, const std::string &name, const std::string &value) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::STRING);
  attribute.set_s(value);
}

} // namespace tcc::test

#endif // TCC_TEST_FRONTEND_ONNXMODEL_H
