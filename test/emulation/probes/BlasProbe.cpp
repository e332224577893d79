//===- BlasProbe.cpp - a product of cuBLASLt in a probe -------------------===//
#include "test/emulation/probes/BlasProbe.h"

#include <cmath>
#include <cstring>

namespace tcc::probes {

namespace {
size_t bytesOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

void put(std::byte *to, float value, cudaDataType type) {
  const auto word = std::bit_cast<uint32_t>(value);
  const auto half = static_cast<_Float16>(value);
  const auto brain = static_cast<unsigned short>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  if (type == CUDA_R_32F)
    std::memcpy(to, &value, 4);
  else if (type == CUDA_R_16F)
    std::memcpy(to, &half, 2);
  else
    std::memcpy(to, &brain, 2);
}
float get(const std::byte *from, cudaDataType type) {
  if (type == CUDA_R_32F) {
    float value = 0;
    std::memcpy(&value, from, 4);
    return value;
  }
  unsigned short bits = 0;
  std::memcpy(&bits, from, 2);
  return type == CUDA_R_16F ? float(std::bit_cast<_Float16>(bits)) : std::bit_cast<float>(uint32_t(bits) << 16);
}
} // namespace

float rounded(float value, cudaDataType type) {
  std::byte bytes[4];
  put(bytes, value, type);
  return get(bytes, type);
}

double geluByTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

Product::Product(Program &program, const ProductShape &shape) : shape(shape), p(program) {
  EXPECT(lt.create(&handle) == CUBLAS_STATUS_SUCCESS);
  EXPECT(lt.descCreate(&desc, shape.compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  const uint64_t rows[] = {m, k, m}, columns[] = {k, n, n};
  for (size_t i = 0; i < 5; ++i) {
    const uint64_t count = i < 3 ? rows[i] * columns[i] * shape.batch : i == 3 ? m * shape.batch : m * n;
    EXPECT(cu.memAlloc(&memory[i], count * 4) == CUDA_SUCCESS);
    std::vector<float> values(count);
    for (uint64_t at = 0; at < count; ++at)
      values[at] = (float((at + i * 7) * 2654435761u >> 7 & 7) - 3) * (i == 4 ? 0.5f : 1);
    fill(i, values);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT(lt.layoutCreate(&layouts[i], typeOf(i), rows[i], columns[i], int64_t(rows[i])) == CUBLAS_STATUS_SUCCESS);
    const auto count = int32_t(shape.batch);
    const auto stride = int64_t(rows[i] * columns[i]);
    lt.layoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    lt.layoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  }
  EXPECT(cu.memAlloc(&workspace, workspaceBytes) == CUDA_SUCCESS);
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    EXPECT(lt.descSetAttribute(desc, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  };
  if (shape.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
    return;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(shape.epilogue));
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory[3]);
  if (shape.biasStride)
    set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, shape.biasStride);
  if (shape.epilogue != CUBLASLT_EPILOGUE_BIAS) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory[4]);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(m));
  }
}

Product::~Product() {
  cu.ctxSynchronize();
  for (cublasLtMatrixLayout_t layout : layouts)
    lt.layoutDestroy(layout);
  for (CUdeviceptr one : memory)
    cu.memFree(one);
  cu.memFree(workspace);
  lt.descDestroy(desc);
  lt.destroy(handle);
}

void Product::fill(size_t operand, const std::vector<float> &values) {
  host[operand] = values;
  const size_t width = bytesOf(typeOf(operand));
  std::vector<std::byte> bytes(values.size() * width);
  for (size_t at = 0; at < values.size(); ++at)
    put(&bytes[at * width], values[at], typeOf(operand));
  EXPECT(cu.memcpyHtoDAsync(memory[operand], bytes.data(), bytes.size(), p.stream) == CUDA_SUCCESS);
  EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
}

std::vector<float> Product::read(size_t operand) const {
  const size_t width = bytesOf(typeOf(operand));
  std::vector<std::byte> bytes(host[operand].size() * width);
  EXPECT(cu.memcpyDtoHAsync(bytes.data(), memory[operand], bytes.size(), p.stream) == CUDA_SUCCESS);
  EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
  std::vector<float> values(host[operand].size());
  for (size_t at = 0; at < values.size(); ++at)
    values[at] = get(&bytes[at * width], typeOf(operand));
  return values;
}

std::vector<cublasLtMatmulHeuristicResult_t> Product::offers(uint32_t schemes) const {
  cublasLtMatmulPreference_t preference = nullptr;
  EXPECT(lt.preferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspaceBytes,
                            sizeof workspaceBytes);
  lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  std::vector<cublasLtMatmulHeuristicResult_t> results(32);
  int found = 0;
  lt.heuristic(handle, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference, 32, results.data(), &found);
  results.resize(size_t(found));
  EXPECT(lt.preferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
  return results;
}

std::vector<cublasLtMatmulHeuristicResult_t> Product::algorithms(uint32_t schemes) const {
  std::vector<cublasLtMatmulHeuristicResult_t> results = offers(schemes);
  EXPECT(!results.empty());
  return results;
}

cublasStatus_t Product::submit(const cublasLtMatmulAlgo_t &algo) const {
  const float one = 1, zero = 0;
  auto at = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  return lt.matmul(handle, desc, &one, at(memory[0]), layouts[0], at(memory[1]), layouts[1], &zero, at(memory[2]),
                   layouts[2], at(memory[2]), layouts[2], &algo, at(workspace), workspaceBytes, p.stream);
}

bool Product::run() const {
  const auto found = algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  if (found.empty())
    return false;
  EXPECT(submit(found.front().algo) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
  return true;
}

float Product::sum(uint64_t row, uint64_t column, uint64_t of) const {
  float sum = 0;
  for (uint64_t q = 0; q < k; ++q)
    sum += host[0][of * m * k + row + q * m] * host[1][of * k * n + q + column * k];
  return sum;
}

} // namespace tcc::probes
