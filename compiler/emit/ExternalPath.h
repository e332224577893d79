//===- ExternalPath.h - where a plan says its weights are -------*- C++ -*-===//
#ifndef TCC_EMIT_EXTERNALPATH_H
#define TCC_EMIT_EXTERNALPATH_H

#include <filesystem>
#include <string>

namespace tcc::emit {

/// A file of external weights as a plan in `planFolder` (empty: the current one) names it: relative to that folder.
inline std::string externalPath(const std::string &file, const std::string &planFolder) {
  std::error_code code;
  std::filesystem::path path = std::filesystem::relative(file, planFolder.empty() ? "." : planFolder, code);
  return code || path.empty() ? file : path.string();
}

} // namespace tcc::emit

#endif // TCC_EMIT_EXTERNALPATH_H
