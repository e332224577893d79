//===- IsolatedPlans.cpp - run plans between guard pages ------------------===//
//
// Runs every entry of every program of plans for CPUs, each instruction alone with its operands (IsolatedPlan.h), twice
// from the same state and inputs: first operands end at a guard page and uninitialised memory is NaN, then operands
// begin after a guard page and uninitialised memory is 0. An access outside an operand ends the process with the
// instruction's name; different results mean a read of uninitialised memory. Programs that this machine cannot run are
// skipped.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Library.h"
#include "runtime/plan/Verifier.h"
#include "test/support/isolate/IsolatedPlan.h"

#include <cstring>
#include <fmt/format.h>

using namespace tcc;
using namespace tcc::test;

namespace {
constexpr uint64_t kMostBytes = uint64_t(6) << 30, kSeed = 1;
constexpr unsigned kThreads = 2;

/// The bytes of an entry's outputs and of the state after a run.
std::vector<std::pair<std::string, std::string>> resultsOf(const IsolatedPlan &isolated, const plan::Entry &entry) {
  std::vector<std::pair<std::string, std::string>> results;
  for (const plan::Buffer &buffer : entry.buffers())
    if (buffer.last() == entry.instructions_size() || buffer.kind() == plan::Buffer::OUTPUT ||
        buffer.arena() == plan::RESIDENT) {
      std::span<const char> bytes = isolated.bytesOf(buffer);
      results.emplace_back(buffer.name(), std::string(bytes.begin(), bytes.end()));
    }
  return results;
}

/// Returns what is wrong; empty if nothing is.
std::string tryProgram(const plan::PlanReader &reader) {
  std::vector<std::vector<std::pair<std::string, std::string>>> first;
  for (bool again : {false, true}) {
    auto isolated = IsolatedPlan::load(reader, kThreads, kMostBytes);
    if (!isolated)
      return isolated.message();
    for (int i = 0; i < reader.plan().entries_size(); ++i) {
      const plan::Entry &entry = reader.plan().entries(i);
      std::mt19937_64 random(kSeed + static_cast<uint64_t>(i));
      if (Status status = isolated->run(entry, random, {again ? '\0' : '\xff', again, true}); !status.ok())
        return status.message();
      auto results = resultsOf(*isolated, entry);
      if (!again) {
        first.push_back(std::move(results));
        continue;
      }
      for (size_t number = 0; number < results.size(); ++number)
        if (results[number] != first[static_cast<size_t>(i)][number])
          return fmt::format("entry '{}': '{}' depends on memory that nothing wrote", entry.name(),
                             results[number].first);
    }
  }
  return "";
}

bool tryPlan(const char *path) {
  for (uint32_t variant = 0, variants = 1; variant < variants; ++variant) {
    auto reader = plan::PlanReader::open(path);
    std::string problem = reader.ok() ? "" : reader.message();
    if (problem.empty()) {
      if (variants = static_cast<uint32_t>(std::max(1, reader->plan().variants_size()));
          reader->plan().variants_size() > 0)
        reader->selectVariant(variant);
      if (auto problems = plan::verifyPlan(reader->plan(), 1); !problems.empty()) {
        problem = problems.front();
      } else if (Status status = runtime::checkLevel(reader->plan().target()); !status.ok()) {
        fmt::print("{}: left out: {}\n", path, status.message());
        continue;
      } else {
        problem = tryProgram(*reader);
      }
    }
    if (!problem.empty()) {
      fmt::print(stderr, "{}: {}\n", path, problem);
      return false;
    }
  }
  fmt::print("{}: every access is inside its operand\n", path);
  return true;
}
} // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    fmt::print(stderr, "isolated-plans PLAN...\n");
    return 2;
  }
  nameFaults();
  bool good = true;
  for (int i = 1; i < argc; ++i)
    good &= tryPlan(argv[i]);
  return good ? 0 : 1;
}
