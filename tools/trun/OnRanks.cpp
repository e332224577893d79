//===- OnRanks.cpp - a command that several ranks carry out --------------===//
#include "tools/trun/OnRanks.h"
#include "runtime/parallel/Collectives.h"
#include "runtime/parallel/EnvironmentPlace.h"
#include "runtime/parallel/Mpi.h"
#include "runtime/parallel/NullGroup.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/trun/RankProcesses.h"

#include <cstdio>
#include <cstdlib>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

/// This process as one rank of its job.
static Status asRank(const RankPlace &place, std::unique_ptr<Links> links,
                     const std::function<Status(const OwnRank &)> &body) {
  auto made = makeCommunicator(std::move(links));
  if (!made)
    return made.status();
  const std::unique_ptr<Communicator> ranks = made.take();
  Status status = body({.ranks = ranks.get(),
                        .localRank = place.localRank,
                        .sharers = place.launched || place.bound ? 1 : std::max(place.localSize, 1u)});
  if (place.rank == 0)
    return status;
  if (status.ok())
    return status;
  // Rank 0 prints every failure except its own death, and failures that all ranks detect. An error that it sent to the
  // others begins with its name and a colon.
  const std::optional<std::string> failure = ranks->failure();
  const std::string first = ranks->describe(0);
  const bool told = place.launched || !failure || !failure->starts_with(first) || failure->starts_with(first + ": ") ||
                    status.message().find(*failure) == std::string::npos;
  return Status(told ? "" : fmt::format("rank {}: {}", place.rank, status.message()), status.code());
}

static Status connected(RankPlace place, const JobOptions &options, const std::function<Status(const OwnRank &)> &body) {
  // Jobs with the same secret, or without one, are distinguished by their run folder, which all ranks of a job share.
  if (!options.run.empty())
    place.job += fmt::format("{}the run {}", place.job.empty() ? "" : ", ", options.run);
  place.trust.insecure = options.insecureRanks;
  if (!options.quiet)
    place.note = [](const std::string &text) { printMessage("trun: note: {}\n", text); };
  constexpr double kSeconds = 120;
  bool told = false;
  auto links = connectRanks(place, kSeconds, &told);
  if (!links && told)
    return Status("", links.status().code());
  return links ? asRank(place, links.take(), body) : links.status();
}

/// This process as one that MPI started.
static Status byMpi(const MpiStart &start, const std::function<Status(const OwnRank &)> &body) {
  std::atexit([] {
    std::fflush(nullptr);
    endMpi();
  });
  auto job = joinMpi(start);
  Status status = !job         ? job.status()
                  : job->links ? asRank(job->place, std::move(job->links), body)
                               : body({});
  if (Status left = leaveMpi(exitStatusOf(status)); !left.ok())
    printMessage("trun: warning: {}\n", left.message());
  return status;
}

Status tcc::tools::onRanks(const JobOptions &options, const std::function<Status(const OwnRank &)> &body) {
  auto given = placeFromEnvironment();
  if (!given)
    return given.status();
  const uint32_t processes = std::max(options.processes, 1u);
  if (*given && (*given)->size > 1 && options.processes > 1)
    return Status(
        fmt::format("--nproc {}: this process is rank {} of {} of a job already (RANK, WORLD_SIZE); leave --nproc "
                    "out",
                    processes, (*given)->rank, (*given)->size),
        StatusCode::Usage);
  if (*given && (*given)->size > 1 && options.device == "null")
    return Status("--device null: one process checks what every rank does; start it once, with --nproc", StatusCode::Usage);
  if (*given && (*given)->size > 1)
    return connected(**given, options, body);
  // torchrun's variables take precedence: they may be set on purpose, whereas MPI's always come with its launcher.
  const std::optional<MpiStart> mpi = *given ? std::nullopt : mpiFromEnvironment();
  if (mpi && mpi->size.value_or(2) > 1) {
    if (processes > 1)
      return Status(
          fmt::format("--nproc {}: MPI started this process as a rank of a job already ({}); leave --nproc out",
                      processes, mpi->variable),
          StatusCode::Usage);
    if (options.device == "null")
      return Status("--device null: one process checks what every rank does; start it once, with --nproc", StatusCode::Usage);
    return byMpi(*mpi, body);
  }
  if (processes == 1)
    return body({});
  if (options.device == "null") { // nothing is computed: one process checks what a rank does
    auto group = makeNullGroup(processes);
    return body({.ranks = group.front().get()});
  }
  auto started = startRanks(processes);
  if (!started)
    return started.status();
  if (started->place)
    return connected(*started->place, options, body);
  // Rank 0 reports the failures that it sees, but not its own death.
  const bool silent = started->problem.empty() || !started->problem.starts_with("rank 0 ");
  return started->exitStatus == kExitDone ? Status() : Status(silent ? "" : started->problem, statusCodeOf(started->exitStatus));
}
