//===- DequantizeOps.cpp - quantised ops in floating point ----------------===//
#include "frontend/Dequantization.h"
#include "frontend/OnnxLibrary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

namespace tcc::frontend {

using onnx::NodeProto;
using onnx::TensorProto;

//===----------------------------------------------------------------------===//
// Quantisers
//===----------------------------------------------------------------------===//

Status Dequantization::quantizeLinear(const NodeProto &node) {
  if (intAttribute(node, "block_size", 0))
    return error("it quantises in blocks, which is not read; quantise per tensor or per axis");
  int32_t type = int32_t(intAttribute(node, "output_dtype", 0));
  Expected<Quantizer> quantizer =
      readQuantizer(constants, inputOf(node, 1), inputOf(node, 2), intAttribute(node, "axis", 1),
                    type ? type : int32_t(TensorProto::UINT8));
  if (!quantizer)
    return quantizer.status();
  const std::string x = resolve(inputOf(node, 0));
  if (reals.count(inputOf(node, 0)) || dynamic.count(inputOf(node, 0)) || products.count(inputOf(node, 0)))
    return error("it quantises \"{}\", which is quantised already", inputOf(node, 0));
  // A constant is not clipped: a weight is within its range.
  if (constants.has(x)) {
    reals[node.output(0)] = {x, *quantizer};
    return Status::success();
  }
  if (quantizer->perAxis())
    return error(
        "it quantises an activation with a scale for each index of an axis; --dequantize takes one scale");
  emitClip(node, x, node.output(0), *quantizer, *integerRange(quantizer->type));
  return Status::success();
}

Status Dequantization::dequantizeLinear(const NodeProto &node) {
  if (intAttribute(node, "block_size", 0))
    return error("it dequantises in blocks, which is not read; quantise per tensor or per axis");
  Expected<std::string> real =
      tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2), intAttribute(node, "axis", 1));
  if (!real)
    return real.status();
  alias[node.output(0)] = *real;
  return Status::success();
}

Status Dequantization::dynamicQuantizeLinear(const NodeProto &node) {
  Operand operand;
  operand.value = resolve(inputOf(node, 0));
  operand.dynamic = node.output_size() > 1 ? node.output(1) : "";
  operand.zeroPoint = node.output_size() > 2 ? node.output(2) : "";
  dynamic[node.output(0)] = operand;
  if (!operand.dynamic.empty())
    scales[operand.dynamic].dynamic.insert(operand.dynamic);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Products of integers
//===----------------------------------------------------------------------===//

Expected<Dequantization::Operand> Dequantization::operandOf(const std::string &name,
                                                            const std::string &zeroPoint) const {
  if (auto found = dynamic.find(name); found != dynamic.end()) {
    if (zeroPoint != found->second.zeroPoint)
      return error("it reads \"{}\" with another zero point than it was quantised by", name);
    return found->second;
  }
  Operand operand;
  if (auto real = reals.find(name); real != reals.end()) {
    const Quantizer &quantizer = real->second.quantizer;
    auto points = zeroPoint.empty() ? Expected(std::vector<double>{0}) : constants.numbers(zeroPoint);
    if (!points)
      return points.status();
    if (quantizer.perAxis() || points->empty() ||
        std::any_of(points->begin(), points->end(), [&](double z) { return z != double(quantizer.zeroPoint[0]); }))
      return error("it reads \"{}\" with another zero point than it was quantised by", name);
    operand.value = real->second.name;
    operand.scale = quantizer.scale[0];
    return operand;
  }
  if (!constants.has(name))
    return error("it multiplies \"{}\", which is neither a constant nor the result of QuantizeLinear or "
                       "DynamicQuantizeLinear",
                       name);
  operand.constant = name;
  operand.zeroPoint = zeroPoint;
  return operand;
}

Status Dequantization::integerProduct(const NodeProto &node) {
  Product product;
  Expected<Operand> a = operandOf(inputOf(node, 0), inputOf(node, 2)),
                    b = operandOf(inputOf(node, 1), inputOf(node, 3));
  if (!a || !b)
    return a ? b.status() : a.status();
  product.a = *a;
  product.b = *b;
  product.node = floatNode(node, node.op_type() == "ConvInteger" ? "Conv" : "MatMul", {});
  products.emplace(node.output(0), std::move(product));
  return Status::success();
}

std::optional<Dequantization::Scale> Dequantization::scaleOf(const std::string &name) const {
  auto found = scales.find(name);
  return found == scales.end() ? std::nullopt : std::optional(found->second);
}

/// A Mul of scales is recorded; a Mul of a product of integers by its scale emits the floating-point product.
Status Dequantization::mulScale(const NodeProto &node) {
  for (int i : {0, 1}) {
    auto product = products.find(node.input(i));
    if (product == products.end())
      continue;
    const std::string &other = node.input(1 - i);
    std::optional<Scale> scale = scaleOf(other);
    if (!scale && constants.has(other))
      scale = Scale{{}, {other}};
    if (!scale)
      return error("it multiplies the integers that {} computes by \"{}\", which is not their scale",
                         product->second.node.name(), other);
    Status status = finishProduct(product->second, *scale, node.output(0));
    return status.ok() ? status : error("{}: {}", product->second.node.name(), status.message());
  }
  Scale all;
  for (const std::string &input : node.input()) {
    std::optional<Scale> scale = scaleOf(input);
    if (!scale && constants.has(input))
      scale = Scale{{}, {input}};
    if (!scale)
      return error("it multiplies the scale of a tensor by \"{}\", which is no scale", input);
    all.dynamic.insert(scale->dynamic.begin(), scale->dynamic.end());
    all.constant.insert(all.constant.end(), scale->constant.begin(), scale->constant.end());
  }
  scales[node.output(0)] = std::move(all);
  return Status::success();
}

/// Emits the product of floating-point operands. `scale` is the product of both operands' scales, so dividing it by the
/// known scales gives that of a constant operand.
Status Dequantization::finishProduct(Product product, const Scale &scale, const std::string &result,
                                     const std::string &bias) {
  std::multiset<std::string> expected;
  double known = 1;
  for (const Operand *operand : {&product.a, &product.b}) {
    if (!operand->dynamic.empty())
      expected.insert(operand->dynamic);
    known *= operand->scale;
  }
  if (expected != scale.dynamic)
    return error("its result is multiplied by other scales than its operands have");
  std::vector<double> rest = {1 / known};
  for (const std::string &name : scale.constant) {
    Expected<std::vector<double>> factor = constants.numbers(name);
    if (!factor)
      return factor.status();
    if (factor->size() != 1 && rest.size() != 1 && factor->size() != rest.size())
      return error("its result is multiplied by scales of {} and {} elements", rest.size(), factor->size());
    const size_t count = std::max(rest.size(), factor->size());
    rest.resize(count, double(rest[0]));
    for (size_t i = 0; i < count; ++i)
      rest[i] *= (*factor)[factor->size() == 1 ? 0 : i];
  }
  for (double value : rest)
    if (!(value > 0) || !std::isfinite(value))
      return error("its result is multiplied by scales whose product is {}; scales are finite and above 0", value);
  const bool conv = product.node.op_type() == "Conv";
  if (product.a.constant.empty() == product.b.constant.empty()) {
    if (!product.a.constant.empty())
      return error("both of its operands are constants");
    if (rest.size() != 1 || std::fabs(rest[0] - 1) > 1e-4)
      return error("its result is multiplied by {} times the scales of its operands", rest[0]);
  }
  for (Operand *operand : {&product.a, &product.b}) {
    if (operand->constant.empty())
      continue;
    if (rest.size() > 1 && operand == &product.a)
      return error("its first operand is a constant with a scale for each index of an axis");
    Quantizer quantizer{rest, {}, conv ? 0 : -1, constants.find(operand->constant)->type};
    if (!operand->zeroPoint.empty()) {
      Expected<std::vector<double>> points = constants.numbers(operand->zeroPoint);
      if (!points)
        return points.status();
      quantizer.type = constants.find(operand->zeroPoint)->type;
      for (double point : *points)
        quantizer.zeroPoint.push_back(int64_t(point));
    }
    if (quantizer.zeroPoint.empty())
      quantizer.zeroPoint.push_back(0);
    const size_t count = std::max(rest.size(), quantizer.zeroPoint.size());
    if (quantizer.scale.size() == 1)
      quantizer.scale.resize(count, double(rest[0]));
    if (quantizer.zeroPoint.size() == 1)
      quantizer.zeroPoint.resize(count, int64_t(quantizer.zeroPoint[0]));
    if (quantizer.scale.size() != count || quantizer.zeroPoint.size() != count)
      return error("its weight has {} scales and {} zero points", quantizer.scale.size(),
                         quantizer.zeroPoint.size());
    quantizer.given = count;
    Expected<std::string> made = weight(operand->constant, quantizer);
    if (!made)
      return made.status();
    operand->value = *made;
  }
  NodeProto &node = *nodes.Add();
  node = std::move(product.node);
  node.add_input(product.a.value);
  node.add_input(product.b.value);
  node.clear_output();
  if (bias.empty()) {
    node.add_output(result);
    return Status::success();
  }
  const std::string whole = fresh(result + "_product");
  node.add_output(whole);
  NodeProto sum;
  sum.set_op_type("Add");
  sum.set_name(node.name() + "/bias");
  sum.add_input(whole);
  sum.add_input(resolve(bias));
  sum.add_output(result);
  *nodes.Add() = std::move(sum);
  return Status::success();
}

/// com.microsoft: A, B, their scales, their zero points, bias; the result is floating-point.
Status Dequantization::matMulIntegerToFloat(const NodeProto &node) {
  Product product;
  Expected<Operand> a = operandOf(inputOf(node, 0), inputOf(node, 4)),
                    b = operandOf(inputOf(node, 1), inputOf(node, 5));
  if (!a || !b)
    return a ? b.status() : a.status();
  product.a = *a;
  product.b = *b;
  product.node = floatNode(node, "MatMul", {});
  Scale scale;
  for (int i : {2, 3}) {
    std::optional<Scale> part = scaleOf(inputOf(node, i));
    if (part)
      scale.dynamic.insert(part->dynamic.begin(), part->dynamic.end());
    if (part)
      scale.constant.insert(scale.constant.end(), part->constant.begin(), part->constant.end());
    else
      scale.constant.push_back(inputOf(node, i));
  }
  return finishProduct(std::move(product), scale, node.output(0), inputOf(node, 6));
}

/// com.microsoft: A in floating point, B, its scale, its zero point, bias.
Status Dequantization::dynamicQuantizeMatMul(const NodeProto &node) {
  Product product;
  product.a.value = resolve(inputOf(node, 0));
  Expected<Operand> b = operandOf(inputOf(node, 1), inputOf(node, 3));
  if (!b)
    return b.status();
  product.b = *b;
  product.node = floatNode(node, "MatMul", {});
  return finishProduct(std::move(product), Scale{{}, {inputOf(node, 2)}}, node.output(0), inputOf(node, 4));
}

/// com.microsoft: LSTM whose W and R are transposed, one scale for each direction or each of its gates' rows.
Status Dequantization::dynamicQuantizeLstm(const NodeProto &node) {
  std::vector<std::string> inputs;
  for (int i = 0; i < 8; ++i)
    inputs.push_back(resolve(inputOf(node, i)));
  for (int i : {1, 2}) {
    const std::string &name = inputOf(node, i);
    const OnnxInitializer *stored = constants.find(name);
    if (!stored || stored->dims.size() != 3)
      return error("its weight \"{}\" is no constant of 3 dimensions", name);
    const std::string &scale = inputOf(node, i == 1 ? 8 : 10), &zeroPoint = inputOf(node, i == 1 ? 9 : 11);
    Expected<std::vector<double>> values = constants.numbers(name), steps = constants.numbers(scale);
    Expected<std::vector<double>> points =
        zeroPoint.empty() ? Expected<std::vector<double>>(std::vector<double>{0}) : constants.numbers(zeroPoint);
    if (!values || !steps || !points)
      return !values ? values.status() : !steps ? steps.status() : points.status();
    const size_t directions = size_t(stored->dims[0]), columns = size_t(stored->dims[1]),
                 rows = size_t(stored->dims[2]);
    auto fits = [&](size_t count) { return count == 1 || count == directions || count == directions * rows; };
    if (!fits(steps->size()) || !fits(points->size()))
      return error("its weight \"{}\" has {} scales and {} zero points", name, steps->size(), points->size());
    if (!zeroPoint.empty() && constants.find(zeroPoint)->type != stored->type)
      return error("its weight \"{}\" is of type {}, its zero point \"{}\" of type {}", name,
                   onnxTypeName(stored->type), zeroPoint, onnxTypeName(constants.find(zeroPoint)->type));
    for (double value : *steps)
      if (!(value > 0) || !std::isfinite(value))
        return error("its scale \"{}\" holds {}; scales are finite and above 0", scale, value);
    auto at = [&](const std::vector<double> &of, size_t d, size_t r) {
      return of[of.size() == 1 ? 0 : of.size() == directions ? d : d * rows + r];
    };
    std::string bytes(values->size() * sizeof(float), '\0');
    for (size_t d = 0; d < directions; ++d)
      for (size_t c = 0; c < columns; ++c)
        for (size_t r = 0; r < rows; ++r) {
          const double q = (*values)[(d * columns + c) * rows + r];
          const float value = float(q - at(*points, d, r)) * float(at(*steps, d, r));
          std::memcpy(&bytes[((d * rows + r) * columns + c) * sizeof value], &value, sizeof value);
        }
    inputs[size_t(i)] = addInitializer(nameBeforeQuantization(name),
                                       {stored->dims[0], stored->dims[2], stored->dims[1]}, std::move(bytes));
  }
  *nodes.Add() = floatNode(node, "LSTM", inputs);
  return Status::success();
}

/// com.microsoft: Attention whose input and weight are quantised: their scales are inputs 3 and 4, their zero points 6
/// and 7.
Status Dequantization::qAttention(const NodeProto &node) {
  Expected<Operand> x = operandOf(inputOf(node, 0), inputOf(node, 6));
  Expected<std::string> w = tensor(inputOf(node, 1), inputOf(node, 4), inputOf(node, 7), -1);
  if (!x || !w)
    return x ? w.status() : x.status();
  if (x->value.empty() || (!x->dynamic.empty() && x->dynamic != inputOf(node, 3)))
    return error("its input \"{}\" is no result of QuantizeLinear or DynamicQuantizeLinear by that scale",
                       inputOf(node, 0));
  NodeProto made =
      floatNode(node, "Attention",
                {x->value, *w, resolve(inputOf(node, 2)), resolve(inputOf(node, 5)), resolve(inputOf(node, 8))});
  made.set_domain("com.microsoft");
  *nodes.Add() = std::move(made);
  return Status::success();
}

/// com.microsoft: EmbedLayerNormalization whose tables and vectors are quantised.
Status Dequantization::qEmbedLayerNormalization(const NodeProto &node) {
  std::vector<std::string> inputs = {resolve(inputOf(node, 0)), resolve(inputOf(node, 1))};
  for (int i = 2; i < 7; ++i) {
    if (inputOf(node, i).empty()) {
      inputs.emplace_back();
      continue;
    }
    Expected<std::string> made = tensor(inputOf(node, i), inputOf(node, i + 6), inputOf(node, i + 11));
    if (!made)
      return made.status();
    inputs.push_back(*made);
  }
  inputs.push_back(resolve(inputOf(node, 7)));
  NodeProto made = floatNode(node, "EmbedLayerNormalization", inputs);
  made.set_domain("com.microsoft");
  *nodes.Add() = std::move(made);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// QLinear ops
//===----------------------------------------------------------------------===//

/// The scale of a bias: those of the operands, multiplied.
static Quantizer biasQuantizer(const Quantizer &x, const Quantizer &w, double factor) {
  Quantizer bias{w.scale, std::vector<int64_t>(w.scale.size(), 0), 0, int32_t(TensorProto::INT32)};
  for (double &scale : bias.scale)
    scale = double(float(float(x.scale[0]) * float(scale)) * float(factor));
  return bias;
}

Status Dequantization::qLinearConv(const NodeProto &node) {
  if (intAttribute(node, "channels_last", 0))
    return error("its channels come last, and no standard op has this layout; quantise without onnxruntime's layout "
                       "optimisation");
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2)),
                        w = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5), 0);
  if (!x || !w)
    return x ? w.status() : x.status();
  std::string bias;
  if (!inputOf(node, 8).empty()) {
    Expected<Quantizer> xs = quantizerOf(inputOf(node, 1), inputOf(node, 2), 1, inputOf(node, 0)),
                        ws = quantizerOf(inputOf(node, 4), inputOf(node, 5), 0, inputOf(node, 3));
    if (!constants.has(inputOf(node, 8)))
      return error("its bias \"{}\" is no constant", inputOf(node, 8));
    if (xs->perAxis())
      return error("its input \"{}\" has a scale for each index of an axis, and a bias", inputOf(node, 0));
    Expected<std::string> made = weight(inputOf(node, 8), biasQuantizer(*xs, *ws, 1));
    if (!made)
      return made.status();
    bias = *made;
  }
  NodeProto conv = floatNode(node, "Conv", {*x, *w, bias});
  dropAttribute(conv, "channels_last");
  return emitLimited(std::move(conv), node, 6, 7);
}

Status Dequantization::qLinearMatMul(const NodeProto &node) {
  Expected<std::string> a = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2), -2),
                        b = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5), -1);
  if (!a || !b)
    return a ? b.status() : a.status();
  return emitLimited(floatNode(node, "MatMul", {*a, *b}), node, 6, 7);
}

/// com.microsoft: alpha·A·B + C, C in steps of alpha times the scales of A and B.
Status Dequantization::qGemm(const NodeProto &node) {
  const int64_t axis = intAttribute(node, "transB", 0) ? 0 : 1;
  Expected<std::string> a = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2)),
                        b = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5), axis);
  if (!a || !b)
    return a ? b.status() : a.status();
  std::string bias;
  if (!inputOf(node, 6).empty()) {
    Expected<Quantizer> as = quantizerOf(inputOf(node, 1), inputOf(node, 2), 1, inputOf(node, 0)),
                        bs = quantizerOf(inputOf(node, 4), inputOf(node, 5), axis, inputOf(node, 3));
    const onnx::AttributeProto *alpha = attributeOf(node, "alpha");
    if (!constants.has(inputOf(node, 6)))
      return error("its bias \"{}\" is no constant", inputOf(node, 6));
    if (as->perAxis())
      return error("its input \"{}\" has a scale for each index of an axis, and a bias", inputOf(node, 0));
    Quantizer quantizer = biasQuantizer(*as, *bs, alpha ? double(alpha->f()) : 1);
    quantizer.axis = -1;
    Expected<std::string> made = weight(inputOf(node, 6), quantizer);
    if (!made)
      return made.status();
    bias = *made;
  }
  return emitLimited(floatNode(node, "Gemm", {*a, *b, bias}), node, 7, 8);
}

Status Dequantization::qLinearBinary(const NodeProto &node) {
  Expected<std::string> a = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2)),
                        b = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5));
  if (!a || !b)
    return a ? b.status() : a.status();
  return emitLimited(floatNode(node, node.op_type() == "QLinearAdd" ? "Add" : "Mul", {*a, *b}), node, 6, 7);
}

/// Activations and pools, whose attributes are those of the op without its prefix.
Status Dequantization::qLinearUnary(const NodeProto &node) {
  if (intAttribute(node, "channels_last", 0))
    return error("its channels come last, and no standard op has this layout; quantise without onnxruntime's layout "
                       "optimisation");
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2));
  if (!x)
    return x.status();
  NodeProto made = floatNode(node, node.op_type().c_str() + std::strlen("QLinear"), {*x});
  dropAttribute(made, "channels_last");
  return emitLimited(std::move(made), node, 3, 4);
}

Status Dequantization::qLinearSoftmax(const NodeProto &node) {
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2));
  if (!x)
    return x.status();
  const bool then = intAttribute(node, "opset", opset) >= 13, now = opset >= 13;
  if (then != now && intAttribute(node, "axis", -1) != -1)
    return error("it computes Softmax of opset {} in a model of opset {}; the two differ unless the axis is the last",
                       intAttribute(node, "opset", opset), opset);
  NodeProto made = floatNode(node, "Softmax", {*x});
  dropAttribute(made, "opset");
  return emitLimited(std::move(made), node, 3, 4);
}

Status Dequantization::qLinearReduceMean(const NodeProto &node) {
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2));
  if (!x)
    return x.status();
  NodeProto made = floatNode(node, "ReduceMean", {*x});
  if (const onnx::AttributeProto *axes = attributeOf(node, "axes"); axes && opset >= 18) {
    NodeProto &constant = *nodes.Add();
    constant.set_op_type("Constant");
    constant.add_output(fresh(node.output(0) + "_axes"));
    newAttribute(constant, "value_ints", onnx::AttributeProto::INTS).mutable_ints()->CopyFrom(axes->ints());
    made.add_input(constant.output(0));
    dropAttribute(made, "axes");
  }
  return emitLimited(std::move(made), node, 3, 4);
}

/// com.microsoft: scale and zero point of the result, then each tensor with its own.
Status Dequantization::qLinearConcat(const NodeProto &node) {
  std::vector<std::string> inputs;
  for (int i = 2; i + 1 < node.input_size(); i += 3) {
    Expected<std::string> x = tensor(inputOf(node, i), inputOf(node, i + 1), inputOf(node, i + 2));
    if (!x)
      return x.status();
    inputs.push_back(*x);
  }
  return emitLimited(floatNode(node, "Concat", inputs), node, 0, 1);
}

Status Dequantization::qLinearWhere(const NodeProto &node) {
  Expected<std::string> x = tensor(inputOf(node, 1), inputOf(node, 2), inputOf(node, 3)),
                        y = tensor(inputOf(node, 4), inputOf(node, 5), inputOf(node, 6));
  if (!x || !y)
    return x ? y.status() : x.status();
  return emitLimited(floatNode(node, "Where", {resolve(inputOf(node, 0)), *x, *y}), node, 7, 8);
}

const std::map<std::string, Dequantization::Handler> &Dequantization::handlers() {
  using D = Dequantization;
  static const std::map<std::string, Handler> table = {
      {"QuantizeLinear", &D::quantizeLinear},
      {"DequantizeLinear", &D::dequantizeLinear},
      {"DynamicQuantizeLinear", &D::dynamicQuantizeLinear},
      {"ConvInteger", &D::integerProduct},
      {"MatMulInteger", &D::integerProduct},
      {"MatMulIntegerToFloat", &D::matMulIntegerToFloat},
      {"DynamicQuantizeMatMul", &D::dynamicQuantizeMatMul},
      {"DynamicQuantizeLSTM", &D::dynamicQuantizeLstm},
      {"QAttention", &D::qAttention},
      {"QEmbedLayerNormalization", &D::qEmbedLayerNormalization},
      {"QLinearConv", &D::qLinearConv},
      {"QLinearMatMul", &D::qLinearMatMul},
      {"QGemm", &D::qGemm},
      {"QLinearAdd", &D::qLinearBinary},
      {"QLinearMul", &D::qLinearBinary},
      {"QLinearSigmoid", &D::qLinearUnary},
      {"QLinearLeakyRelu", &D::qLinearUnary},
      {"QLinearAveragePool", &D::qLinearUnary},
      {"QLinearGlobalAveragePool", &D::qLinearUnary},
      {"QLinearSoftmax", &D::qLinearSoftmax},
      {"QLinearReduceMean", &D::qLinearReduceMean},
      {"QLinearConcat", &D::qLinearConcat},
      {"QLinearWhere", &D::qLinearWhere},
  };
  return table;
}

} // namespace tcc::frontend
