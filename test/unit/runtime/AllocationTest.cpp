//===- AllocationTest.cpp - running a plan allocates nothing of ours -----===//
//
// The test wraps malloc and the library functions that run during a step. An allocation counts as the library's if it
// happens during a library call on the same thread, otherwise as ours.
//
//===----------------------------------------------------------------------===//
#include "LibraryFixture.h"

#include <atomic>
#include <dlfcn.h>
#include <gtest/gtest.h>

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
}

namespace {
std::atomic<bool> counting{false};
std::atomic<size_t> ours{0}, libraryCalls{0}, largestCall{0};
thread_local bool insideLibrary __attribute__((tls_model("initial-exec"))) = false;
thread_local size_t callBytes __attribute__((tls_model("initial-exec"))) = 0;

void count(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed))
    return;
  if (insideLibrary)
    callBytes += bytes;
  else
    ours += bytes;
}

/// Marks a library call on the current thread.
struct LibraryCallScope {
  LibraryCallScope() {
    insideLibrary = true;
    callBytes = 0;
  }
  ~LibraryCallScope() {
    insideLibrary = false;
    if (!counting)
      return;
    ++libraryCalls;
    size_t largest = largestCall.load();
    while (callBytes > largest && !largestCall.compare_exchange_weak(largest, callBytes)) {
    }
  }
};
} // namespace

extern "C" {
void *malloc(size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void *calloc(size_t number, size_t bytes) {
  count(number * bytes);
  return __libc_calloc(number, bytes);
}
void *realloc(void *old, size_t bytes) {
  count(bytes);
  return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **result, size_t alignment, size_t bytes) {
  count(bytes);
  *result = __libc_memalign(alignment, bytes);
  return *result ? 0 : 12;
}

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int number,
                                     const dnnl_exec_arg_t *arguments) {
  static const auto real =
      reinterpret_cast<decltype(&dnnl_primitive_execute)>(::dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  LibraryCallScope scope;
  return real(primitive, stream, number, arguments);
}

dnnl_status_t dnnl_memory_set_data_handle_v2(dnnl_memory_t memory, void *handle, dnnl_stream_t stream) {
  static const auto real =
      reinterpret_cast<decltype(&dnnl_memory_set_data_handle_v2)>(::dlsym(RTLD_NEXT, "dnnl_memory_set_data_handle_v2"));
  LibraryCallScope scope; // with a new address the library zeroes the padding of a blocked layout
  return real(memory, handle, stream);
}
} // extern "C"

using namespace tcc;
using namespace tcc::test;

namespace {
constexpr size_t kMostOfACall = 1024; ///< bytes that the library may allocate in a call

/// Runs a call several times, and counts allocations during the last one.
template <typename Call>
void check(const std::string &what, Call call, size_t first, size_t second, size_t result, unsigned threads) {
  auto needs = test::query(call);
  ASSERT_TRUE(needs.ok()) << what << ": " << needs.message();
  auto runner = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, threads), threads);
  ASSERT_TRUE(runner.ok()) << what << ": " << runner.message();
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(threads);
  Floats a = randomFloats(first, 1), b = randomFloats(second, 2), c(result);
  Floats scratch(needs->scratchBytes(threads) / 4), partials(needs->partialBytes / 4);
  void *pointers[4] = {a.get(), b.get(), c.get(), partials.get()};
  auto run = [&] { return runCall(**runner, pool, pointers, reinterpret_cast<char *>(scratch.get())); };
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(run());
  ours = libraryCalls = largestCall = 0;
  counting = true;
  bool good = run();
  counting = false;
  EXPECT_TRUE(good);
  bool withoutLibrary = true;
  if constexpr (std::is_same_v<Call, plan::MatmulCall>)
    withoutLibrary = call.implementation() != plan::MatmulCall::LIBRARY;
  EXPECT_EQ(libraryCalls > 0, !withoutLibrary) << what;
  EXPECT_EQ(ours, 0u) << what << ": bytes allocated outside the library";
  EXPECT_LE(largestCall, kMostOfACall) << what << ": bytes allocated in one library call";
}

void checkMatmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool transA, bool transB) {
  for (unsigned threads : {1u, 2u})
    check(fmt::format("matmul {} x [{} x {} x {}] {}{}, {} threads", batch, m, n, k, transA, transB, threads),
          matmulCall(batch, m, n, k, transA, transB), static_cast<size_t>(batch * m * k),
          static_cast<size_t>(batch * k * n), static_cast<size_t>(batch * m * n), threads);
}

void checkConvolution(const ConvolutionShape &shape) {
  using Kind = plan::ConvolutionCall;
  for (auto kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT})
    for (unsigned threads : {1u, 2u}) {
      Kind call = convolutionCall(shape, kind);
      size_t x = elements(call.x_dims()), w = elements(call.w_dims()), y = elements(call.y_dims());
      bool forward = kind == Kind::FORWARD, toInput = kind == Kind::INPUT_GRADIENT;
      check(fmt::format("convolution {} kind {}, {} threads", fmt::join(shape.w, "x"), static_cast<int>(kind), threads),
            call, toInput ? y : x, forward || toInput ? w : y,
            forward   ? y
            : toInput ? x
                      : w,
            threads);
    }
}
} // namespace

TEST(Allocation, HooksCount) {
  counting = true;
  ours = 0;
  void *volatile bytes = malloc(100);
  free(bytes);
  int *volatile number = new int;
  delete number;
  counting = false;
  EXPECT_GE(ours, 104u);
}

TEST(Allocation, Matmul) {
  checkMatmul(1, 256, 768, 768, false, false);
  checkMatmul(1, 256, 768, 768, false, true);
  checkMatmul(1, 768, 512, 256, true, false);
  checkMatmul(1, 768, 384, 256, true, false);
  checkMatmul(1, 100, 300, 2500, true, true);
  checkMatmul(1, 10, 64, 8192, true, false);
  checkMatmul(48, 64, 64, 64, false, true);
  checkMatmul(5, 33, 31, 7, true, false);
  checkMatmul(1, 1, 1000, 100, false, false);
  checkMatmul(1, 1000, 1, 100, false, true);
}

TEST(Allocation, Convolution) {
  checkConvolution({{8, 64, 16, 16}, {64, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1});
  checkConvolution({{8, 3, 17, 17}, {10, 3, 3, 3}, {2, 2}, {1, 1}, {1, 0}, {1, 1}, 1});
  checkConvolution({{4, 6, 9, 9}, {10, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2});
  checkConvolution({{4, 12, 9, 9}, {12, 1, 3, 3}, {1, 1}, {2, 1}, {1, 1}, {1, 1}, 12});
  checkConvolution({{4, 5, 40}, {8, 5, 4}, {2}, {1}, {1}, {1}, 1});
  checkConvolution({{2, 3, 6, 6, 6}, {4, 3, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1});
}
