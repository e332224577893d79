//===- NcclScene.h - ranks of NCCL in a test -----------------------------===//
//
// A rank is a process: a scene on a device of its own, and a communicator of all ranks.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_FAULTS_NCCLSCENE_H
#define TCC_TEST_EMULATION_FAULTS_NCCLSCENE_H

#include "test/emulation/faults/BlasScene.h"

#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace tcc::emulation {

/// The argument of a rank's program.
struct Rank {
  Scene &scene;
  uint32_t number, size;
  ncclComm_t communicator = nullptr;
  bool wrong = false;
  std::string problems; ///< failed expectations, one a line

  void expect(bool holds, const char *what) {
    if (!holds)
      problems += std::string(what) + "\n";
  }
  /// All-reduces `count` numbers of f32 in place.
  ncclResult_t sum(CUdeviceptr at, size_t count, CUstream stream) const {
    return ncclAllReduce(pointer(at), pointer(at), count, ncclFloat32, ncclSum, communicator, stream);
  }
  static void *pointer(CUdeviceptr address) { return reinterpret_cast<void *>(address); }
};
using RankProgram = std::function<void(Rank &)>;

/// Runs a program on every rank. Returns the names of all faults, each once, and the failed expectations.
inline std::string runRanks(uint32_t size, uint64_t seed, bool wrong, const RankProgram &program, int devices = 16) {
  const ncclUniqueId id = NcclMeeting::makeId();
  std::vector<std::pair<pid_t, int>> children;
  for (uint32_t number = 0; number < size; ++number) {
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0)
      return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      std::string said;
      {
        Scene scene(seed, static_cast<int>(number) % devices);
        Rank rank{scene, number, size, nullptr, false, {}};
        rank.wrong = wrong;
        if (ncclCommInitRank(&rank.communicator, static_cast<int>(size), id, static_cast<int>(number)) == ncclSuccess)
          program(rank);
        if (standIn().communicators.find(rank.communicator) && scene.leaves != "communicator")
          ncclCommAbort(rank.communicator);
        scene.close();
        said = Scene::faults() + "\n" + rank.problems;
      }
      (void)!::write(ends[1], said.data(), said.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  std::set<std::string> names;
  std::string problems;
  for (auto &[child, end] : children) {
    std::string said;
    char buffer[4096];
    for (ssize_t got; (got = ::read(end, buffer, sizeof buffer)) > 0;)
      said.append(buffer, static_cast<size_t>(got));
    ::close(end);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status))
      problems += "a rank was ended by a signal\n";
    const size_t line = said.find('\n');
    for (size_t at = 0; at < line;) {
      const size_t space = std::min(said.find(' ', at), line);
      names.insert(said.substr(at, space - at));
      at = space + 1;
    }
    problems += said.substr(std::min(said.size(), line + 1));
  }
  std::string all;
  for (const std::string &name : names)
    all += (all.empty() ? "" : " ") + name;
  return problems.empty() ? all : all + "\n" + problems;
}

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_FAULTS_NCCLSCENE_H
