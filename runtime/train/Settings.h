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

/// The target value that the loss ignores, if its target names classes.
inline std::optional<int64_t> ignoreIndexOf(const plan::Training &training) {
  return training.has_class_target() ? std::optional(training.class_target().ignore_index()) : std::nullopt;
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SETTINGS_H
