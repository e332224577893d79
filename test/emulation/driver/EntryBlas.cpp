//===- EntryBlas.cpp - entry points of cuBLASLt --------------------------===//
//
// cuBLAS, "Using the cuBLASLt API": matrices are column-major, D = alpha · op(A) · op(B) + beta · C, each product is work of
// its stream. A product adds up in the compute type, in parts of K where the algorithm has some, and fills its workspace
// with partial sums or with NaN: who shares the workspace with something else is found. An algorithm is bound to the
// description that the heuristic was asked for, and to the alignments and the workspace that the preference promised.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/Entry.h"


#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

#define TCC_BLAS_ENTRY extern "C" __attribute__((visibility("default"))) cublasStatus_t
#define TCC_BLAS_BEGIN                                                                                                 \
  StandIn &d = standIn();                                                                                              \
  std::lock_guard lock(d.mutex);                                                                                       \
  if (d.enter())                                                                                                       \
  return CUBLAS_STATUS_NOT_INITIALIZED

namespace {

constexpr uint64_t kAlgorithmMark = 0x7463632d616c676f; ///< of data[0]: the heuristic's, and nobody else's
constexpr uint64_t kParts = 4;                           ///< of K in an algorithm that has parts
enum AlgoWord { kMark, kDigest, kWorkspace, kAlgoParts, kAlignments };

BlasObject *find(StandIn &d, const void *handle, BlasObject::Kind kind, const char *call) {
  static constexpr const char *kNames[] = {"handle", "product", "layout", "preference"};
  BlasObject *found = d.lookup(d.blas, handle, call, kNames[kind]);
  if (found && found->kind != kind) {
    d.misuse(FaultKind::NotAHandle, CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: this is no {}", call, kNames[kind]));
    return nullptr;
  }
  return found;
}

template <typename Handle> cublasStatus_t make(StandIn &d, BlasObject object, Handle *to) {
  *to = reinterpret_cast<Handle>(d.blas.add(std::make_unique<BlasObject>(object)));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t destroy(StandIn &d, const void *handle, BlasObject::Kind kind, const char *call) {
  if (!find(d, handle, kind, call))
    return CUBLAS_STATUS_INVALID_VALUE;
  d.blas.remove(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t refuse(StandIn &d, FaultKind kind, std::string text) {
  d.misuse(kind, CUDA_ERROR_INVALID_VALUE, std::move(text));
  return CUBLAS_STATUS_INVALID_VALUE;
}

/// Reads an attribute of a fixed type; false with a message for another size.
template <typename T> bool read(StandIn &d, const void *value, size_t bytes, T &to, const char *call) {
  if (bytes == sizeof(T)) {
    std::memcpy(&to, value, bytes);
    return true;
  }
  refuse(d, FaultKind::Misuse, fmt::format("{}: an attribute of {} bytes in {}", call, sizeof(T), bytes));
  return false;
}

size_t bytesOf(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

/// The product that a description and four layouts make.
struct Shape {
  uint64_t m = 0, n = 0, k = 0;
  std::string wrong; ///< empty: it is one that the documentation allows
};

Shape shapeOf(const BlasObject &desc, const BlasObject &a, const BlasObject &b, const BlasObject &c, const BlasObject &dOut) {
  Shape s;
  auto turned = [](const BlasObject &layout, bool transposed) {
    return transposed ? std::pair(layout.columns, layout.rows) : std::pair(layout.rows, layout.columns);
  };
  auto [m, k] = turned(a, desc.transA);
  auto [k2, n] = turned(b, desc.transB);
  s.m = m, s.n = n, s.k = k;
  const bool isDouble = desc.computeType == CUBLAS_COMPUTE_64F;
  const cudaDataType scale = isDouble ? CUDA_R_64F : CUDA_R_32F;
  if (k != k2 || dOut.rows != m || dOut.columns != n || c.rows != m || c.columns != n)
    s.wrong = fmt::format("op(A) is {}x{}, op(B) {}x{}, C {}x{}, D {}x{}", m, k, k2, n, c.rows, c.columns, dOut.rows,
                          dOut.columns);
  else if (a.batch != b.batch || a.batch != dOut.batch || a.batch != c.batch)
    s.wrong = fmt::format("batches of {}, {}, {} and {}", a.batch, b.batch, c.batch, dOut.batch);
  else if (desc.scaleType != scale)
    s.wrong = "a scale type that does not belong to the compute type";
  else if (a.type != b.type || c.type != dOut.type ||
           !(isDouble ? a.type == CUDA_R_64F && c.type == CUDA_R_64F
                      : (a.type == CUDA_R_32F && c.type == CUDA_R_32F) ||
                            ((a.type == CUDA_R_16BF || a.type == CUDA_R_16F) && desc.computeType == CUBLAS_COMPUTE_32F &&
                             (c.type == a.type || c.type == CUDA_R_32F))))
    s.wrong = fmt::format("types {}, {} -> {} with compute type {}", int(a.type), int(b.type), int(dOut.type),
                          int(desc.computeType));
  for (const BlasObject *layout : {&a, &b, &c, &dOut})
    if (s.wrong.empty() && (layout->ld < int64_t(layout->rows) ||
                            (layout->batch > 1 && layout->stride < layout->ld * int64_t(layout->columns))))
      s.wrong = fmt::format("a matrix of {}x{} with ld {} and batch stride {}", layout->rows, layout->columns, layout->ld,
                            layout->stride);
  return s;
}

uint64_t digestOf(const BlasObject &desc, std::initializer_list<const BlasObject *> layouts) {
  uint64_t digest = uint64_t(desc.computeType) * 31 + uint64_t(desc.scaleType) * 7 + desc.transA * 2 + desc.transB;
  for (const BlasObject *l : layouts)
    for (uint64_t word : {uint64_t(l->type), l->rows, l->columns, uint64_t(l->ld), uint64_t(l->batch), uint64_t(l->stride)})
      digest = (digest ^ word) * 0x100000001b3;
  return digest;
}

float rounded16(uint16_t bits, cudaDataType type) {
  if (type == CUDA_R_16BF) {
    uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}

double load(const void *from, uint64_t index, cudaDataType type) {
  switch (type) {
  case CUDA_R_64F:
    return static_cast<const double *>(from)[index];
  case CUDA_R_32F:
    return static_cast<const float *>(from)[index];
  default:
    return rounded16(static_cast<const uint16_t *>(from)[index], type);
  }
}

void store(void *to, uint64_t index, double value, cudaDataType type) {
  switch (type) {
  case CUDA_R_64F:
    static_cast<double *>(to)[index] = value;
    return;
  case CUDA_R_32F:
    static_cast<float *>(to)[index] = static_cast<float>(value);
    return;
  case CUDA_R_16F: {
    auto narrow = static_cast<_Float16>(static_cast<float>(value));
    std::memcpy(static_cast<uint16_t *>(to) + index, &narrow, 2);
    return;
  }
  default: {
    auto single = static_cast<float>(value);
    uint32_t word;
    std::memcpy(&word, &single, 4);
    static_cast<uint16_t *>(to)[index] =
        std::isnan(single) ? 0x7fff : static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  }
}

/// To 10 bits of mantissa, to the nearest even.
float toTf32(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  if (std::isfinite(value))
    word = (word + 0xfff + (word >> 13 & 1)) & ~0x1fffu;
  std::memcpy(&value, &word, 4);
  return value;
}

struct Product {
  BlasObject desc, a, b, c, d;
  Shape shape;
  const void *pointers[3] = {}; ///< A, B, C
  void *result = nullptr, *workspace = nullptr;
  double alpha = 1, beta = 0;
  uint64_t parts = 1, workspaceBytes = 0;

  std::optional<Fault> run(uint32_t work) const {
    Memory &memory = standIn().machine.memory();
    const char *what = "cublasLtMatmul";
    for (auto [from, layout] : {std::pair(pointers[0], &a), std::pair(pointers[1], &b), std::pair(pointers[2], &c)})
      if (from && (from != pointers[2] || beta != 0))
        if (auto fault = touchAll(memory, const_cast<void *>(from), *layout, kRead, work, what))
          return fault;
    if (auto fault = touchAll(memory, result, d, kWrite, work, what))
      return fault;
    if (workspaceBytes) {
      if (auto fault = memory.touchByWork(workspace, workspaceBytes, kWrite, work, what))
        return fault;
      std::memset(workspace, 0xff, workspaceBytes);
    }
    for (uint64_t batch = 0; batch < uint64_t(d.batch); ++batch)
      multiply(batch);
    return std::nullopt;
  }

private:
  static std::optional<Fault> touchAll(Memory &memory, void *base, const BlasObject &l, AccessKind kind, uint32_t work,
                                       const char *what) {
    auto *bytes = static_cast<std::byte *>(base);
    const bool dense = l.ld == int64_t(l.rows);
    for (int64_t batch = 0; batch < l.batch; ++batch)
      for (uint64_t column = 0; column < (dense ? 1 : l.columns); ++column) {
        auto at = static_cast<uint64_t>(batch * l.stride + int64_t(column) * l.ld);
        if (auto fault = memory.touchByWork(bytes + at * bytesOf(l.type), (dense ? l.columns : 1) * l.rows * bytesOf(l.type),
                                            kind, work, what))
          return fault;
      }
    return std::nullopt;
  }

  void multiply(uint64_t batch) const {
    auto place = [&](const void *base, const BlasObject &l) {
      return static_cast<const std::byte *>(base) + static_cast<uint64_t>(l.stride) * batch * bytesOf(l.type);
    };
    const void *from = place(pointers[0], a), *with = place(pointers[1], b), *added = place(pointers[2], c);
    void *to = const_cast<std::byte *>(place(result, d));
    const bool tf32 = desc.computeType == CUBLAS_COMPUTE_32F_FAST_TF32, isDouble = desc.computeType == CUBLAS_COMPUTE_64F;
    // Rows of op(A) and columns of op(B), as the compute type takes them.
    std::vector<double> left(shape.m * shape.k), right(shape.k * shape.n);
    for (uint64_t i = 0; i < shape.m; ++i)
      for (uint64_t p = 0; p < shape.k; ++p) {
        double value = load(from, desc.transA ? p + i * uint64_t(a.ld) : i + p * uint64_t(a.ld), a.type);
        left[i * shape.k + p] = tf32 ? toTf32(float(value)) : value;
      }
    for (uint64_t j = 0; j < shape.n; ++j)
      for (uint64_t p = 0; p < shape.k; ++p) {
        double value = load(with, desc.transB ? j + p * uint64_t(b.ld) : p + j * uint64_t(b.ld), b.type);
        right[j * shape.k + p] = tf32 ? toTf32(float(value)) : value;
      }
    const uint64_t part = (shape.k + parts - 1) / parts;
    for (uint64_t j = 0; j < shape.n; ++j)
      for (uint64_t i = 0; i < shape.m; ++i) {
        const double *x = &left[i * shape.k], *y = &right[j * shape.k];
        double sum = 0;
        for (uint64_t begin = 0; begin < shape.k; begin += part) {
          const uint64_t end = std::min(shape.k, begin + part);
          if (isDouble) {
            double one = 0;
            for (uint64_t p = begin; p < end; ++p)
              one = std::fma(x[p], y[p], one);
            sum += one;
          } else {
            float one = 0; // a product of two f32 is exact in f64: each step rounds once, as an fma does
            for (uint64_t p = begin; p < end; ++p)
              one = float(x[p] * y[p] + double(one));
            sum = float(float(sum) + one);
          }
        }
        const uint64_t at = i + j * uint64_t(d.ld);
        double value = alpha * sum;
        if (beta != 0)
          value += beta * load(added, i + j * uint64_t(c.ld), c.type);
        store(to, at, value, d.type);
      }
  }
};

bool onDevice(StandIn &d, const void *address, uint64_t bytes) {
  Allocation *found = d.machine.memory().find(address, bytes);
  return found && found->home == Home::Device;
}

uint64_t spanOf(const BlasObject &l) {
  return (static_cast<uint64_t>(l.batch - 1) * static_cast<uint64_t>(l.stride) + (l.columns - 1) * static_cast<uint64_t>(l.ld) +
          l.rows) *
         bytesOf(l.type);
}

} // namespace

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 130100; }
extern "C" __attribute__((visibility("default"))) const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  default:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

TCC_BLAS_ENTRY cublasLtCreate(cublasLtHandle_t *handle) {
  TCC_BLAS_BEGIN;
  return make(d, {BlasObject::Handle}, handle);
}
TCC_BLAS_ENTRY cublasLtDestroy(cublasLtHandle_t handle) {
  TCC_BLAS_BEGIN;
  return destroy(d, handle, BlasObject::Handle, "cublasLtDestroy");
}

TCC_BLAS_ENTRY cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t ld) {
  TCC_BLAS_BEGIN;
  BlasObject made{BlasObject::Layout};
  made.type = type;
  made.rows = rows;
  made.columns = columns;
  made.ld = ld;
  return make(d, made, layout);
}
TCC_BLAS_ENTRY cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  TCC_BLAS_BEGIN;
  return destroy(d, layout, BlasObject::Layout, "cublasLtMatrixLayoutDestroy");
}
TCC_BLAS_ENTRY cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
  TCC_BLAS_BEGIN;
  const char *call = "cublasLtMatrixLayoutSetAttribute";
  BlasObject *found = find(d, layout, BlasObject::Layout, call);
  bool done = found && (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? read(d, value, bytes, found->batch, call)
                        : attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
                            ? read(d, value, bytes, found->stride, call)
                            : (refuse(d, FaultKind::Misuse, fmt::format("{}: attribute {}", call, int(attribute))), false));
  return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

TCC_BLAS_ENTRY cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t computeType, cudaDataType scaleType) {
  TCC_BLAS_BEGIN;
  BlasObject made{BlasObject::Desc};
  made.computeType = computeType;
  made.scaleType = scaleType;
  return make(d, made, desc);
}
TCC_BLAS_ENTRY cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  TCC_BLAS_BEGIN;
  return destroy(d, desc, BlasObject::Desc, "cublasLtMatmulDescDestroy");
}
TCC_BLAS_ENTRY cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  TCC_BLAS_BEGIN;
  const char *call = "cublasLtMatmulDescSetAttribute";
  BlasObject *found = find(d, desc, BlasObject::Desc, call);
  int32_t operation = 0;
  if (!found || !read(d, value, bytes, operation, call))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((attribute != CUBLASLT_MATMUL_DESC_TRANSA && attribute != CUBLASLT_MATMUL_DESC_TRANSB) ||
      (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T))
    return refuse(d, FaultKind::Misuse, fmt::format("{}: attribute {} = {}", call, int(attribute), operation));
  (attribute == CUBLASLT_MATMUL_DESC_TRANSA ? found->transA : found->transB) = operation == CUBLAS_OP_T;
  return CUBLAS_STATUS_SUCCESS;
}

TCC_BLAS_ENTRY cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  TCC_BLAS_BEGIN;
  return make(d, {BlasObject::Preference}, preference);
}
TCC_BLAS_ENTRY cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  TCC_BLAS_BEGIN;
  return destroy(d, preference, BlasObject::Preference, "cublasLtMatmulPreferenceDestroy");
}
TCC_BLAS_ENTRY cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
  TCC_BLAS_BEGIN;
  const char *call = "cublasLtMatmulPreferenceSetAttribute";
  BlasObject *found = find(d, preference, BlasObject::Preference, call);
  if (!found)
    return CUBLAS_STATUS_INVALID_VALUE;
  bool done = false;
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    done = read(d, value, bytes, found->workspace, call);
    break;
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    done = read(d, value, bytes, found->schemes, call);
    break;
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    done = read(d, value, bytes, found->alignments[size_t(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)], call);
    break;
  default:
    return refuse(d, FaultKind::Misuse, fmt::format("{}: attribute {}", call, int(attribute)));
  }
  return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

TCC_BLAS_ENTRY cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t dOut,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
  TCC_BLAS_BEGIN;
  const char *call = "cublasLtMatmulAlgoGetHeuristic";
  BlasObject *product = find(d, desc, BlasObject::Desc, call), *la = find(d, a, BlasObject::Layout, call),
             *lb = find(d, b, BlasObject::Layout, call), *lc = find(d, c, BlasObject::Layout, call),
             *ld = find(d, dOut, BlasObject::Layout, call), *wanted = find(d, preference, BlasObject::Preference, call);
  *found = 0;
  if (!find(d, handle, BlasObject::Handle, call) || !product || !la || !lb || !lc || !ld || !wanted || asked < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  Shape s = shapeOf(*product, *la, *lb, *lc, *ld);
  if (!s.wrong.empty()) {
    d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, fmt::format("{}: {}", call, s.wrong));
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  cublasLtMatmulHeuristicResult_t one{};
  one.algo.data[kMark] = kAlgorithmMark;
  one.algo.data[kDigest] = digestOf(*product, {la, lb, lc, ld});
  for (size_t i = 0; i < 4; ++i)
    one.algo.data[kAlignments] |= uint64_t(std::min<uint32_t>(wanted->alignments[i], 65535)) << (16 * i);
  one.wavesCount = 1;
  // Long sums of few results in parts, if there is room for them.
  uint64_t partial = s.m * s.n * uint64_t(ld->batch) * 4 * kParts;
  if (s.k >= 64 && s.k >= 2 * std::max(s.m, s.n) && partial <= wanted->workspace &&
      (wanted->schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) {
    one.algo.data[kAlgoParts] = kParts;
    one.algo.data[kWorkspace] = one.workspaceSize = partial;
    results[(*found)++] = one;
  }
  if (*found < asked) {
    one.algo.data[kAlgoParts] = 1;
    one.algo.data[kWorkspace] = one.workspaceSize = std::min<uint64_t>(wanted->workspace, 1024); // counters
    results[(*found)++] = one;
  }
  return CUBLAS_STATUS_SUCCESS;
}

TCC_BLAS_ENTRY cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t layoutOfA, const void *b, cublasLtMatrixLayout_t layoutOfB,
                              const void *beta, const void *c, cublasLtMatrixLayout_t layoutOfC, void *dOut,
                              cublasLtMatrixLayout_t layoutOfD, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspaceBytes, CUstream stream) {
  TCC_BLAS_BEGIN;
  const char *call = "cublasLtMatmul";
  BlasObject *product = find(d, desc, BlasObject::Desc, call), *la = find(d, layoutOfA, BlasObject::Layout, call),
             *lb = find(d, layoutOfB, BlasObject::Layout, call), *lc = find(d, layoutOfC, BlasObject::Layout, call),
             *ld = find(d, layoutOfD, BlasObject::Layout, call);
  if (!find(d, handle, BlasObject::Handle, call) || !product || !la || !lb || !lc || !ld)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!algo || algo->data[kMark] != kAlgorithmMark || algo->data[kDigest] != digestOf(*product, {la, lb, lc, ld}))
    return refuse(d, FaultKind::Misuse, fmt::format("{}: an algorithm of another description", call));
  Product made{*product, *la, *lb, *lc, *ld, shapeOf(*product, *la, *lb, *lc, *ld)};
  const bool isDouble = product->scaleType == CUDA_R_64F;
  auto scalar = [&](const void *from) {
    return isDouble ? *static_cast<const double *>(from) : double(*static_cast<const float *>(from));
  };
  made.alpha = scalar(alpha);
  made.beta = scalar(beta);
  made.parts = algo->data[kAlgoParts];
  made.workspaceBytes = algo->data[kWorkspace];
  if (workspaceBytes < made.workspaceBytes)
    return refuse(d, FaultKind::OutOfBounds,
                  fmt::format("{}: the algorithm takes {} bytes of workspace, it is given {}", call, made.workspaceBytes,
                              workspaceBytes));
  const std::array<std::tuple<const void *, const BlasObject *, const char *>, 4> matrices = {
      {{a, la, "A"}, {b, lb, "B"}, {c, lc, "C"}, {dOut, ld, "D"}}};
  for (size_t i = 0; i < matrices.size(); ++i) {
    auto [pointer, layout, name] = matrices[i];
    if (!onDevice(d, pointer, spanOf(*layout)))
      return refuse(d, FaultKind::OutOfBounds,
                    fmt::format("{}: {} of {} bytes at {}", call, name, spanOf(*layout), d.machine.memory().describe(pointer)));
    uint64_t alignment = algo->data[kAlignments] >> (16 * i) & 0xffff;
    if (reinterpret_cast<uint64_t>(pointer) % alignment)
      return refuse(d, FaultKind::Misaligned,
                    fmt::format("{}: {} lies at no multiple of {}, as the preference promised", call, name, alignment));
  }
  auto overlaps = [](const void *one, uint64_t oneBytes, const void *other, uint64_t otherBytes) {
    auto x = reinterpret_cast<uint64_t>(one), y = reinterpret_cast<uint64_t>(other);
    return x < y + otherBytes && y < x + oneBytes;
  };
  for (auto [pointer, layout, name] : {matrices[0], matrices[1]})
    if (overlaps(pointer, spanOf(*layout), dOut, spanOf(*ld)))
      return refuse(d, FaultKind::Misuse, fmt::format("{}: D overlaps {}", call, name));
  if (c != dOut && made.beta != 0 && overlaps(c, spanOf(*lc), dOut, spanOf(*ld)))
    return refuse(d, FaultKind::Misuse, fmt::format("{}: D overlaps C, and is not C", call));
  if (made.workspaceBytes) {
    if (reinterpret_cast<uint64_t>(workspace) % 16 || !onDevice(d, workspace, workspaceBytes))
      return refuse(d, FaultKind::OutOfBounds,
                    fmt::format("{}: a workspace of {} bytes at {}", call, workspaceBytes, fmt::ptr(workspace)));
    for (auto [pointer, layout, name] : matrices)
      if (overlaps(pointer, spanOf(*layout), workspace, made.workspaceBytes))
        return refuse(d, FaultKind::Misuse, fmt::format("{}: the workspace overlaps {}", call, name));
  }
  made.pointers[0] = a;
  made.pointers[1] = b;
  made.pointers[2] = c;
  made.result = dOut;
  made.workspace = workspace;
  Task task;
  task.what = call;
  task.run = [made](uint32_t work) { return made.run(work); };
  return d.enqueue(stream, std::move(task), call) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
