//===- NcclDeclarations.cpp - the declarations of NCCL -------------------===//
//
// Where the machine has NCCL's own header, every entry point, constant and type that we declare is compared with it
// when this file is compiled.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/api/Nccl.h"
#include "test/unit/runtime/SameDeclarations.h"

#ifdef TCC_REAL_NCCL_HEADER
#include TCC_REAL_NCCL_HEADER

using namespace tcc;

namespace {

#define TCC_SAME_NCCL(member, symbol, parameters)                                                                      \
  static_assert(Signature<decltype(cuda::api::Nccl::member), decltype(&::symbol)>::value, #symbol);
TCC_NCCL_ENTRY_POINTS(TCC_SAME_NCCL)
static_assert(Signature<decltype(cuda::api::Nccl::getErrorString), decltype(&::ncclGetErrorString)>::value);
static_assert(Signature<decltype(cuda::api::Nccl::getLastError), decltype(&::ncclGetLastError)>::value);
static_assert(sizeof(cuda::api::ncclUniqueId) == sizeof(::ncclUniqueId));

#define TCC_SAME_NCCL_VALUE(name) static_assert(int(cuda::api::name) == int(::name));
TCC_SAME_NCCL_VALUE(ncclSuccess)
TCC_SAME_NCCL_VALUE(ncclUnhandledCudaError)
TCC_SAME_NCCL_VALUE(ncclSystemError)
TCC_SAME_NCCL_VALUE(ncclInternalError)
TCC_SAME_NCCL_VALUE(ncclInvalidArgument)
TCC_SAME_NCCL_VALUE(ncclInvalidUsage)
TCC_SAME_NCCL_VALUE(ncclRemoteError)
TCC_SAME_NCCL_VALUE(ncclInProgress)
TCC_SAME_NCCL_VALUE(ncclSum)
TCC_SAME_NCCL_VALUE(ncclInt8)
TCC_SAME_NCCL_VALUE(ncclUint8)
TCC_SAME_NCCL_VALUE(ncclInt32)
TCC_SAME_NCCL_VALUE(ncclUint32)
TCC_SAME_NCCL_VALUE(ncclInt64)
TCC_SAME_NCCL_VALUE(ncclUint64)
TCC_SAME_NCCL_VALUE(ncclFloat16)
TCC_SAME_NCCL_VALUE(ncclFloat32)
TCC_SAME_NCCL_VALUE(ncclFloat64)
TCC_SAME_NCCL_VALUE(ncclBfloat16)

} // namespace
#endif
