//===- Program.h - PTX text → machine code of this computer --------------===//
//
// Parses a module, translates its kernels to LLVM IR (Emit*.cpp), and compiles each when it is first asked for. Global
// and constant variables get memory of their own. In checked mode the code reports each memory access and each division
// by zero to the machine; in fast mode it does not. Both modes compute the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_PTX_PROGRAM_H
#define TCC_TEST_EMULATION_PTX_PROGRAM_H

#include "support/Status.h"
#include "test/emulation/machine/Machine.h"

#include <memory>
#include <string_view>
#include <vector>

namespace tcc::emulation {

class Program {
public:
  virtual ~Program() = default;

  /// An error names the line and text of the first instruction outside the subset. `memory` holds the module's
  /// variables, and must outlive the program.
  static Expected<std::unique_ptr<Program>> load(std::string_view text, bool checked, Memory &memory);

  virtual std::vector<std::string_view> kernels() const = 0;
  /// "sm_90".
  virtual std::string_view target() const = 0;
  /// The version of the PTX language, 10 · major + minor.
  virtual unsigned version() const = 0;
  /// The kernel's description without compiling it, or null.
  virtual const Code *describe(std::string_view name) const = 0;
  /// The compiled kernel; null if the module has none of that name.
  virtual Expected<const Code *> compile(std::string_view name) = 0;
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_PTX_PROGRAM_H
