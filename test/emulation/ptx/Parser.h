//===- Parser.h - PTX text → syntax tree ---------------------------------===//
#ifndef TCC_TEST_EMULATION_PTX_PARSER_H
#define TCC_TEST_EMULATION_PTX_PARSER_H

#include "support/Status.h"
#include "test/emulation/ptx/Ptx.h"

#include <memory>

namespace tcc::emulation::ptx {

/// Parses a module. Text outside the subset (a device function, a call, a texture) is an error that names line and
/// text.
Expected<std::unique_ptr<Module>> parse(std::string_view text);

} // namespace tcc::emulation::ptx

#endif // TCC_TEST_EMULATION_PTX_PARSER_H
