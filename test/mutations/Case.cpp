//===- Case.cpp -----------------------------------------------------------===//
#include "test/mutations/Case.h"

#include "runtime/cpu/CpuDevice.h"
#include "runtime/plan/Verifier.h"
#include "runtime/plan/Spaces.h"
#include "runtime/state/Export.h"
#include "runtime/train/EntryRunner.h"
#include "runtime/train/Scalars.h"
#include "runtime/train/Schedule.h"
#include "test/support/isolate/IsolatedPlan.h"

#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tcc::test {

namespace {
constexpr int kStatusOf[] = {0, 10, 11, 12}; // by Outcome; any other exit status is a finding
constexpr int kFindingStatus = 99;

void limitTo(int resource, uint64_t most) {
  if (most == 0)
    return;
  rlimit limit{most, most};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

Status runOnDevice(const plan::PlanReader &reader, const CaseOptions &options, std::mt19937_64 &random) {
  auto device = runtime::createCpuDevice(reader, {"cpu", options.threads});
  if (!device)
    return device.status();
  const plan::Plan &plan = reader.plan();
  auto schedule = runtime::LearningSchedule::create(plan.training().schedule(), 100);
  if (!schedule)
    return schedule.status();
  auto scalars = runtime::ScalarBlock::create(plan.training(), schedule.take());
  if (!scalars)
    return scalars.status();
  volatile char sink = 0;
  for (const plan::Entry &entry : plan.entries()) {
    runtime::EntryRunner runner(**device, entry);
    Status status = runner.giveInputs([&](auto inputs) {
      for (std::span<std::byte> input : inputs) {
        uint64_t mask = random() % 2 ? ~uint64_t(0) : 7;
        for (std::byte &byte : input)
          byte = static_cast<std::byte>(random() & mask);
      }
      return Status();
    });
    if (status.ok())
      status = runner.giveScalars(*scalars, 1, 0);
    if (status.ok())
      status = runner.run();
    for (int i = 0; status.ok() && i < entry.outputs_size(); ++i) {
      (void)runner.scalarOutput(i);
      status = runner.streamOutput(i, [&](std::span<const std::byte> piece) {
        for (std::byte byte : piece)
          sink = sink + static_cast<char>(byte);
        return Status();
      });
    }
    if (!status.ok())
      return status;
  }
  return Status();
}

/// The sum of the sizes of the plan's buffers, in bytes; saturates.
uint64_t allBytes(const plan::Plan &plan) {
  uint64_t bytes = plan::spaceBytes(plan, plan::TRANSIENT);
  auto add = [&](uint64_t more) { bytes = bytes + more < bytes ? UINT64_MAX : bytes + more; };
  for (const plan::Entry &entry : plan.entries()) {
    add(entry.transient_bytes());
    for (const plan::Buffer &buffer : entry.buffers())
      add(buffer.bytes());
  }
  return bytes;
}
} // namespace

CaseResult tryPlanHere(const std::string &bytes, const CaseOptions &options) {
  auto reader = plan::PlanReader::fromBuffer(bytes, options.folder + "/mutated.tplan");
  if (!reader)
    return {Outcome::RefusedByReader, reader.message()};
  std::mt19937_64 random(options.seed);
  if (int variants = reader->plan().variants_size(); variants > 0)
    reader->selectVariant(static_cast<uint32_t>(random() % static_cast<uint64_t>(variants)));
  if (auto problems = plan::verifyPlan(reader->plan(), 5); !problems.empty())
    return {Outcome::RefusedByVerifier, problems.front()};
  for (const plan::Entry &entry : reader->plan().entries())
    if (std::string overlap = findOverlap(entry); !overlap.empty())
      return {Outcome::Finding, overlap};
  if (options.mostPlanBytes && allBytes(reader->plan()) > options.mostPlanBytes)
    return {Outcome::RefusedByDevice, "larger than a case may be"};
  auto isolated = IsolatedPlan::load(*reader, options.threads);
  if (!isolated)
    return {Outcome::RefusedByDevice, isolated.message()};
  for (const plan::Entry &entry : reader->plan().entries())
    if (Status status = isolated->run(entry, random); !status.ok())
      return {Outcome::RefusedByDevice, status.message()};
  if (Status status = runOnDevice(*reader, options, random); !status.ok())
    return {Outcome::RefusedByDevice, status.message()};
  runtime::ExportOptions exportOptions;
  exportOptions.planFolder = options.folder;
  for (const char *name : {"/export.safetensors", "/export.onnx"})
    (void)runtime::exportWeights(*reader, {}, options.folder + name, exportOptions); // may fail, must not fault
  return {Outcome::Ran, ""};
}

/// Runs a case in a child process and ends it. The message goes to standard error, which the parent reads.
[[noreturn]] static void runCase(const std::string &bytes, const CaseOptions &options) {
  limitTo(RLIMIT_AS, options.memoryBytes);
  limitTo(RLIMIT_CPU, options.cpuSeconds);
  limitTo(RLIMIT_CORE, 0);
  nameFaults();
  CaseResult result = tryPlanHere(bytes, options);
  fmt::print(stderr, "{}", result.message);
  std::fflush(stderr);
  ::_exit(result.outcome == Outcome::Finding ? kFindingStatus : kStatusOf[static_cast<int>(result.outcome)]);
}

CaseResult tryPlan(const std::string &bytes, const CaseOptions &options) {
  int pipes[2];
  if (::pipe2(pipes, O_CLOEXEC) != 0)
    return {Outcome::Finding, "no pipe"};
  std::fflush(stdout);
  pid_t child = ::fork();
  if (child < 0)
    return {Outcome::Finding, "no process"};
  if (child == 0) {
    ::dup2(pipes[1], STDERR_FILENO);
    runCase(bytes, options);
  }
  ::close(pipes[1]);
  std::string message;
  char buffer[4096];
  for (ssize_t got; (got = ::read(pipes[0], buffer, sizeof(buffer))) > 0;)
    if (message.size() < 1 << 16)
      message.append(buffer, static_cast<size_t>(got));
  ::close(pipes[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status))
    for (Outcome outcome :
         {Outcome::Ran, Outcome::RefusedByReader, Outcome::RefusedByVerifier, Outcome::RefusedByDevice})
      if (WEXITSTATUS(status) == kStatusOf[static_cast<int>(outcome)])
        return {outcome, message};
  std::string how = WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                        : fmt::format("exit status {}", WEXITSTATUS(status));
  return {Outcome::Finding, how + ": " + message};
}

} // namespace tcc::test
