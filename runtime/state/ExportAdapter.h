//===- ExportAdapter.h - a trained adapter as peft writes it ----*- C++ -*-===//
#ifndef TCC_RUNTIME_STATE_EXPORTADAPTER_H
#define TCC_RUNTIME_STATE_EXPORTADAPTER_H

#include "runtime/state/ModelValues.h"

#include <functional>

namespace tcc::runtime {

/// Writes an adapter for PeftModel.from_pretrained. `path` is a new or existing folder, which gets
/// adapter_model.safetensors and adapter_config.json; or it is NAME.safetensors, for the former, with the latter in the
/// same folder. Names are relative to the submodule `root` (empty: the module). Other trained parameters become
/// modules_to_save. `note` is called if all names share an outer module, which peft's model may not have. Errors: no
/// adapter in the plan, an adapter outside `root`, a parameter that peft's format cannot hold.
Status exportAdapter(const plan::Plan &plan, ModelValues &values, const std::string &path, const std::string &root,
                     const std::function<void(const std::string &)> &note);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_EXPORTADAPTER_H
