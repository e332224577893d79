//===- Choose.h - calls as the compiler completes them ----------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_CHOOSE_H
#define TCC_TEST_SUPPORT_CHOOSE_H

#include "compiler/target/cpu/Choice.h"
#include "test/support/MachineLevel.h"

#include <cstdlib>

namespace tcc::test {

/// The level that these tests run at: TCC_TEST_LEVEL, else the machine's default.
inline std::string testLevel() {
  const char *level = std::getenv("TCC_TEST_LEVEL");
  return level ? level : machineLevel();
}

inline runtime::CpuLevel levelOfTest() { return *runtime::levelFromName(testLevel()); }

struct Needs : runtime::CallNeeds {
  uint64_t reorderedBytes = 0;
};

/// Completes a call for the level of the test.
template <typename Call> Expected<Needs> query(Call &call) {
  auto choice = target::cpu::choose(call, levelOfTest(), target::cpu::CpuModel());
  if (!choice)
    return choice.status();
  return Needs{choice->needs, choice->reorderedBytes};
}

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_CHOOSE_H
