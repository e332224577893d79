//===- Settings.h - settings that need no compilation ---------------------===//
#ifndef TCC_RUNTIME_TRAIN_SETTINGS_H
#define TCC_RUNTIME_TRAIN_SETTINGS_H

#include "support/Status.h"
#include "runtime/plan/plan.pb.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Applies KEY=VALUE settings (values as in the recipe; a word needs no quotes) to the plan's own. Errors of usage: a
/// key that is compiled in ("recompile with tcc --set …"), an unknown key (the message names the nearest known one).
Status applySettings(const std::vector<std::string> &settings, plan::Training &training,
                           plan::DataSettings &data);

/// A run's settings followed by those given now, which replace equal keys of the run. With `prefix`, only the run's
/// settings of that section.
std::vector<std::string> mergeSettings(const std::vector<std::string> &run, const std::vector<std::string> &given,
                                       const std::string &prefix = "");

/// The target value that the plan's loss ignores: `loss.ignore_index` of its recipe (PyTorch's -100 if absent) if the
/// loss is a classification; else nothing.
std::optional<int64_t> ignoreIndexOf(const plan::Plan &plan);

/// The number of classes that an integer target of a classification may name: the size of the class axis of the graph
/// output that the loss reads, if the plan's entry `predict` has this output; else nothing.
std::optional<int64_t> classesOf(const plan::Plan &plan);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SETTINGS_H
