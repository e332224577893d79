//===- TrainAllocationTest.cpp - an update allocates nothing -------------===//
//
// This program's malloc stands in front of the real one and counts. A run of 300 updates must make exactly as many
// calls as one of 100: all of them belong to its start and its end.
//
//===----------------------------------------------------------------------===//
#include "test/unit/train/TrainFixture.h"

#include <atomic>

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
}

namespace {
std::atomic<uint64_t> calls{0};
}

extern "C" {
void *malloc(size_t bytes) {
  ++calls;
  return __libc_malloc(bytes);
}
void *calloc(size_t number, size_t bytes) {
  ++calls;
  return __libc_calloc(number, bytes);
}
void *realloc(void *old, size_t bytes) {
  ++calls;
  return __libc_realloc(old, bytes);
}
}

using namespace tcc;
using namespace tcc::test;

namespace {
class Allocations : public TrainTest {
protected:
  uint64_t callsOf(const std::string &plan, const std::string &data, uint64_t steps, const std::string &run) {
    runtime::TrainOptions chosen = options(data, steps, run);
    chosen.shuffle = true;
    chosen.logEvery = 10;
    auto session = runtime::openSession({plan, "cpu", 1, {}});
    EXPECT_TRUE(session.ok()) << session.message();
    uint64_t before = calls;
    Status status = runtime::train(*session, chosen);
    EXPECT_TRUE(status.ok()) << status.message();
    return calls - before;
  }
};
} // namespace

TEST_F(Allocations, CountDoesNotDependOnTheNumberOfUpdates) {
  for (int64_t accumulate : {1, 2}) {
    std::string name = std::to_string(accumulate), plan = writeRegressionPlan(at(name + ".tplan"), accumulate),
                data = writeRegressionData(at("d.safetensors"), 40);
    (void)callsOf(plan, data, 100, "warm" + name + "/run"); // first use of the library's own tables
    // Each run has a folder of its own, since a run that begins lists the folder around it.
    uint64_t few = callsOf(plan, data, 100, "few0" + name + "/run"),
             many = callsOf(plan, data, 300, "many" + name + "/run");
    EXPECT_GT(few, 100u) << "the count counts";
    EXPECT_EQ(few, many);
  }
}
