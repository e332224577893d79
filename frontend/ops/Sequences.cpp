//===- Sequences.cpp - sequences of tensors, all known at compile time ----===//
#include "frontend/NodeImport.h"

#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace sequences { // named, since files share a translation unit
namespace {


Status notASequence(NodeImport &n, unsigned i) {
  return error("input \"{}\" is no sequence that is known at compile time", n.node.input(int(i)));
}

Status splitToSequence(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  int64_t extent = n.shape(0)[size_t(axis)];
  bool keep = true;
  Shape sizes;
  if (!n.has(1)) {
    if (extent > kMostNodes)
      return error("it makes {} parts; at most {} are supported", extent, kMostNodes);
    sizes.assign(size_t(extent), 1);
    keep = n.intAttr("keepdims", 1);
  } else {
    TCC_TRY(given, n.ints(1));
    if (n.rank(1) == 0) {
      if (given[0] < 1)
        return error("split is {}; a part has at least 1 element", given[0]);
      if (extent / given[0] > kMostNodes)
        return error("it makes {} parts; at most {} are supported", extent / given[0], kMostNodes);
      for (int64_t begin = 0; begin < extent; begin += given[0])
        sizes.push_back(std::min(given[0], extent - begin));
    } else {
      sizes = given;
    }
  }
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t(0)) != extent)
    return error("parts of sizes {} do not make up axis {} of {}", shapeText(sizes), axis, typeText(n.in(0)));
  Slot slot;
  slot.sequence.emplace();
  int64_t begin = 0;
  for (int64_t size : sizes) {
    if (size < 0)
      return error("a part has the negative size {}", size);
    Value part = n.slice(n.in(0), axis, begin, size);
    slot.sequence->push_back(keep ? part : n.dropDims(part, {axis}));
    begin += size;
  }
  n.outputs = {slot};
  return Status::success();
}

Status sequenceConstruct(NodeImport &n) {
  Slot slot;
  slot.sequence.emplace();
  for (unsigned i = 0; i < n.inputs.size(); ++i)
    slot.sequence->push_back(n.in(i));
  n.outputs = {slot};
  return Status::success();
}

Status sequenceEmpty(NodeImport &n) {
  Slot slot;
  slot.sequence.emplace();
  n.outputs = {slot};
  return Status::success();
}

Status sequenceAt(NodeImport &n) {
  if (!n.inputs[0].sequence)
    return notASequence(n, 0);
  TCC_TRY(position, n.ints(1));
  const int64_t size = int64_t(n.inputs[0].sequence->size());
  if (position.size() != 1 || position[0] < -size || position[0] >= size)
    return error("position {} is outside of a sequence of {}", shapeText(position), size);
  const int64_t index = position[0] < 0 ? position[0] + size : position[0];
  return n.result((*n.inputs[0].sequence)[size_t(index)]);
}

Status sequenceLength(NodeImport &n) {
  if (!n.inputs[0].sequence)
    return notASequence(n, 0);
  return n.result(n.splat({}, n.i64(), double(n.inputs[0].sequence->size())));
}

Status sequenceInsert(NodeImport &n) {
  if (!n.inputs[0].sequence)
    return notASequence(n, 0);
  Slot slot = n.inputs[0];
  int64_t size = int64_t(slot.sequence->size()), index = size;
  if (n.has(2)) {
    TCC_TRY(position, n.ints(2));
    if (position.size() != 1 || position[0] < -size || position[0] > size)
      return error("position {} is outside of a sequence of {}", shapeText(position), size);
    index = position[0] < 0 ? position[0] + size : position[0];
  }
  n.spend(slot.sequence->size() * sizeof(Value));
  slot.sequence->insert(slot.sequence->begin() + index, n.in(1));
  n.outputs = {slot};
  return Status::success();
}

Status sequenceErase(NodeImport &n) {
  if (!n.inputs[0].sequence)
    return notASequence(n, 0);
  Slot slot = n.inputs[0];
  int64_t size = int64_t(slot.sequence->size()), index = size - 1;
  if (n.has(1)) {
    TCC_TRY(position, n.ints(1));
    if (position.size() != 1)
      return error("the position must be one number, not {}", shapeText(position));
    TCC_TRY(checked, n.axis(position[0], size));
    index = checked;
  }
  if (index < 0)
    return error("the sequence is empty: there is nothing to erase");
  n.spend(slot.sequence->size() * sizeof(Value));
  slot.sequence->erase(slot.sequence->begin() + index);
  n.outputs = {slot};
  return Status::success();
}

Status concatFromSequence(NodeImport &n) {
  if (!n.inputs[0].sequence || n.inputs[0].sequence->empty())
    return notASequence(n, 0);
  llvm::SmallVector<Value> parts = *n.inputs[0].sequence;
  bool newAxis = n.intAttr("new_axis", 0);
  int64_t rank = int64_t(train::shapeOf(parts[0]).size());
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), rank + newAxis));
  Shape shape;
  for (Value &part : parts) {
    Shape one(train::shapeOf(part));
    if (int64_t(one.size()) != rank || train::elementTypeOf(part) != train::elementTypeOf(parts[0]))
      return error("the sequence holds {} and {}, which cannot be joined", typeText(parts[0]), typeText(part));
    if (newAxis) {
      one.insert(one.begin() + axis, 1);
      part = n.reshape(part, one);
    }
    if (shape.empty())
      shape = one;
    else
      shape[size_t(axis)] += one[size_t(axis)];
  }
  if (parts.size() == 1)
    return n.result(parts[0]);
  return n.result(
      train::ConcatOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(parts[0])), parts, axis));
}

constexpr OpEntry kTable[] = {
    {"SplitToSequence", 1, splitToSequence},
    {"SequenceConstruct", 1, sequenceConstruct},
    {"SequenceEmpty", 0, sequenceEmpty},
    {"SequenceAt", 2, sequenceAt, 1, 28, "", true},
    {"SequenceLength", 1, sequenceLength, 1, 28, "", true},
    {"SequenceInsert", 2, sequenceInsert, 1, 28, "", true},
    {"SequenceErase", 1, sequenceErase, 1, 28, "", true},
    {"ConcatFromSequence", 1, concatFromSequence, 1, 28, "", true},
};

} // namespace
} // namespace sequences

std::span<const OpEntry> sequenceOps() { return sequences::kTable; }

} // namespace tcc::frontend
