//===- Shapes.cpp - the entries of a plan of several shapes ---------------===//
#include "runtime/plan/Shapes.h"
#include "support/Advice.h"
#include "support/PlanNames.h"

#include <algorithm>

namespace tcc::plan {

static std::string withoutShape(const std::string &entry) { return entry.substr(0, entry.find(entries::kShapeMark)); }

std::vector<const Entry *> shapesOf(const Plan &plan, const std::string &name) {
  std::vector<const Entry *> shapes;
  for (const Entry &entry : plan.entries())
    if (withoutShape(entry.name()) == name)
      shapes.push_back(&entry);
  // The entries of all kinds are listed shape by shape, so those of one are in order.
  return shapes;
}

std::string shapeText(const Plan &plan, const Entry &entry) {
  std::string text;
  for (const Dim &dim : entry.dims()) {
    const bool differs = std::ranges::any_of(plan.entries(), [&](const Entry &other) {
      return std::ranges::any_of(other.dims(), [&](const Dim &one) {
        return one.name() == dim.name() && one.value() != dim.value();
      });
    });
    if (differs)
      text += (text.empty() ? "" : ", ") + dim.name() + " = " + std::to_string(dim.value());
  }
  return text;
}

std::string batchDim(const std::vector<const Entry *> &shapes) {
  std::vector<std::string> names;
  for (const Dim &dim : shapes.front()->dims())
    if (std::ranges::all_of(shapes, [&](const Entry *shape) {
          return std::ranges::any_of(
              shape->dims(), [&](const Dim &own) { return own.name() == dim.name() && own.value() == shape->batch(); });
        }))
      names.push_back(dim.name());
  return names.size() == 1 ? names.front() : "";
}

std::string batchesAdvice(const std::vector<const Entry *> &shapes, const std::string &batches) {
  const std::string dim = batchDim(shapes);
  return (dim.empty() ? "export the model with a symbolic batch (dynamic_shapes), and compile with "
                      : "compile with ") +
         advice::compile("dim", (dim.empty() ? "BATCH" : dim) + "=" + batches);
}

int sampleAxisOf(const Entry &entry, const Port &port) {
  const TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type();
  const int axis = port.sample_axis();
  return axis >= 0 && axis < type.dims_size() && type.dims(axis) == entry.batch() ? axis : -1;
}

std::vector<int64_t> sampleExtents(const Entry &entry, const Port &port) {
  const int axis = sampleAxisOf(entry, port);
  const auto &dims = entry.buffers(static_cast<int>(port.buffer())).type().dims();
  std::vector<int64_t> sample;
  for (int d = 0; d < dims.size() && axis >= 0; ++d)
    if (d != axis)
      sample.push_back(dims[d]);
  return sample;
}

std::map<std::string, std::vector<int>> paddedAxes(const std::vector<const Entry *> &shapes) {
  std::map<std::string, std::vector<int>> result;
  for (const Port &port : shapes.front()->inputs()) {
    const std::vector<int64_t> first = sampleExtents(*shapes.front(), port);
    std::vector<bool> differs(first.size());
    bool sameRank = true;
    for (const Entry *shape : shapes)
      for (const Port &other : shape->inputs())
        if (other.name() == port.name()) {
          const std::vector<int64_t> extents = sampleExtents(*shape, other);
          sameRank = sameRank && extents.size() == first.size();
          for (size_t axis = 0; sameRank && axis < first.size(); ++axis)
            differs[axis] = differs[axis] || extents[axis] != first[axis];
        }
    std::vector<int> axes;
    for (size_t axis = 0; sameRank && axis < first.size(); ++axis)
      if (differs[axis])
        axes.push_back(static_cast<int>(axis));
    if (!axes.empty())
      result[port.name()] = std::move(axes);
  }
  return result;
}

} // namespace tcc::plan
