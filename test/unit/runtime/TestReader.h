//===- TestReader.h - the test plan with code that runs ------------------===//
#ifndef TCC_TEST_UNIT_RUNTIME_TESTREADER_H
#define TCC_TEST_UNIT_RUNTIME_TESTREADER_H

#include "test/support/Shown.h"
#include "test/unit/runtime/TestPlan.h"

#include <fstream>
#include <iterator>

namespace tcc::test {

inline std::string kernels() {
  std::ifstream file(TEST_KERNELS, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The test plan with its real code object in payload 0; `change` may damage it.
template <typename Change> plan::PlanReader makeReader(Change change, const std::string &name = "test.tplan") {
  plan::PlanWriter writer;
  writer.addPayload(kernels());
  plan::Plan plan = makeTestPlan();
  bindCode(*plan.mutable_code_objects(0), kernels());
  change(plan, writer);
  auto bytes = writer.toBuffer(plan);
  EXPECT_TRUE(bytes.ok()) << bytes.message();
  auto reader = plan::PlanReader::fromBuffer(bytes.take(), name);
  EXPECT_TRUE(reader.ok()) << reader.message();
  return reader.take();
}

inline plan::PlanReader goodReader() {
  return makeReader([](plan::Plan &, plan::PlanWriter &) {});
}

inline void expectContains(const std::string &message, std::initializer_list<const char *> texts) {
  const std::string words = shown(message);
  for (const char *text : texts)
    EXPECT_NE(words.find(text), std::string::npos) << "'" << text << "' is missing in: " << words;
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_RUNTIME_TESTREADER_H
