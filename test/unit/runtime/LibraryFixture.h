//===- LibraryFixture.h - running one library call as the executor does --===//
#ifndef TCC_TEST_UNIT_RUNTIME_LIBRARYFIXTURE_H
#define TCC_TEST_UNIT_RUNTIME_LIBRARYFIXTURE_H

#include "runtime/cpu/LibraryPrimitive.h"
#include "test/support/Choose.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <vector>

namespace tcc::test {

/// Floats aligned to 64 bytes like the buffers of an arena, followed by sentinels.
class Floats {
public:
  explicit Floats(size_t count)
      : count(count), data(static_cast<float *>(std::aligned_alloc(64, (count * 4 + 64 + 63) / 64 * 64)), std::free) {
    std::memset(data.get(), 0, count * 4);
    std::memset(data.get() + count, 0x5a, 64);
  }
  float *get() const { return data.get(); }
  size_t size() const { return count; }
  float &operator[](size_t i) const { return data.get()[i]; }
  /// True if nothing was written after the end.
  bool intact() const {
    const auto *bytes = reinterpret_cast<const unsigned char *>(data.get() + count);
    for (int i = 0; i < 64; ++i)
      if (bytes[i] != 0x5a)
        return false;
    return true;
  }

private:
  size_t count;
  std::unique_ptr<float, void (*)(void *)> data;
};

/// Values in [-1, 1) from a fixed sequence.
inline Floats randomFloats(size_t count, uint32_t seed) {
  Floats values(count);
  uint64_t state = seed * 2654435761u + 12345;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values[i] = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) / (1 << 23);
  }
  return values;
}

/// The scratch in a plan for so many workers.
inline runtime::Scratch scratchOf(const runtime::CallNeeds &needs, unsigned workers) {
  return {needs.scratchSlotBytes, std::min<uint64_t>(needs.scratchSlots, workers), needs.scratchSharedBytes};
}

/// Runs a completed call twice into `result`, with scratch filled with NaN each time. Returns the error's text if it
/// fails. In each run, an accumulating call adds to the initial content of `result`.
template <typename Call>
std::string runCompleted(const Call &call, const Floats &first, const Floats &second, const Floats &result,
                         unsigned threads) {
  if (Status status = runtime::checkLevel(testLevel()); !status.ok())
    return status.message();
  auto needs = runtime::needsOf(call);
  if (!needs)
    return needs.message();
  auto runner = runtime::prepare(call, levelOfTest(), scratchOf(*needs, threads), threads);
  if (!runner)
    return runner.message();
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(threads);
  Floats scratch(needs->scratchBytes(threads) / 4), partials(needs->partialBytes / 4);
  std::vector<void *> pointers = {first.get(), second.get(), result.get(), partials.get()};
  bool accumulates = false;
  if constexpr (requires { call.accumulate(); })
    accumulates = call.accumulate();
  if (accumulates)
    pointers.insert(pointers.begin() + 2, result.get());
  std::vector<float> before(result.get(), result.get() + result.size());
  for (int run = 0; run < 2; ++run) { // the second run uses the library state that the first one left
    std::memset(scratch.get(), 0xff, scratch.size() * 4);
    std::memset(partials.get(), 0xff, partials.size() * 4);
    if (accumulates)
      std::copy(before.begin(), before.end(), result.get());
    else
      std::memset(result.get(), 0xff, result.size() * 4);
    if (!runtime::runCall(**runner, pool, pointers.data(), reinterpret_cast<char *>(scratch.get())))
      return "the library failed";
  }
  if (!scratch.intact() || !partials.intact() || !result.intact())
    return "it wrote behind the end of a buffer";
  return "";
}

/// Completes a call, `filled`, and runs it as above.
template <typename Call>
std::string runCall(Call call, const Floats &first, const Floats &second, const Floats &result, unsigned threads,
                    Call *filled = nullptr) {
  if (auto needs = test::query(call); !needs)
    return needs.message();
  if (filled)
    *filled = call;
  return runCompleted(call, first, second, result, threads);
}

inline plan::MatmulCall matmulCall(int64_t batch, int64_t m, int64_t n, int64_t k, bool transA, bool transB) {
  plan::MatmulCall call;
  call.set_dtype(plan::F32);
  call.set_batch(batch);
  call.set_m(m);
  call.set_n(n);
  call.set_k(k);
  call.set_trans_a(transA);
  call.set_trans_b(transB);
  return call;
}

struct ConvolutionShape {
  std::vector<int64_t> x, w; // N C spatial, O I/groups spatial
  std::vector<int64_t> strides, dilations, begin, end;
  int64_t groups;
};

inline plan::ConvolutionCall convolutionCall(const ConvolutionShape &shape, plan::ConvolutionCall::Kind kind) {
  plan::ConvolutionCall call;
  call.set_kind(kind);
  call.set_dtype(plan::F32);
  call.set_groups(shape.groups);
  call.add_y_dims(shape.x[0]);
  call.add_y_dims(shape.w[0]);
  for (size_t i = 0; i < shape.x.size(); ++i) {
    call.add_x_dims(shape.x[i]);
    call.add_w_dims(shape.w[i]);
    if (i < 2)
      continue;
    size_t s = i - 2;
    call.add_strides(shape.strides[s]);
    call.add_dilations(shape.dilations[s]);
    call.add_pads_begin(shape.begin[s]);
    call.add_pads_end(shape.end[s]);
    call.add_y_dims((shape.x[i] + shape.begin[s] + shape.end[s] - shape.dilations[s] * (shape.w[i] - 1) - 1) /
                        shape.strides[s] +
                    1);
  }
  return call;
}

template <typename Dims> size_t elements(const Dims &dims) {
  size_t count = 1;
  for (int64_t dim : dims)
    count *= static_cast<size_t>(dim);
  return count;
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_RUNTIME_LIBRARYFIXTURE_H
