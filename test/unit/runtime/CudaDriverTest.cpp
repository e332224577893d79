//===- CudaDriverTest.cpp - the declarations of CUDA's driver ------------===//
//
// Where the machine has CUDA's own header, every entry point, constant and type that we declare is compared with it when
// this file is compiled.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/BlasLibrary.h"
#include "runtime/cuda/Card.h"
#include "runtime/cuda/DriverLibrary.h"

#include <gtest/gtest.h>

#ifdef TCC_REAL_CUDA_HEADER
// The header maps this name to its newest version, whose types are the same.
#define cuEventElapsedTime cuEventElapsedTime_v2
#include TCC_REAL_CUDA_HEADER
#endif
#ifdef TCC_REAL_BLASLT_HEADER
#include TCC_REAL_BLASLT_HEADER
#endif

using namespace tcc;

#ifdef TCC_REAL_CUDA_HEADER
namespace {
/// Two types that a call passes alike: handles are pointers to structs of the library's own.
template <typename Ours, typename Real> constexpr bool alike() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Real>) {
    using Target = std::remove_pointer_t<Ours>;
    using RealTarget = std::remove_pointer_t<Real>;
    if constexpr (std::is_const_v<Target> != std::is_const_v<RealTarget>)
      return false;
    else if constexpr (std::is_class_v<Target> || std::is_class_v<RealTarget>)
      return std::is_class_v<Target> && std::is_class_v<RealTarget>;
    else
      return alike<std::remove_cv_t<Target>, std::remove_cv_t<RealTarget>>();
  } else if constexpr (std::is_enum_v<Ours>) {
    return std::is_enum_v<Real> && sizeof(Ours) == sizeof(Real);
  } else {
    return std::is_same_v<Ours, Real>;
  }
}
template <typename Ours, typename Real> struct Signature : std::false_type {};
template <typename OurStatus, typename... Ours, typename RealStatus, typename... Real>
struct Signature<OurStatus (*)(Ours...), RealStatus (*)(Real...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(Ours) == sizeof...(Real))
      return alike<OurStatus, RealStatus>() && (alike<Ours, Real>() && ...);
    else
      return false;
  }
  static constexpr bool value = compare();
};
#ifdef TCC_REAL_BLASLT_HEADER
#define TCC_SAME_BLASLT(member, symbol, parameters)                                                                    \
  static_assert(Signature<decltype(cuda::api::BlasLt::member), decltype(&::symbol)>::value, #symbol);
TCC_BLASLT_ENTRY_POINTS(TCC_SAME_BLASLT)
#define TCC_SAME_BLAS_VALUE(name) static_assert(int(cuda::api::name) == int(::name));
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_SUCCESS)
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_NOT_INITIALIZED)
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_ALLOC_FAILED)
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_INVALID_VALUE)
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_ARCH_MISMATCH)
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_EXECUTION_FAILED)
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_INTERNAL_ERROR)
TCC_SAME_BLAS_VALUE(CUBLAS_STATUS_NOT_SUPPORTED)
TCC_SAME_BLAS_VALUE(CUBLAS_COMPUTE_32F)
TCC_SAME_BLAS_VALUE(CUBLAS_COMPUTE_64F)
TCC_SAME_BLAS_VALUE(CUBLAS_COMPUTE_32F_FAST_TF32)
TCC_SAME_BLAS_VALUE(CUDA_R_32F)
TCC_SAME_BLAS_VALUE(CUDA_R_64F)
TCC_SAME_BLAS_VALUE(CUDA_R_16F)
TCC_SAME_BLAS_VALUE(CUDA_R_16BF)
TCC_SAME_BLAS_VALUE(CUBLAS_OP_N)
TCC_SAME_BLAS_VALUE(CUBLAS_OP_T)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_DESC_TRANSA)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_DESC_TRANSB)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_DESC_BIAS_POINTER)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_DEFAULT)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_BIAS)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_GELU_BIAS)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_DGELU)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_DGELU_BGRAD)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_BGRADA)
TCC_SAME_BLAS_VALUE(CUBLASLT_EPILOGUE_BGRADB)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
TCC_SAME_BLAS_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
TCC_SAME_BLAS_VALUE(CUBLASLT_REDUCTION_SCHEME_NONE)
TCC_SAME_BLAS_VALUE(CUBLASLT_REDUCTION_SCHEME_INPLACE)
TCC_SAME_BLAS_VALUE(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
TCC_SAME_BLAS_VALUE(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)
TCC_SAME_BLAS_VALUE(CUBLASLT_ALGO_CONFIG_ID)
TCC_SAME_BLAS_VALUE(CUBLASLT_ALGO_CONFIG_TILE_ID)
TCC_SAME_BLAS_VALUE(CUBLASLT_ALGO_CONFIG_SPLITK_NUM)
TCC_SAME_BLAS_VALUE(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)
static_assert(sizeof(cuda::api::cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
static_assert(sizeof(cuda::api::cublasLtMatmulHeuristicResult_t) == sizeof(::cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(cuda::api::cublasLtMatmulHeuristicResult_t, workspaceSize) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cuda::api::cublasLtMatmulHeuristicResult_t, state) == offsetof(::cublasLtMatmulHeuristicResult_t, state));
#endif

#define TCC_SAME_ENTRY_POINT(member, symbol, parameters)                                                               \
  static_assert(Signature<decltype(cuda::api::Driver::member), decltype(&::symbol)>::value, #symbol);
TCC_CUDA_ENTRY_POINTS(TCC_SAME_ENTRY_POINT)

#define TCC_SAME_VALUE(name) static_assert(int(cuda::api::name) == int(::name));
TCC_SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY)
TCC_SAME_VALUE(CUDA_ERROR_STUB_LIBRARY)
TCC_SAME_VALUE(CUDA_ERROR_NO_DEVICE)
TCC_SAME_VALUE(CUDA_ERROR_INVALID_IMAGE)
TCC_SAME_VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU)
TCC_SAME_VALUE(CUDA_ERROR_INVALID_PTX)
TCC_SAME_VALUE(CUDA_ERROR_JIT_COMPILER_NOT_FOUND)
TCC_SAME_VALUE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
TCC_SAME_VALUE(CUDA_ERROR_INVALID_HANDLE)
TCC_SAME_VALUE(CUDA_ERROR_NOT_FOUND)
TCC_SAME_VALUE(CUDA_ERROR_NOT_READY)
TCC_SAME_VALUE(CUDA_ERROR_ILLEGAL_ADDRESS)
TCC_SAME_VALUE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
TCC_SAME_VALUE(CUDA_ERROR_LAUNCH_TIMEOUT)
TCC_SAME_VALUE(CUDA_ERROR_CONTEXT_IS_DESTROYED)
TCC_SAME_VALUE(CUDA_ERROR_MISALIGNED_ADDRESS)
TCC_SAME_VALUE(CUDA_ERROR_LAUNCH_FAILED)
TCC_SAME_VALUE(CUDA_ERROR_NOT_SUPPORTED)
TCC_SAME_VALUE(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
TCC_SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
TCC_SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
TCC_SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
TCC_SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
TCC_SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
TCC_SAME_VALUE(CUDA_ERROR_CAPTURED_EVENT)
TCC_SAME_VALUE(CUDA_ERROR_UNKNOWN)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_WARP_SIZE)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
TCC_SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
TCC_SAME_VALUE(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
TCC_SAME_VALUE(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
TCC_SAME_VALUE(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
TCC_SAME_VALUE(CU_FUNC_ATTRIBUTE_NUM_REGS)
TCC_SAME_VALUE(CU_JIT_INFO_LOG_BUFFER)
TCC_SAME_VALUE(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
TCC_SAME_VALUE(CU_JIT_ERROR_LOG_BUFFER)
TCC_SAME_VALUE(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
TCC_SAME_VALUE(CU_STREAM_NON_BLOCKING)
TCC_SAME_VALUE(CU_EVENT_DISABLE_TIMING)
TCC_SAME_VALUE(CU_STREAM_CAPTURE_MODE_GLOBAL)
TCC_SAME_VALUE(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
TCC_SAME_VALUE(CU_STREAM_CAPTURE_MODE_RELAXED)
static_assert(cuda::api::kMemHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
} // namespace
#endif

TEST(CudaCode, SaysWhatItNeeds) {
  auto needs = cuda::needsOf(".version 8.7\n.target sm_120\n.address_size 64\n");
  ASSERT_TRUE(needs.ok()) << needs.message();
  EXPECT_EQ(needs->version, 87);
  EXPECT_EQ(needs->capability, 120);
  for (const char *text : {"", ".version 8.0\n", ".target sm_90\n", ".version x\n.target sm_90\n", "\x7f" "ELF"})
    EXPECT_NE(cuda::needsOf(text).message().find("no PTX"), std::string::npos) << text;
}

TEST(CudaCode, NamesTheDriverThatReadsIt) {
  EXPECT_EQ(cuda::driverFor(80), 12000);
  EXPECT_EQ(cuda::driverFor(87), 12080);
  EXPECT_GT(cuda::driverFor(99), cuda::driverFor(90));
  EXPECT_EQ(cuda::versionText(12080), "12.8");
  EXPECT_EQ(cuda::capabilityOf("sm_90"), 90);
  EXPECT_EQ(cuda::capabilityOf("gfx90a"), 0);
}
