//===- Nccl.h - the part of NCCL that we call ----------------------------===//
//
// Types, constants and entry points of libnccl.so.2, declared from the documentation (NCCL, "NCCL API", 2.16 and
// later), so that the runtime is built on machines without it. Names are those of the documentation, in a namespace of
// their own; NcclDeclarations.cpp compares them with the real header where the machine has it.
//
// TCC_NCCL_ENTRY_POINTS is the list: X(member, symbol, parameters). Every entry point of it returns an ncclResult_t.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_API_NCCL_H
#define TCC_RUNTIME_CUDA_API_NCCL_H

#include "runtime/cuda/api/Driver.h"

#include <cstddef>

namespace tcc::cuda::api {

using ncclComm_t = struct ncclComm *;

struct ncclUniqueId {
  char internal[128];
};

/// Section "Types". Other values may be returned, too.
enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclRedOp_t : int {
  ncclSum = 0,
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};

// clang-format off
#define TCC_NCCL_ENTRY_POINTS(X)                                                                                       \
  X(getVersion, ncclGetVersion, (int *version)) /* 23007 for 2.30.7 */                                                 \
  /* Communicators: one rank calls getUniqueId, all call commInitRank with its id and wait there for each other */     \
  X(getUniqueId, ncclGetUniqueId, (ncclUniqueId *id))                                                                  \
  X(commInitRank, ncclCommInitRank, (ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank))                  \
  X(commDestroy, ncclCommDestroy, (ncclComm_t communicator))                                                           \
  /* From any thread: kernels under way end. It returns once no graph holds captured operations any more */            \
  X(commAbort, ncclCommAbort, (ncclComm_t communicator))                                                               \
  X(commGetAsyncError, ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t *error))                          \
  X(commCount, ncclCommCount, (ncclComm_t communicator, int *ranks))                                                   \
  X(commUserRank, ncclCommUserRank, (ncclComm_t communicator, int *rank))                                              \
  /* Collectives: in place if both addresses are the same, of allGather and reduceScatter if one is that of this */    \
  /* rank's part of the other */                                                                                       \
  X(allReduce, ncclAllReduce,                                                                                          \
    (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,           \
     CUstream stream))                                                                                                 \
  X(reduce, ncclReduce,                                                                                                \
    (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,                          \
     ncclComm_t communicator, CUstream stream))                                                                        \
  X(broadcast, ncclBroadcast,                                                                                          \
    (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t communicator,                 \
     CUstream stream))                                                                                                 \
  X(reduceScatter, ncclReduceScatter,                                                                                  \
    (const void *from, void *to, size_t countOfARank, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,    \
     CUstream stream))                                                                                                 \
  X(allGather, ncclAllGather,                                                                                          \
    (const void *from, void *to, size_t countOfARank, ncclDataType_t type, ncclComm_t communicator, CUstream stream))  \
  /* Of one thread; operations in between are submitted by the last groupEnd, without an order of their own */         \
  X(groupStart, ncclGroupStart, ())                                                                                    \
  X(groupEnd, ncclGroupEnd, ())
// clang-format on

/// The entry points as pointers, which NcclLibrary looks up in the library.
struct Nccl {
#define TCC_NCCL_MEMBER(member, symbol, parameters) ncclResult_t(*member) parameters = nullptr;
  TCC_NCCL_ENTRY_POINTS(TCC_NCCL_MEMBER)
#undef TCC_NCCL_MEMBER
  const char *(*getErrorString)(ncclResult_t) = nullptr; ///< ncclGetErrorString
  const char *(*getLastError)(ncclComm_t) = nullptr;     ///< ncclGetLastError: of the process; the argument may be null
};

} // namespace tcc::cuda::api

#endif // TCC_RUNTIME_CUDA_API_NCCL_H
