//===- ExportAdapter.h - a trained adapter as peft writes it ----*- C++ -*-===//
#ifndef TCC_RUNTIME_STATE_EXPORTADAPTER_H
#define TCC_RUNTIME_STATE_EXPORTADAPTER_H

#include "runtime/state/ModelValues.h"

#include <functional>

namespace tcc::runtime {

/// Writes what PeftModel.from_pretrained reads: `path` is a new or existing folder, which gets
/// adapter_model.safetensors and adapter_config.json; or the former's own name, NAME.safetensors, and the latter is
/// written beside it. Names are those of the submodule `root` (empty: of the module). Parameters that were trained
/// besides become modules_to_save. `note` is told of a module around all of them, which peft's model may not have. Errors: no adapter in the plan, an adapter outside `root`, a parameter that peft has
/// no place for.
Status exportAdapter(const plan::Plan &plan, ModelValues &values, const std::string &path, const std::string &root,
                     const std::function<void(const std::string &)> &note);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_EXPORTADAPTER_H
