//===- Shapes.h - the entries of a plan of several shapes -------*- C++ -*-===//
//
// A plan may have an entry in several shapes, over the same state: "step", "step@1", "step@2", in the order of the
// recipe's buckets. Entry.dims has the dimensions of each.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_SHAPES_H
#define TCC_RUNTIME_PLAN_SHAPES_H

#include "runtime/plan/plan.pb.h"

#include <map>
#include <string>
#include <vector>

namespace tcc::plan {

/// The entry of this name, with that of a phase, in all its shapes; none if the plan lacks it.
std::vector<const Entry *> shapesOf(const Plan &plan, const std::string &name);

/// The dimensions in which an entry's shapes differ, as "seq = 128"; empty if it has one shape, or does not depend on
/// it.
std::string shapeText(const Plan &plan, const Entry &entry);

/// The name of the dimension that is the batch in all of an entry's shapes; empty if no name is, or several are.
std::string batchDim(const std::vector<const Entry *> &shapes);
/// Advice to compile shapes for these batches, as "8,3"; where the batch is fixed in the model's file, to export it
/// anew first.
std::string batchesAdvice(const std::vector<const Entry *> &shapes, const std::string &batches);

/// By input: the axes of a sample, from 0, in which an entry's shapes differ. A sample may be shorter there and is
/// padded. Inputs that have the same samples in all shapes are absent, and those that have another number of axes in
/// some.
std::map<std::string, std::vector<int>> paddedAxes(const std::vector<const Entry *> &shapes);

/// The sample axis of an input; -1: it is a constant.
int sampleAxisOf(const Entry &entry, const Port &port);

/// The extents of one sample of an input; empty for a constant.
std::vector<int64_t> sampleExtents(const Entry &entry, const Port &port);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_SHAPES_H
