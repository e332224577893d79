//===- Plan.cpp - fuzz target: plan reader, verifier and one run ---------===//
//
// A plan that the verifier accepts runs: each instruction between guard pages, then every entry as `trun` runs it.
//
//===----------------------------------------------------------------------===//
#include "test/fuzz/InputFolder.h"
#include "test/mutations/Case.h"

#ifdef TCC_FUZZ
#include "test/mutations/ChangedPlan.h"

#include <cstring>

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/// Most inputs are changed as messages and get good checksums; every eighth is changed byte by byte.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  std::mt19937_64 random(seed);
  auto reader = tcc::plan::PlanReader::fromBuffer(std::string(reinterpret_cast<const char *>(data), size));
  if (random() % 8 == 0 || !reader)
    return LLVMFuzzerMutate(data, size, most);
  std::string bytes = tcc::test::changePlan(tcc::test::PlanSource::of(*reader, "input"), random).bytes;
  if (bytes.empty() || bytes.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tcc::fuzz::InputFolder folder;
  tcc::test::CaseOptions options;
  options.folder = folder.path;
  options.mostPlanBytes = 256 << 20;
  tcc::test::CaseResult result =
      tcc::test::tryPlanHere(std::string(reinterpret_cast<const char *>(data), size), options);
  if (result.outcome == tcc::test::Outcome::Finding) {
    std::fprintf(stderr, "%s\n", result.message.c_str());
    std::abort();
  }
  return 0;
}
