//===- NcclProbes.cpp - beliefs about NCCL -------------------------------===//
//
// Probes of one rank, so that a machine with a single card can run them: how operations behave in streams, captures and
// groups, and what the library refuses. faults/NcclFaultsTest.cpp tests several ranks.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/Probe.h"

#include <cstring>

using namespace tcc::probes;

namespace {

/// A communicator of one rank.
struct Alone {
  Program &p;
  ncclComm_t communicator = nullptr;

  explicit Alone(Program &program) : p(program) {
    ncclUniqueId id{};
    EXPECT(nccl.getUniqueId(&id) == ncclSuccess);
    EXPECT(nccl.commInitRank(&communicator, 1, id, 0) == ncclSuccess);
  }
  Alone(const Alone &) = delete;
  Alone &operator=(const Alone &) = delete;
  ~Alone() {
    cu.ctxSynchronize();
    EXPECT(nccl.commAbort(communicator) == ncclSuccess);
  }

  static void *at(CUdeviceptr address) { return reinterpret_cast<void *>(address); }
  ncclResult_t sum(CUdeviceptr from, CUdeviceptr to, CUstream stream = nullptr, size_t count = 64) const {
    return nccl.allReduce(at(from), at(to), count, ncclFloat32, ncclSum, communicator, stream ? stream : p.stream);
  }
};

} // namespace

PROBE(NcclVersionHasThreeParts, "NCCL API: ncclGetVersion") {
  int version = 0;
  EXPECT(nccl.getVersion(&version) == ncclSuccess);
  EXPECT(version >= 21600 && version < 100000);
}
PROBE(NcclIdsDiffer, "NCCL API: ncclGetUniqueId") {
  ncclUniqueId one{}, other{};
  EXPECT(nccl.getUniqueId(&one) == ncclSuccess && nccl.getUniqueId(&other) == ncclSuccess);
  EXPECT(std::memcmp(&one, &other, sizeof one) != 0);
}
PROBE(NcclKnowsItsRanks, "NCCL API: ncclCommCount, ncclCommUserRank") {
  Alone x(p);
  int ranks = 0, rank = -1;
  EXPECT(nccl.commCount(x.communicator, &ranks) == ncclSuccess && ranks == 1);
  EXPECT(nccl.commUserRank(x.communicator, &rank) == ncclSuccess && rank == 0);
}
PROBE(NcclRefusesARankBehindTheLast, "NCCL API: ncclCommInitRank, rank is between 0 and nranks-1") {
  ncclUniqueId id{};
  ncclComm_t communicator = nullptr;
  EXPECT(nccl.getUniqueId(&id) == ncclSuccess);
  EXPECT(nccl.commInitRank(&communicator, 1, id, 1) == ncclInvalidArgument);
}
PROBE(NcclIsHealthyWithoutErrors, "NCCL API: ncclCommGetAsyncError") {
  Alone x(p);
  ncclResult_t state = ncclInternalError;
  EXPECT(x.sum(p.a, p.b) == ncclSuccess);
  EXPECT(nccl.commGetAsyncError(x.communicator, &state) == ncclSuccess && state == ncclSuccess);
}
PROBE(NcclOperationsAreWorkOfTheirStream, "Using NCCL: CUDA Stream Semantics") {
  Alone x(p);
  p.launch(p.store7, p.a);
  EXPECT(x.sum(p.a, p.b) == ncclSuccess);
  p.launch(p.add1, p.b);
  EXPECT(p.word(p.b) == 8 && p.word(p.a) == 7);
}
PROBE(NcclEventsOrderOperations, "Using NCCL: CUDA Stream Semantics") {
  Alone x(p);
  p.launch(p.store7, p.a);
  cu.eventRecord(p.event, p.stream);
  cu.streamWaitEvent(p.other, p.event, 0);
  EXPECT(x.sum(p.a, p.a, p.other) == ncclSuccess);
  cu.eventRecord(p.event, p.other);
  cu.streamWaitEvent(p.stream, p.event, 0);
  p.launch(p.add1, p.a);
  EXPECT(p.word(p.a) == 8);
}
PROBE(NcclNothingToDoIsDone, "seen in NCCL: an operation of 0 elements returns at once") {
  Alone x(p);
  EXPECT(nccl.allReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, x.communicator, p.stream) == ncclSuccess);
}
PROBE(NcclRefusesARootThatIsNoRank, "NCCL API: ncclBroadcast, root is one of the ranks") {
  Alone x(p);
  EXPECT(nccl.broadcast(x.at(p.a), x.at(p.a), 64, ncclFloat32, 1, x.communicator, p.stream) == ncclInvalidArgument);
}
PROBE(NcclRefusesATypeThatIsNone, "NCCL API: ncclDataType_t") {
  Alone x(p);
  EXPECT(nccl.allReduce(x.at(p.a), x.at(p.a), 1, static_cast<ncclDataType_t>(99), ncclSum, x.communicator, p.stream) ==
         ncclInvalidArgument);
}
PROBE(NcclMovesBytes, "NCCL API: ncclInt8; Using NCCL: In-place Operations") {
  Alone x(p);
  p.launch(p.store7, p.a);
  EXPECT(nccl.broadcast(x.at(p.a), x.at(p.a), 256, ncclInt8, 0, x.communicator, p.stream) == ncclSuccess);
  EXPECT(nccl.allGather(x.at(p.a), x.at(p.b), 256, ncclInt8, x.communicator, p.stream) == ncclSuccess);
  EXPECT(nccl.allGather(x.at(p.b), x.at(p.b), 256, ncclInt8, x.communicator, p.stream) == ncclSuccess);
  EXPECT(p.word(p.b) == 7);
}
PROBE(NcclReducesToARoot, "NCCL API: ncclReduce, ncclReduceScatter") {
  Alone x(p);
  p.launch(p.store7, p.a);
  EXPECT(nccl.reduce(x.at(p.a), x.at(p.b), 64, ncclFloat32, ncclSum, 0, x.communicator, p.stream) == ncclSuccess);
  EXPECT(nccl.reduceScatter(x.at(p.b), x.at(p.c), 64, ncclFloat32, ncclSum, x.communicator, p.stream) == ncclSuccess);
  EXPECT(p.word(p.c) == 7);
}
PROBE(NcclSumsEachType, "NCCL API: ncclDataType_t") {
  Alone x(p);
  p.launch(p.store7, p.a);
  for (ncclDataType_t type : {ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64})
    EXPECT(nccl.allReduce(x.at(p.a), x.at(p.b), 8, type, ncclSum, x.communicator, p.stream) == ncclSuccess);
  EXPECT(p.word(p.b) == 7);
}
// It is left open whether a call in a group submits its operation: with one rank it does, with several the group's end
// does.
PROBE(NcclGroupsAreDoneBehindTheirEnd, "Using NCCL: Group Calls, Aggregated Operations") {
  Alone x(p);
  p.launch(p.store7, p.a);
  EXPECT(nccl.groupStart() == ncclSuccess);
  EXPECT(x.sum(p.a, p.b) == ncclSuccess);
  EXPECT(x.sum(p.a, p.c) == ncclSuccess);
  EXPECT(nccl.groupEnd() == ncclSuccess);
  EXPECT(p.word(p.b) == 7 && p.word(p.c) == 7);
}
PROBE(NcclGroupsEndOnce, "seen in NCCL: ncclGroupEnd without ncclGroupStart is an invalid usage") {
  Alone x(p);
  EXPECT(nccl.groupEnd() == ncclInvalidUsage);
}
PROBE(NcclGroupsKeepTheErrorOfACall, "Using NCCL: Group Calls; seen in NCCL: the end returns it") {
  Alone x(p);
  EXPECT(nccl.groupStart() == ncclSuccess);
  EXPECT(nccl.broadcast(x.at(p.a), x.at(p.a), 64, ncclFloat32, 5, x.communicator, p.stream) == ncclInvalidArgument);
  EXPECT(nccl.groupEnd() != ncclSuccess);
}
PROBE(NcclOperationsAreCaptured, "Using NCCL: Using NCCL with CUDA Graphs") {
  Alone x(p);
  CUgraph graph = p.capture([&] {
    p.launch(p.add1, p.a);
    EXPECT(x.sum(p.a, p.b) == ncclSuccess);
    p.launch(p.add1, p.b);
  });
  EXPECT(p.word(p.b) == 0);
  CUgraphExec executable = p.instantiate(graph);
  EXPECT(cu.graphDestroy(graph) == CUDA_SUCCESS);
  for (unsigned launch = 1; launch <= 3; ++launch) {
    EXPECT(cu.graphLaunch(executable, p.stream) == CUDA_SUCCESS);
    EXPECT(p.word(p.b) == launch + 1);
  }
  EXPECT(cu.graphExecDestroy(executable) == CUDA_SUCCESS);
}
PROBE(NcclForksInACaptureAreJoined, "Using NCCL with CUDA Graphs: Capture modes; CUDA: thread-local captures") {
  Alone x(p);
  EXPECT(cu.streamBeginCapture(p.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  p.launch(p.store7, p.a);
  EXPECT(cu.eventRecord(p.event, p.stream) == CUDA_SUCCESS);
  EXPECT(cu.streamWaitEvent(p.other, p.event, 0) == CUDA_SUCCESS);
  EXPECT(x.sum(p.a, p.a, p.other) == ncclSuccess);
  EXPECT(cu.eventRecord(p.event, p.other) == CUDA_SUCCESS);
  p.launch(p.store7, p.b); // beside it
  EXPECT(cu.streamWaitEvent(p.stream, p.event, 0) == CUDA_SUCCESS);
  p.launch(p.add1, p.a);
  CUgraph graph = nullptr;
  EXPECT(cu.streamEndCapture(p.stream, &graph) == CUDA_SUCCESS);
  CUgraphExec executable = p.instantiate(graph);
  EXPECT(cu.graphDestroy(graph) == CUDA_SUCCESS);
  EXPECT(cu.graphLaunch(executable, p.stream) == CUDA_SUCCESS);
  EXPECT(p.word(p.a) == 8 && p.word(p.b) == 7);
  EXPECT(cu.graphExecDestroy(executable) == CUDA_SUCCESS);
}
PROBE(NcclEagerOperationsRunBesideCapturedOnes, "Using NCCL with CUDA Graphs: any combination is supported") {
  Alone x(p);
  p.launch(p.store7, p.a);
  CUgraph graph = p.capture([&] { EXPECT(x.sum(p.a, p.b) == ncclSuccess); });
  CUgraphExec executable = p.instantiate(graph);
  EXPECT(cu.graphDestroy(graph) == CUDA_SUCCESS);
  EXPECT(cu.graphLaunch(executable, p.stream) == CUDA_SUCCESS);
  EXPECT(x.sum(p.b, p.c) == ncclSuccess);
  EXPECT(cu.graphLaunch(executable, p.stream) == CUDA_SUCCESS);
  EXPECT(p.word(p.c) == 7);
  EXPECT(cu.graphExecDestroy(executable) == CUDA_SUCCESS);
}
PROBE(NcclEndsAfterItsGraphs, "NCCL API: ncclCommDestroy, ncclCommAbort; seen in NCCL: both wait for the graphs") {
  for (bool destroys : {false, true}) {
    ncclUniqueId id{};
    ncclComm_t communicator = nullptr;
    EXPECT(nccl.getUniqueId(&id) == ncclSuccess);
    EXPECT(nccl.commInitRank(&communicator, 1, id, 0) == ncclSuccess);
    CUgraph graph = p.capture([&] {
      EXPECT(nccl.allReduce(Alone::at(p.a), Alone::at(p.b), 64, ncclFloat32, ncclSum, communicator, p.stream) ==
             ncclSuccess);
    });
    CUgraphExec executable = p.instantiate(graph);
    EXPECT(cu.graphLaunch(executable, p.stream) == CUDA_SUCCESS);
    EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
    EXPECT(cu.graphExecDestroy(executable) == CUDA_SUCCESS && cu.graphDestroy(graph) == CUDA_SUCCESS);
    EXPECT((destroys ? nccl.commDestroy : nccl.commAbort)(communicator) == ncclSuccess);
  }
}
