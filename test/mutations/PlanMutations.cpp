//===- PlanMutations.cpp - changed plans are refused or run inside their buffers -===//
//
// Takes plans, changes each at random by reflection, gives it good checksums again, and tries it (Case.h). The seed is
// printed; the same seed and plans give the same cases.
//
//===----------------------------------------------------------------------===//
#include "test/mutations/Case.h"
#include "test/mutations/ChangedPlan.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <map>

using namespace tcc;

namespace {
constexpr const char *kUsage =
    "plan-mutations [--rounds N] [--seconds N] [--seed N] [--memory BYTES] [--keep FOLDER] [--accepted] PLAN...\n"
    "plan-mutations --replay PLAN...\n"
    "  --rounds    cases of each plan (100)\n"
    "  --seconds   stop after so long (no limit)\n"
    "  --memory    address space of a case (4 GiB); 0: no limit, for sanitizers\n"
    "  --keep      writes findings there\n"
    "  --accepted  lists which changes were accepted and ran\n"
    "  --replay    tries the plans as they are\n";

struct Options {
  uint64_t rounds = 100, seconds = 0, seed = 1, memory = uint64_t(4) << 30;
  std::string keep;
  bool accepted = false, replay = false;
  std::vector<std::string> plans;
};

std::optional<Options> parse(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    auto number = [&](uint64_t &value) {
      char *rest = nullptr;
      if (++i < argc)
        value = std::strtoull(argv[i], &rest, 10);
      return rest && *rest == 0 && rest != argv[i];
    };
    bool good = true;
    if (word == "--rounds")
      good = number(options.rounds);
    else if (word == "--seconds")
      good = number(options.seconds);
    else if (word == "--seed")
      good = number(options.seed);
    else if (word == "--memory")
      good = number(options.memory);
    else if (word == "--keep" && i + 1 < argc)
      options.keep = argv[++i];
    else if (word == "--accepted")
      options.accepted = true;
    else if (word == "--replay")
      options.replay = true;
    else if (word.starts_with("--"))
      good = false;
    else
      options.plans.push_back(word);
    if (!good)
      return std::nullopt;
  }
  return options.plans.empty() ? std::nullopt : std::optional(options);
}

/// The kind of a change: "entries[3].buffers[7].offset: is 64" → "entries.buffers.offset: is".
std::string kindOf(const std::string &change) {
  std::string kind;
  bool inside = false;
  for (char c : change.substr(0, change.find(' ', change.find(':') + 2))) {
    inside |= c == '[';
    if (!inside)
      kind += c;
    inside &= c != ']';
  }
  return kind;
}

const char *nameOf(test::Outcome outcome) {
  switch (outcome) {
  case test::Outcome::Ran:
    return "ran";
  case test::Outcome::RefusedByReader:
    return "refused by the reader";
  case test::Outcome::RefusedByVerifier:
    return "refused by the verifier";
  case test::Outcome::RefusedByDevice:
    return "refused by the device";
  case test::Outcome::Finding:
    return "FINDING";
  }
  return "";
}

class Session {
public:
  explicit Session(const Options &options) : options(options) {
    std::string folder = (std::filesystem::temp_directory_path() / "plan-mutations-XXXXXX").string();
    if (!::mkdtemp(folder.data()))
      std::abort();
    caseOptions.folder = folder;
    caseOptions.memoryBytes = options.memory;
  }
  ~Session() { std::filesystem::remove_all(caseOptions.folder); }

  bool replay(const std::string &path) {
    auto source = test::PlanSource::read(path);
    if (!source)
      return false;
    test::CaseResult result = test::tryPlan(source->file(), caseOptions);
    fmt::print("{}: {}{}{}\n", path, nameOf(result.outcome), result.message.empty() ? "" : ": ", result.message);
    return result.outcome != test::Outcome::Finding;
  }

  /// Runs the unchanged plan, which must succeed, and then changed copies.
  bool run(const std::string &path) {
    auto source = test::PlanSource::read(path);
    if (!source)
      return false;
    test::CaseResult whole = test::tryPlan(source->file(), caseOptions);
    if (whole.outcome != test::Outcome::Ran) {
      fmt::print("{}: unchanged, it is {}: {}\n", path, nameOf(whole.outcome), whole.message);
      return false;
    }
    bool good = true;
    for (uint64_t round = 0; round < options.rounds && !isOver(); ++round) {
      std::mt19937_64 random(options.seed * 1'000'003 + round);
      test::ChangedPlan changed = test::changePlan(*source, random);
      caseOptions.seed = random();
      test::CaseResult result = test::tryPlan(changed.bytes, caseOptions);
      ++counts[result.outcome];
      if (result.outcome == test::Outcome::Ran)
        for (const std::string &one : changed.changes)
          ++kinds[kindOf(one)];
      if (result.outcome != test::Outcome::Finding)
        continue;
      good = false;
      fmt::print("{}, round {}: {}\n", source->name, round, result.message);
      for (const std::string &one : changed.changes)
        fmt::print("  {}\n", one);
      if (!options.keep.empty())
        if (auto status = plan::PlanWriter::writeBytes(
                changed.bytes, fmt::format("{}/{}-{}-{}.tplan", options.keep, source->name, options.seed, round));
            !status.ok())
          fmt::print("{}\n", status.message());
    }
    return good;
  }

  void summarize() {
    uint64_t all = 0;
    for (const auto &[outcome, count] : counts)
      all += count;
    fmt::print("seed {}: {} changed plans", options.seed, all);
    for (test::Outcome outcome : {test::Outcome::RefusedByReader, test::Outcome::RefusedByVerifier,
                                  test::Outcome::RefusedByDevice, test::Outcome::Ran, test::Outcome::Finding})
      fmt::print(", {} {}", counts[outcome], nameOf(outcome));
    fmt::print("\n");
    if (options.accepted)
      for (const auto &[kind, count] : kinds)
        fmt::print("{:6} {}\n", count, kind);
  }

private:
  bool isOver() const {
    return options.seconds && std::chrono::steady_clock::now() - began > std::chrono::seconds(options.seconds);
  }

  const Options &options;
  test::CaseOptions caseOptions;
  std::map<test::Outcome, uint64_t> counts;
  std::map<std::string, uint64_t> kinds;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};
} // namespace

int main(int argc, char **argv) {
  auto options = parse(argc, argv);
  if (!options) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  Session session(*options);
  bool good = true;
  for (const std::string &path : options->plans)
    good &= options->replay ? session.replay(path) : session.run(path);
  if (!options->replay)
    session.summarize();
  return good ? 0 : 1;
}
