//===- BlasArithmetic.cpp - what a product of cuBLASLt computes ----------===//
#include "test/emulation/driver/BlasArithmetic.h"

#include "runtime/data/transforms/EveryLevel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

using namespace tcc::cuda::api;

namespace tcc::emulation {

namespace {
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

constexpr double kSqrtTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;

/// The tanh form: the library's documentation names none, and its results on a device are those of tanh (probe
/// BlasGeluIsTanh).
double gelu(double x) { return 0.5 * x * (1 + std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x))); }
double geluDerivative(double x) {
  const double t = std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrtTwoOverPi * (1 + 3 * kCubic * x * x);
}

std::optional<Fault> touchAll(Memory &memory, void *base, const BlasObject &l, AccessKind kind, uint32_t work,
                              const char *what) {
  auto *bytes = static_cast<std::byte *>(base);
  const bool dense = l.ld == int64_t(l.rows);
  for (int64_t batch = 0; batch < l.batch; ++batch)
    for (uint64_t column = 0; column < (dense ? 1 : l.columns); ++column) {
      auto at = static_cast<uint64_t>(batch * l.stride + int64_t(column) * l.ld);
      if (auto fault = memory.touchByWork(bytes + at * bytesOf(l.type),
                                          (dense ? l.columns : 1) * l.rows * bytesOf(l.type), kind, work, what))
        return fault;
    }
  return std::nullopt;
}
} // namespace

double loadElement(const void *from, uint64_t index, cudaDataType type) {
  switch (type) {
  case CUDA_R_64F:
    return static_cast<const double *>(from)[index];
  case CUDA_R_32F:
    return static_cast<const float *>(from)[index];
  default:
    return rounded16(static_cast<const uint16_t *>(from)[index], type);
  }
}

void storeElement(void *to, uint64_t index, double value, cudaDataType type) {
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

size_t bytesOf(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

uint64_t spanOf(const BlasObject &l) {
  return (static_cast<uint64_t>(l.batch - 1) * static_cast<uint64_t>(l.stride) +
          (l.columns - 1) * static_cast<uint64_t>(l.ld) + l.rows) *
         bytesOf(l.type);
}

static std::string problemOf(const BlasObject &desc, const BlasObject &d);

Shape shapeOf(const BlasObject &desc, const BlasObject &a, const BlasObject &b, const BlasObject &c,
              const BlasObject &dOut) {
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
                            ((a.type == CUDA_R_16BF || a.type == CUDA_R_16F) &&
                             desc.computeType == CUBLAS_COMPUTE_32F && (c.type == a.type || c.type == CUDA_R_32F))))
    s.wrong = fmt::format("types {}, {} -> {} with compute type {}", int(a.type), int(b.type), int(dOut.type),
                          int(desc.computeType));
  for (const BlasObject *layout : {&a, &b, &c, &dOut})
    if (s.wrong.empty() && (layout->ld < int64_t(layout->rows) ||
                            (layout->batch > 1 && layout->stride < layout->ld * int64_t(layout->columns))))
      s.wrong = fmt::format("a matrix of {}x{} with ld {} and batch stride {}", layout->rows, layout->columns,
                            layout->ld, layout->stride);
  if (s.wrong.empty())
    s.wrong = problemOf(desc, dOut);
  return s;
}

std::optional<Epilogue> epilogueOf(uint32_t number) {
  switch (number) {
  case CUBLASLT_EPILOGUE_DEFAULT:
    return Epilogue{};
  case CUBLASLT_EPILOGUE_BIAS:
    return Epilogue{.adds = true};
  case CUBLASLT_EPILOGUE_GELU_BIAS:
    return Epilogue{.adds = true, .gelu = true};
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    return Epilogue{.adds = true, .gelu = true, .keeps = true};
  case CUBLASLT_EPILOGUE_DGELU:
    return Epilogue{.derivative = true};
  case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    return Epilogue{.derivative = true, .sums = Epilogue::RowsOfD};
  case CUBLASLT_EPILOGUE_BGRADA:
    return Epilogue{.sums = Epilogue::RowsOfA};
  case CUBLASLT_EPILOGUE_BGRADB:
    return Epilogue{.sums = Epilogue::ColumnsOfB};
  default:
    return std::nullopt;
  }
}

uint64_t vectorLength(const Epilogue &epilogue, const Shape &shape) {
  return epilogue.sums == Epilogue::ColumnsOfB ? shape.n : shape.m;
}

uint64_t vectorSpan(const BlasObject &desc, const Shape &shape, const BlasObject &d) {
  return (static_cast<uint64_t>(d.batch - 1) * static_cast<uint64_t>(desc.vectorStride) +
          vectorLength(*epilogueOf(desc.epilogue), shape)) *
         bytesOf(d.type);
}

uint64_t auxiliarySpan(const BlasObject &desc, const BlasObject &d) {
  return ((d.columns - 1) * static_cast<uint64_t>(desc.auxiliaryLd) + d.rows) * bytesOf(d.type);
}

/// Checks an epilogue's attributes by the documentation (cublasLtMatmulDescAttributes_t). Bias, its gradient and gelu's
/// input have D's type: BIAS_DATA_TYPE and EPILOGUE_AUX_DATA_TYPE are for 8-bit products, and are not known here. The
/// biases of a batch are BIAS_BATCH_STRIDE apart; 0 means one bias for the whole batch. Stricter than the library:
/// batches with other epilogues are refused.
static std::string problemOf(const BlasObject &desc, const BlasObject &d) {
  const Epilogue epilogue = *epilogueOf(desc.epilogue);
  if (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
    return "";
  if ((d.batch != 1 && desc.epilogue != CUBLASLT_EPILOGUE_BIAS) || d.type == CUDA_R_64F)
    return fmt::format("an epilogue of {} products of type {}", d.batch, int(d.type));
  if (desc.vectorStride != 0 && (d.batch == 1 || desc.vectorStride < int64_t(d.rows)))
    return fmt::format("{} biases of {} rows with batch stride {}", d.batch, d.rows, desc.vectorStride);
  if (epilogue.hasVector() && (!desc.vector || reinterpret_cast<uint64_t>(desc.vector) % bytesOf(d.type)))
    return fmt::format("epilogue {} with a bias at {}", desc.epilogue, fmt::ptr(desc.vector));
  if (epilogue.hasAuxiliary() && (!desc.auxiliary || reinterpret_cast<uint64_t>(desc.auxiliary) % bytesOf(d.type)))
    return fmt::format("epilogue {} with an auxiliary matrix at {}", desc.epilogue, fmt::ptr(desc.auxiliary));
  if (epilogue.hasAuxiliary() && (desc.auxiliaryLd % 8 != 0 || desc.auxiliaryLd < int64_t(d.rows)))
    return fmt::format("an auxiliary matrix of {} rows with ld {}, which is a multiple of 8 and no less", d.rows,
                       desc.auxiliaryLd);
  return "";
}

uint64_t digestOf(const BlasObject &desc, std::initializer_list<const BlasObject *> layouts) {
  uint64_t digest = uint64_t(desc.computeType) * 31 + uint64_t(desc.scaleType) * 7 + desc.transA * 2 + desc.transB;
  digest = digest * 1021 + desc.epilogue * 64 + uint64_t(desc.auxiliaryLd) + uint64_t(desc.vectorStride) * 8191;
  for (const BlasObject *l : layouts)
    for (uint64_t word :
         {uint64_t(l->type), l->rows, l->columns, uint64_t(l->ld), uint64_t(l->batch), uint64_t(l->stride)})
      digest = (digest ^ word) * 0x100000001b3;
  return digest;
}

std::optional<Fault> Product::run(uint32_t work) const {
  Memory &memory = standIn().machine.memory();
  const char *what = "cublasLtMatmul";
  for (auto [from, layout] : {std::pair(pointers[0], &a), std::pair(pointers[1], &b), std::pair(pointers[2], &c)})
    if (from && (from != pointers[2] || beta != 0))
      if (auto fault = touchAll(memory, const_cast<void *>(from), *layout, kRead, work, what))
        return fault;
  if (auto fault = touchAll(memory, result, d, kWrite, work, what))
    return fault;
  const Epilogue epilogue = *epilogueOf(desc.epilogue);
  if (epilogue.hasVector())
    if (auto fault =
            memory.touchByWork(desc.vector, vectorSpan(desc, shape, d), epilogue.adds ? kRead : kWrite, work, what))
      return fault;
  BlasObject auxiliary = d;
  auxiliary.ld = desc.auxiliaryLd;
  if (epilogue.hasAuxiliary())
    if (auto fault = touchAll(memory, desc.auxiliary, auxiliary, epilogue.keeps ? kWrite : kRead, work, what))
      return fault;
  if (workspaceBytes) {
    if (auto fault = memory.touchByWork(workspace, workspaceBytes, kWrite, work, what))
      return fault;
    std::memset(workspace, 0xff, workspaceBytes);
  }
  for (uint64_t batch = 0; batch < uint64_t(d.batch); ++batch)
    multiply(batch, work);
  return std::nullopt;
}

namespace {
/// Rows of op(A) whose sums are made side by side, in groups that are one vector each. Every sum has its own order.
constexpr uint64_t kGroup = 8, kGroups = 8, kRows = kGroup * kGroups;
constexpr uint64_t kDepth = 512; ///< of a panel of op(A) that stays in the cache while the columns of op(B) pass
using Wide = double __attribute__((vector_size(8 * kGroup)));
using Narrow = float __attribute__((vector_size(4 * kGroup)));

/// sums[i] += panel[p][i] * column[p] for each p in turn. The product of two f32 is exact in f64, so that each step
/// rounds there and then to f32.
TCC_EVERY_LEVEL void addProducts(const double *panel, const double *column, uint64_t depth, float *sums) {
  Narrow one[kGroups];
  std::memcpy(one, sums, sizeof one);
  for (uint64_t p = 0; p < depth; ++p)
    for (uint64_t g = 0; g < kGroups; ++g) {
      Wide x;
      std::memcpy(&x, panel + p * kRows + g * kGroup, sizeof x);
      one[g] = __builtin_convertvector(x * column[p] + __builtin_convertvector(one[g], Wide), Narrow);
    }
  std::memcpy(sums, one, sizeof one);
}

/// The same in f64, with an fma a step.
TCC_EVERY_LEVEL void addProducts(const double *panel, const double *column, uint64_t depth, double *sums) {
  for (uint64_t p = 0; p < depth; ++p)
    for (uint64_t i = 0; i < kRows; ++i)
      sums[i] = std::fma(panel[p * kRows + i], column[p], sums[i]);
}
} // namespace

double Product::elementOfA(const void *from, uint64_t row, uint64_t p) const {
  const double value = loadElement(from, desc.transA ? p + row * uint64_t(a.ld) : row + p * uint64_t(a.ld), a.type);
  return desc.computeType == CUBLAS_COMPUTE_32F_FAST_TF32 ? toTf32(float(value)) : value;
}

double Product::elementOfB(const void *from, uint64_t p, uint64_t column) const {
  const double value =
      loadElement(from, desc.transB ? column + p * uint64_t(b.ld) : p + column * uint64_t(b.ld), b.type);
  return desc.computeType == CUBLAS_COMPUTE_32F_FAST_TF32 ? toTf32(float(value)) : value;
}

void Product::multiply(uint64_t batch, uint32_t work) const {
  if (desc.computeType == CUBLAS_COMPUTE_64F)
    multiplyIn<double>(batch, work);
  else
    multiplyIn<float>(batch, work);
}

/// Makes all sums of kRows rows of the result at a time.
template <typename Sum> void Product::multiplyIn(uint64_t batch, uint32_t work) const {
  auto place = [&](const void *base, const BlasObject &l) {
    return static_cast<const std::byte *>(base) + static_cast<uint64_t>(l.stride) * batch * bytesOf(l.type);
  };
  const void *from = place(pointers[0], a), *with = place(pointers[1], b), *added = place(pointers[2], c);
  void *to = const_cast<std::byte *>(place(result, d));
  std::vector<double> right(shape.k * shape.n), panel(kRows * std::min(shape.k, kDepth));
  for (uint64_t j = 0; j < shape.n; ++j)
    for (uint64_t p = 0; p < shape.k; ++p)
      right[j * shape.k + p] = elementOfB(with, p, j);
  const Epilogue epilogue = *epilogueOf(desc.epilogue);
  std::vector<float> sums(epilogue.sums == Epilogue::None ? 0 : vectorLength(epilogue, shape));
  const uint64_t part = (shape.k + parts - 1) / parts;
  const bool backwards = anyOrder && (standIn().options.machine.seed * 31 + work) * 2654435761 >> 13 & 1;
  std::vector<Sum> ones(shape.n * kRows), totals(shape.n * kRows);
  for (uint64_t first = 0; first < shape.m; first += kRows) {
    const uint64_t rows = std::min(kRows, shape.m - first);
    std::fill(totals.begin(), totals.end(), Sum(0));
    for (uint64_t number = 0; number * part < shape.k; ++number) {
      const uint64_t begin = (backwards ? (shape.k - 1) / part - number : number) * part;
      const uint64_t end = std::min(shape.k, begin + part);
      std::fill(ones.begin(), ones.end(), Sum(0));
      for (uint64_t at = begin; at < end; at += kDepth) {
        const uint64_t depth = std::min(kDepth, end - at);
        for (uint64_t i = 0; i < rows; ++i)
          for (uint64_t p = 0; p < depth; ++p)
            panel[p * kRows + i] = elementOfA(from, first + i, at + p);
        for (uint64_t j = 0; j < shape.n; ++j)
          addProducts(panel.data(), &right[j * shape.k + at], depth, &ones[j * kRows]);
      }
      for (uint64_t i = 0; i < ones.size(); ++i)
        totals[i] += ones[i];
    }
    for (uint64_t j = 0; j < shape.n; ++j)
      for (uint64_t i = first; i < first + rows; ++i) {
        double value = alpha * double(totals[j * kRows + i - first]);
        if (beta != 0)
          value += beta * loadElement(added, i + j * uint64_t(c.ld), c.type);
        storeElement(to, i + j * uint64_t(d.ld), finish(epilogue, value, batch, i, j, sums), d.type);
      }
  }
  for (uint64_t p = 0; p < shape.k; ++p)
    for (uint64_t i = 0; i < sums.size(); ++i)
      if (epilogue.sums == Epilogue::RowsOfA)
        sums[i] += float(elementOfA(from, i, p));
      else if (epilogue.sums == Epilogue::ColumnsOfB)
        sums[i] += float(right[i * shape.k + p]);
  for (uint64_t i = 0; i < sums.size(); ++i)
    storeElement(desc.vector, i, sums[i], d.type);
}

/// Applies the epilogue in f32. No step rounds to D's type, since only the last result is stored.
double Product::finish(const Epilogue &epilogue, double value, uint64_t batch, uint64_t row, uint64_t column,
                       std::vector<float> &sums) const {
  const uint64_t at = row + column * uint64_t(desc.auxiliaryLd);
  if (epilogue.adds)
    value = float(value) + float(loadElement(desc.vector, batch * uint64_t(desc.vectorStride) + row, d.type));
  if (epilogue.keeps)
    storeElement(desc.auxiliary, at, value, d.type);
  if (epilogue.gelu)
    value = gelu(value);
  if (epilogue.derivative)
    value = float(value) * float(geluDerivative(loadElement(desc.auxiliary, at, d.type)));
  if (epilogue.sums == Epilogue::RowsOfD)
    sums[row] += float(value);
  return value;
}

} // namespace tcc::emulation
