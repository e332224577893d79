//===- EntryBlas.cpp - entry points of cuBLASLt --------------------------===//
//
// cuBLAS, "Using the cuBLASLt API": matrices are column-major, D = alpha · op(A) · op(B) + beta · C, each product is
// work of its stream. A product sums in the compute type, split along K if the algorithm has several parts, and fills
// its workspace with partial sums or NaN, so that a workspace shared with something else is noticed. An algorithm is
// bound to the description that the heuristic was asked about, to the alignments and the workspace that the preference
// promised, to the version of the library, and to the device. A list of algorithms begins with a slow one, so that
// timing finds a faster one.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/BlasReplay.h"
#include "test/emulation/driver/Entry.h"

#include <algorithm>
#include <array>
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

constexpr uint64_t kAlgorithmMark = 0x7463632d616c676f; ///< in data[0] of every algorithm that the heuristic made
/// kMaker: the version of the library in the upper half, the architecture in the lower one. kTicks: also the alignments
/// of the epilogue's pointers, 16 bits each. kScheme: for a recorded algorithm also its tile and number, 16 and 32
/// bits.
enum AlgoWord { kMark, kDigest, kWorkspace, kAlgoParts, kAlignments, kScheme, kMaker, kTicks };

uint64_t makerOf(const StandIn &d) { return uint64_t(d.options.blasVersion) << 32 | d.options.architecture; }

/// The alignment of an epilogue's pointer, in bytes; the heuristic assumes that it stays the same.
uint64_t alignmentOf(const void *pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  return std::min<uint64_t>(256, address & (~address + 1));
}

/// An algorithm of the list, before it is bound to a product. Its time is invented.
struct Offer {
  uint64_t parts, scheme, ticks;
};
constexpr Offer kOffers[] = {
    {4, CUBLASLT_REDUCTION_SCHEME_INPLACE, 30}, // in no fixed order
    {4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 40},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 60},
    {2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 20},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 50},
};

uint64_t schemeOf(const cublasLtMatmulAlgo_t &algo) { return algo.data[kScheme] & 0xffff; }

/// The record that the environment names, read once for the process; null if it names none.
const BlasReplay *replayOf(StandIn &d) {
  static std::string problem;
  static const BlasReplay replay =
      d.options.productsFile.empty() ? BlasReplay() : BlasReplay::read(d.options.productsFile, problem);
  if (!problem.empty())
    d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
             fmt::format("TCC_EMULATION_PRODUCTS={}: {}", d.options.productsFile, problem));
  return d.options.productsFile.empty() ? nullptr : &replay;
}

/// The workspace in bytes that an offer takes for a product; nothing if the preference rules the offer out.
std::optional<uint64_t> workspaceOf(const Offer &offer, const Shape &s, uint64_t batch, const BlasObject &wanted) {
  if (offer.parts == 1)
    return std::min<uint64_t>(wanted.workspace, 1024); // counters
  if ((offer.scheme & wanted.schemes) == 0 || s.k < 16 * offer.parts || (offer.parts > 2 && s.k < 2 * std::max(s.m, s.n)))
    return std::nullopt;
  const uint64_t bytes = offer.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE ? 1024 : s.m * s.n * batch * 4 * offer.parts;
  return bytes <= wanted.workspace ? std::optional(bytes) : std::nullopt;
}

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

bool onDevice(StandIn &d, const void *address, uint64_t bytes) {
  Allocation *found = d.machine.memory().find(address, bytes);
  return found && found->home == Home::Device;
}

} // namespace

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return size_t(standIn().options.blasVersion); }
extern "C" __attribute__((visibility("default"))) const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_ARCH_MISMATCH:
    return "CUBLAS_STATUS_ARCH_MISMATCH";
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
  if (!found)
    return CUBLAS_STATUS_INVALID_VALUE;
  int32_t operation = 0;
  bool done = false;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
  case CUBLASLT_MATMUL_DESC_TRANSB:
    if (!read(d, value, bytes, operation, call))
      return CUBLAS_STATUS_INVALID_VALUE;
    if (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T)
      return refuse(d, FaultKind::Misuse, fmt::format("{}: attribute {} = {}", call, int(attribute), operation));
    (attribute == CUBLASLT_MATMUL_DESC_TRANSA ? found->transA : found->transB) = operation == CUBLAS_OP_T;
    return CUBLAS_STATUS_SUCCESS;
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    done = read(d, value, bytes, found->epilogue, call);
    if (done && !epilogueOf(found->epilogue))
      return refuse(d, FaultKind::Misuse, fmt::format("{}: epilogue {}", call, found->epilogue));
    break;
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    done = read(d, value, bytes, found->vector, call);
    break;
  case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
    done = read(d, value, bytes, found->vectorStride, call);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    done = read(d, value, bytes, found->auxiliary, call);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    done = read(d, value, bytes, found->auxiliaryLd, call);
    break;
  default:
    return refuse(d, FaultKind::Misuse, fmt::format("{}: attribute {}", call, int(attribute)));
  }
  return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
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
  auto list = [&](uint64_t parts, uint64_t scheme, uint64_t ticks, uint64_t bytes) {
    cublasLtMatmulHeuristicResult_t one{};
    one.algo.data[kMark] = kAlgorithmMark;
    one.algo.data[kDigest] = digestOf(*product, {la, lb, lc, ld});
    one.algo.data[kWorkspace] = one.workspaceSize = bytes;
    one.algo.data[kAlgoParts] = parts;
    for (size_t i = 0; i < 4; ++i)
      one.algo.data[kAlignments] |= uint64_t(std::min<uint32_t>(wanted->alignments[i], 65535)) << (16 * i);
    one.algo.data[kScheme] = scheme;
    one.algo.data[kMaker] = makerOf(d);
    one.algo.data[kTicks] = ticks | alignmentOf(product->vector) << 16 | alignmentOf(product->auxiliary) << 32;
    one.wavesCount = 1;
    results[(*found)++] = one;
  };
  const BlasReplay *replay = replayOf(d);
  if (const RecordedAnswer *answer = replay ? replay->find(*product, s, *la, *ld) : nullptr) {
    for (const RecordedAlgorithm &one : answer->algorithms)
      if (*found < asked && one.workspaceBytes <= wanted->workspace &&
          (one.parts == 1 || (one.scheme & wanted->schemes)))
        list(one.parts, one.scheme | uint64_t(one.tile & 0xffff) << 16 | uint64_t(one.id) << 32, 10 + uint64_t(*found),
             one.workspaceBytes);
    return answer->status;
  }
  if (product->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !d.options.epilogues)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // As an H100 for nano-gpt's sizes.
  if (product->epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD && d.options.epilogues == 2)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // As on some cards for f32: an H200 had neither epilogue, an H100 had DGELU (probe BlasHasNoSumsOfB).
  if (la->type == CUDA_R_32F && (product->epilogue == CUBLASLT_EPILOGUE_DGELU || product->epilogue == CUBLASLT_EPILOGUE_BGRADB))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Offer &offer : kOffers) {
    std::optional<uint64_t> bytes = workspaceOf(offer, s, uint64_t(ld->batch), *wanted);
    if (!bytes || *found == asked)
      continue;
    list(offer.parts, offer.scheme, offer.ticks, *bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

TCC_BLAS_ENTRY cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t bytes,
                                                    size_t *written) {
  TCC_BLAS_BEGIN;
  const char *call = "cublasLtMatmulAlgoConfigGetAttribute";
  if (!algo || algo->data[kMark] != kAlgorithmMark)
    return CUBLAS_STATUS_INVALID_VALUE;
  uint32_t number = 0;
  switch (attribute) {
  case CUBLASLT_ALGO_CONFIG_ID:
    number = algo->data[kScheme] >> 32 ? uint32_t(algo->data[kScheme] >> 32) : uint32_t(1 + algo->data[kAlgoParts] / 2);
    break;
  case CUBLASLT_ALGO_CONFIG_TILE_ID:
    number = uint32_t(algo->data[kScheme] >> 32 ? algo->data[kScheme] >> 16 & 0xffff : algo->data[kTicks] & 0xffff);
    break;
  case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
    number = uint32_t(algo->data[kAlgoParts]);
    break;
  case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
    number = uint32_t(schemeOf(*algo));
    break;
  default:
    return refuse(d, FaultKind::Misuse, fmt::format("{}: attribute {}", call, int(attribute)));
  }
  if (bytes != sizeof number)
    return refuse(d, FaultKind::Misuse, fmt::format("{}: an attribute of {} bytes in {}", call, sizeof number, bytes));
  std::memcpy(value, &number, sizeof number);
  if (written)
    *written = sizeof number;
  return CUBLAS_STATUS_SUCCESS;
}

TCC_BLAS_ENTRY cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t dOut,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
  TCC_BLAS_BEGIN;
  const char *call = "cublasLtMatmulAlgoCheck";
  BlasObject *product = find(d, desc, BlasObject::Desc, call), *la = find(d, a, BlasObject::Layout, call),
             *lb = find(d, b, BlasObject::Layout, call), *lc = find(d, c, BlasObject::Layout, call),
             *ld = find(d, dOut, BlasObject::Layout, call);
  if (!find(d, handle, BlasObject::Handle, call) || !product || !la || !lb || !lc || !ld || !algo || !result)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo->data[kMark] != kAlgorithmMark || algo->data[kDigest] != digestOf(*product, {la, lb, lc, ld}))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo->data[kMaker] >> 32 != makerOf(d) >> 32)
    return refuse(d, FaultKind::Misuse, fmt::format("{}: an algorithm of another version of the library", call));
  if (algo->data[kMaker] != makerOf(d))
    return CUBLAS_STATUS_ARCH_MISMATCH;
  *result = {};
  result->workspaceSize = algo->data[kWorkspace];
  result->wavesCount = 1;
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
  if (algo->data[kMaker] != makerOf(d))
    return refuse(d, FaultKind::Misuse, fmt::format("{}: an algorithm of another version of the library, or device", call));
  Product made{*product, *la, *lb, *lc, *ld, shapeOf(*product, *la, *lb, *lc, *ld)};
  const bool isDouble = product->scaleType == CUDA_R_64F;
  auto scalar = [&](const void *from) {
    return isDouble ? *static_cast<const double *>(from) : double(*static_cast<const float *>(from));
  };
  made.alpha = scalar(alpha);
  made.beta = scalar(beta);
  made.parts = algo->data[kAlgoParts];
  made.anyOrder = schemeOf(*algo) == CUBLASLT_REDUCTION_SCHEME_INPLACE;
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
  // The epilogue's memory must not overlap the product's.
  const Epilogue epilogue = *epilogueOf(product->epilogue);
  std::vector<std::tuple<const void *, uint64_t, const char *>> beside;
  if (epilogue.hasVector())
    beside.emplace_back(product->vector, vectorSpan(*product, made.shape, *ld), "the bias");
  if (epilogue.hasAuxiliary())
    beside.emplace_back(product->auxiliary, auxiliarySpan(*product, *ld), "the auxiliary matrix");
  for (auto [pointer, bytes, name] : beside) {
    if (!onDevice(d, pointer, bytes))
      return refuse(d, FaultKind::OutOfBounds,
                    fmt::format("{}: {} of {} bytes at {}", call, name, bytes, d.machine.memory().describe(pointer)));
    const uint64_t asked = algo->data[kTicks] >> (pointer == product->vector ? 16 : 32) & 0xffff;
    if (asked && reinterpret_cast<uint64_t>(pointer) % asked)
      return refuse(d, FaultKind::Misaligned,
                    fmt::format("{}: {} lies at no multiple of {}, as when the algorithm was asked for", call, name, asked));
    for (auto [other, layout, otherName] : matrices)
      if (overlaps(pointer, bytes, other, spanOf(*layout)))
        return refuse(d, FaultKind::Misuse, fmt::format("{}: {} overlaps {}", call, name, otherName));
    if (made.workspaceBytes && overlaps(pointer, bytes, workspace, made.workspaceBytes))
      return refuse(d, FaultKind::Misuse, fmt::format("{}: the workspace overlaps {}", call, name));
  }
  if (beside.size() == 2 && overlaps(std::get<0>(beside[0]), std::get<1>(beside[0]), std::get<0>(beside[1]), std::get<1>(beside[1])))
    return refuse(d, FaultKind::Misuse, fmt::format("{}: the bias overlaps the auxiliary matrix", call));
  made.pointers[0] = a;
  made.pointers[1] = b;
  made.pointers[2] = c;
  made.result = dOut;
  made.workspace = workspace;
  Task task;
  task.what = call;
  task.ticks = algo->data[kTicks] & 0xffff;
  task.run = [made](uint32_t work) { return made.run(work); };
  return d.enqueue(stream, std::move(task), call) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
