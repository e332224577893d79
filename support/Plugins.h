//===- Plugins.h - where plug-ins are ---------------------------*- C++ -*-===//
#ifndef TCC_SUPPORT_PLUGINS_H
#define TCC_SUPPORT_PLUGINS_H

#include <string>
#include <string_view>

namespace tcc {

/// The path of the plug-in with this file name: beside the file that contains this code (a program, or libtrun inside
/// any program), in `tcc/` beside it (libtrun installed), or in the library folder of its prefix (a program installed).
/// Where no such file exists, the last of these.
std::string pluginPath(std::string_view name);

} // namespace tcc

#endif // TCC_SUPPORT_PLUGINS_H
