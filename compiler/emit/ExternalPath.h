//===- ExternalPath.h - where a plan says its weights are -------*- C++ -*-===//
#ifndef TCC_EMIT_EXTERNALPATH_H
#define TCC_EMIT_EXTERNALPATH_H

#include <filesystem>
#include <string>

namespace tcc::emit {

/// The path of a file of external weights as a plan stores it: relative to the plan's folder (empty: the current one).
inline std::string externalPath(const std::string &file, const std::string &planFolder) {
  std::error_code code;
  std::filesystem::path path = std::filesystem::relative(file, planFolder.empty() ? "." : planFolder, code);
  return code || path.empty() ? file : path.string();
}

} // namespace tcc::emit

#endif // TCC_EMIT_EXTERNALPATH_H
