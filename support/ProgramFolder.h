//===- ProgramFolder.h - where this program is ------------------*- C++ -*-===//
#ifndef TCC_SUPPORT_PROGRAMFOLDER_H
#define TCC_SUPPORT_PROGRAMFOLDER_H

#include <string>

namespace tcc {

/// The folder of the running program, with a slash at the end: plug-ins are beside it.
std::string programFolder();

} // namespace tcc

#endif // TCC_SUPPORT_PROGRAMFOLDER_H
