//===- BlasProduct.cpp - a matrix product by cuBLASLt --------------------===//
//
// Our matrices are row-major, the library's column-major: it is given Cᵀ = op(B)ᵀ · op(A)ᵀ, whose bytes are those of C.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/BlasProduct.h"
#include "support/Advice.h"

#include "runtime/plan/CallKernels.h"
#include "runtime/plan/DType.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace tcc::cuda {

namespace {

Expected<api::cudaDataType> blasTypeOf(plan::DType type) {
  switch (type) {
  case plan::F32:
    return api::CUDA_R_32F;
  case plan::F64:
    return api::CUDA_R_64F;
  case plan::BF16:
    return api::CUDA_R_16BF;
  case plan::F16:
    return api::CUDA_R_16F;
  default:
    return error("cuBLASLt multiplies no {}", plan::DType_Name(type));
  }
}

/// The alignment of an address, at most 256 bytes, since algorithms require no more.
uint32_t alignmentOf(api::CUdeviceptr address) {
  return static_cast<uint32_t>(std::min<api::CUdeviceptr>(256, address & (~address + 1)));
}

/// Split-K schemes whose sums have a fixed order. The others, by the documentation, add parts in the result's memory or
/// type, which rounds more often.
constexpr uint32_t kFixedOrder = api::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

bool hasFixedOrder(const BlasLibrary &library, const api::cublasLtMatmulAlgo_t &algo) {
  uint32_t scheme = 0;
  size_t written = 0;
  return library->algoConfigGetAttribute(&algo, api::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                                         &written) == api::CUBLAS_STATUS_SUCCESS &&
         (scheme & ~kFixedOrder) == 0;
}

/// Parses an algorithm's bytes, 16 digits per word.
std::optional<api::cublasLtMatmulAlgo_t> algoOf(std::string_view code) {
  api::cublasLtMatmulAlgo_t algo{};
  if (code.size() != std::size(algo.data) * 16)
    return std::nullopt;
  for (size_t i = 0; i < std::size(algo.data); ++i) {
    const char *begin = code.data() + 16 * i, *end = begin + 16;
    if (auto [last, failure] = std::from_chars(begin, end, algo.data[i], 16); failure != std::errc() || last != end)
      return std::nullopt;
  }
  return algo;
}

/// The library's epilogue. Its A is our B, because it computes the transposed product.
api::cublasLtEpilogue_t epilogueOf(const plan::Epilogue &epilogue) {
  switch (epilogue.kind()) {
  case plan::Epilogue::BIAS:
    return api::CUBLASLT_EPILOGUE_BIAS;
  case plan::Epilogue::GELU:
    return epilogue.keeps_input() ? api::CUBLASLT_EPILOGUE_GELU_AUX_BIAS : api::CUBLASLT_EPILOGUE_GELU_BIAS;
  case plan::Epilogue::GELU_GRADIENT:
    return epilogue.sums() ? api::CUBLASLT_EPILOGUE_DGELU_BGRAD : api::CUBLASLT_EPILOGUE_DGELU;
  default:
    return epilogue.sums() == plan::Epilogue::OF_B   ? api::CUBLASLT_EPILOGUE_BGRADA
           : epilogue.sums() == plan::Epilogue::OF_A ? api::CUBLASLT_EPILOGUE_BGRADB
                                                     : api::CUBLASLT_EPILOGUE_DEFAULT;
  }
}

/// For messages and for the record; "" without an epilogue.
std::string epilogueText(const plan::MatmulCall &call) {
  const plan::Epilogue &epilogue = call.epilogue();
  return call.has_epilogue() ? fmt::format("{}{}{}{}", kEpilogueText, plan::Epilogue::Kind_Name(epilogue.kind()),
                                           epilogue.keeps_input()    ? " KEEPS_INPUT"
                                           : epilogue.bias_of_each() ? " OF_EACH"
                                                                     : "",
                                           epilogue.sums() ? " SUMS_" + plan::Epilogue::Sums_Name(epilogue.sums()) : "")
                             : "";
}

} // namespace

BlasOperands BlasOperands::of(const plan::MatmulCall &call, std::span<const api::CUdeviceptr> pointers,
                              api::CUdeviceptr workspace) {
  const plan::Epilogue &epilogue = call.epilogue();
  BlasOperands operands{.a = pointers[0], .b = pointers[1], .workspace = workspace};
  if (!call.has_epilogue()) {
    operands.c = pointers[call.accumulate() ? 3 : 2]; // the addend and C share their memory
    return operands;
  }
  const plan::EpilogueOperands at = plan::EpilogueOperands::of(epilogue);
  auto addressOf = [&](int operand) { return operand < 0 ? 0 : pointers[static_cast<size_t>(operand)]; };
  operands.c = addressOf(at.c);
  operands.vector = addressOf(at.sums);
  operands.matrix = addressOf(at.kept);
  if (epilogue.kind() != plan::Epilogue::NONE)
    (epilogue.kind() == plan::Epilogue::GELU_GRADIENT ? operands.matrix : operands.vector) = addressOf(at.added);
  return operands;
}

Expected<BlasProduct> BlasProduct::describe(std::shared_ptr<const BlasLibrary> shared, api::cublasLtHandle_t handle,
                                            const plan::MatmulCall &call, const BlasOperands &operands) {
  const BlasLibrary &library = *shared;
  auto type = blasTypeOf(call.dtype());
  auto resultType = blasTypeOf(call.result_dtype() == plan::DTYPE_NONE ? call.dtype() : call.result_dtype());
  if (!type || !resultType)
    return type ? resultType.status() : type.status();
  BlasProduct product;
  product.library = shared;
  product.handle = handle;
  product.call = call;
  product.operands = operands;
  product.isDouble = *type == api::CUDA_R_64F;

  api::cublasLtMatmulDesc_t desc = nullptr;
  api::cublasComputeType_t compute = product.isDouble ? api::CUBLAS_COMPUTE_64F
                                     : call.tf32()    ? api::CUBLAS_COMPUTE_32F_FAST_TF32
                                                      : api::CUBLAS_COMPUTE_32F;
  if (Status status =
          library.check(library->descCreate(&desc, compute, product.isDouble ? api::CUDA_R_64F : api::CUDA_R_32F),
                        "describing a product");
      !status.ok())
    return status;
  product.desc.reset(desc, [shared](api::cublasLtMatmulDesc_t made) { (void)(*shared)->descDestroy(made); });
  for (auto [attribute, transposed] : {std::pair(api::CUBLASLT_MATMUL_DESC_TRANSA, call.trans_b()),
                                       std::pair(api::CUBLASLT_MATMUL_DESC_TRANSB, call.trans_a())}) {
    int32_t operation = transposed ? api::CUBLAS_OP_T : api::CUBLAS_OP_N;
    if (Status status = library.check(library->descSetAttribute(desc, attribute, &operation, sizeof operation),
                                      "describing a product");
        !status.ok())
      return status;
  }

  auto describe = [&](api::cublasLtMatmulDescAttributes_t attribute, auto value) {
    return library.check(library->descSetAttribute(desc, attribute, &value, sizeof value), "describing an epilogue");
  };
  Status status = call.has_epilogue()
                      ? describe(api::CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogueOf(call.epilogue())))
                      : Status();
  if (status.ok() && operands.vector)
    status = describe(api::CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector);
  if (status.ok() && call.epilogue().bias_of_each())
    status = describe(api::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int64_t(call.n()));
  if (status.ok() && operands.matrix)
    status = describe(api::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.matrix);
  if (status.ok() && operands.matrix)
    status = describe(api::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(call.n()));
  if (!status.ok())
    return status;

  // Describes a matrix of `rows` × `columns` in our (row-major) terms, with row stride `next`.
  auto layout = [&](api::cudaDataType element, int64_t rows, int64_t columns, int64_t next,
                    Owned<api::cublasLtMatrixLayout_t> &into) -> Status {
    api::cublasLtMatrixLayout_t made = nullptr;
    if (Status status = library.check(
            library->layoutCreate(&made, element, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), next),
            "describing a matrix");
        !status.ok())
      return status;
    into.reset(made, [shared](api::cublasLtMatrixLayout_t old) { (void)(*shared)->layoutDestroy(old); });
    auto batch = static_cast<int32_t>(call.batch());
    int64_t stride = rows * next;
    Status status =
        library.check(library->layoutSetAttribute(made, api::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
                      "describing a batch");
    return status.ok()
               ? library.check(library->layoutSetAttribute(made, api::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                           &stride, sizeof stride),
                               "describing a batch")
               : status;
  };
  const int64_t columnsOfA = call.trans_a() ? call.m() : call.k(), columnsOfB = call.trans_b() ? call.k() : call.n();
  status = layout(*type, call.trans_b() ? call.n() : call.k(), columnsOfB, columnsOfB, product.layoutOfA);
  if (status.ok())
    status = layout(*type, call.trans_a() ? call.k() : call.m(), columnsOfA,
                    operands.rowOfA ? operands.rowOfA : columnsOfA, product.layoutOfB);
  if (status.ok())
    status = layout(*resultType, call.m(), call.n(), call.n(), product.layoutOfC);
  return status.ok() ? Expected<BlasProduct>(std::move(product)) : status;
}

std::string productText(const plan::MatmulCall &call, const BlasOperands &operands) {
  const plan::DType result = call.result_dtype() == plan::DTYPE_NONE ? call.dtype() : call.result_dtype();
  std::string text = fmt::format(
      "{} x {} x {} x {}, {}{} x {}{} -> {}{}{}{}, workspace {}, aligned {} {} {}", call.batch(), call.m(), call.n(),
      call.k(), plan::DType_Name(call.dtype()), call.trans_a() ? " transposed" : "", plan::DType_Name(call.dtype()),
      call.trans_b() ? " transposed" : "", plan::DType_Name(result), call.tf32() ? " in TF32" : "",
      call.accumulate() ? ", added" : "", epilogueText(call), call.library_scratch_bytes(), alignmentOf(operands.a),
      alignmentOf(operands.b), alignmentOf(operands.c));
  if (operands.rowOfA)
    text += fmt::format(", rows of the first {} apart", operands.rowOfA);
  for (auto [name, address] : {std::pair("vector", operands.vector), std::pair("matrix", operands.matrix)})
    if (address)
      text += fmt::format(" {} {}", name, alignmentOf(address));
  return text;
}

Expected<std::vector<BlasAlgorithm>> BlasProduct::candidates(int most) const {
  const std::shared_ptr<const BlasLibrary> shared = library;
  api::cublasLtMatmulPreference_t made = nullptr;
  Status status = library->check((*library)->preferenceCreate(&made), "asking for an algorithm");
  if (!status.ok())
    return status;
  Owned<api::cublasLtMatmulPreference_t> preference(
      made, [shared](api::cublasLtMatmulPreference_t old) { (void)(*shared)->preferenceDestroy(old); });
  auto prefer = [&](api::cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status.ok())
      status = library->check((*library)->preferenceSetAttribute(made, attribute, &value, sizeof value),
                              "asking for an algorithm");
  };
  prefer(api::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(call.library_scratch_bytes()));
  prefer(api::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kFixedOrder);
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignmentOf(operands.b));
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignmentOf(operands.a));
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignmentOf(operands.c));
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignmentOf(operands.c));
  if (!status.ok())
    return status;
  std::vector<api::cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  api::cublasStatus_t answer =
      (*library)->heuristic(handle, desc.get(), layoutOfA.get(), layoutOfB.get(), layoutOfC.get(), layoutOfC.get(),
                            made, most, results.data(), &count);
  std::vector<BlasAlgorithm> found;
  for (int i = 0; answer == api::CUBLAS_STATUS_SUCCESS && i < count; ++i)
    if (const api::cublasLtMatmulHeuristicResult_t &result = results[static_cast<size_t>(i)];
        result.state == api::CUBLAS_STATUS_SUCCESS && result.workspaceSize <= call.library_scratch_bytes() &&
        hasFixedOrder(*library, result.algo))
      found.push_back({result.algo, result.workspaceSize});
  if (!found.empty())
    return found;
  return error(
      "cuBLASLt {} has no algorithm for {} products of {} x {} x {} in {}{} within {} bytes of workspace: {}{}",
      library->version(), call.batch(), call.m(), call.n(), call.k(), plan::DType_Name(call.dtype()),
      epilogueText(call), call.library_scratch_bytes(), (*library)->getStatusString(answer),
      call.has_epilogue() ? fmt::format("; compile with {}, which computes it in kernels",
                                        advice::compileSet("compiler.epilogues", "none"))
                          : "");
}

Expected<BlasAlgorithm> BlasProduct::check(const api::cublasLtMatmulAlgo_t &algo) const {
  api::cublasLtMatmulHeuristicResult_t result{};
  api::cublasStatus_t answer = (*library)->algoCheck(handle, desc.get(), layoutOfA.get(), layoutOfB.get(),
                                                     layoutOfC.get(), layoutOfC.get(), &algo, &result);
  if (answer != api::CUBLAS_STATUS_SUCCESS)
    return error("{}", (*library)->getStatusString(answer));
  if (result.workspaceSize > call.library_scratch_bytes())
    return error("it takes {} bytes of workspace, the plan has {}", result.workspaceSize, call.library_scratch_bytes());
  if (!hasFixedOrder(*library, algo))
    return error("it adds parts of K in an order that is not fixed");
  return BlasAlgorithm{algo, result.workspaceSize};
}

std::string BlasProduct::codeOf(const BlasAlgorithm &algorithm) {
  std::string code;
  for (uint64_t word : algorithm.algo.data)
    code += fmt::format("{:016x}", word);
  return code;
}

Expected<BlasAlgorithm> BlasProduct::fromCode(const std::string &code) const {
  std::optional<api::cublasLtMatmulAlgo_t> algo = algoOf(code);
  return algo ? check(*algo) : error("its code is damaged");
}

std::string BlasProduct::aboutOf(const BlasAlgorithm &algorithm) const {
  auto number = [&](api::cublasLtMatmulAlgoConfigAttributes_t attribute) {
    int32_t value = 0;
    size_t written = 0;
    (void)(*library)->algoConfigGetAttribute(&algorithm.algo, attribute, &value, sizeof value, &written);
    return value;
  };
  const int32_t parts = std::max(1, number(api::CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
  return fmt::format("algorithm {}, tile {}, K in {} part{}", number(api::CUBLASLT_ALGO_CONFIG_ID),
                     number(api::CUBLASLT_ALGO_CONFIG_TILE_ID), parts, parts == 1 ? "" : "s");
}

std::vector<MemoryRange> BlasProduct::operandRanges() const {
  const plan::DType result = call.result_dtype() == plan::DTYPE_NONE ? call.dtype() : call.result_dtype();
  auto bytes = [&](int64_t rows, int64_t columns, plan::DType type) {
    return static_cast<uint64_t>(call.batch() * rows * columns) * plan::dtypeBytes(type);
  };
  const uint64_t bytesOfA = operands.rowOfA
                                ? bytes(call.k() - 1, operands.rowOfA, call.dtype()) + bytes(1, call.m(), call.dtype())
                                : bytes(call.m(), call.k(), call.dtype());
  std::vector<MemoryRange> ranges = {{operands.a, bytesOfA},
                                     {operands.b, bytes(call.k(), call.n(), call.dtype())},
                                     {operands.c, bytes(call.m(), call.n(), result)}};
  const int64_t elements = call.epilogue().sums() == plan::Epilogue::OF_A ? call.m() : call.n(),
                vectors = call.epilogue().bias_of_each() ? call.batch() : 1;
  if (operands.vector)
    ranges.push_back({operands.vector, static_cast<uint64_t>(vectors * elements) * plan::dtypeBytes(result)});
  if (operands.matrix)
    ranges.push_back({operands.matrix, bytes(call.m(), call.n(), result)});
  return ranges;
}

Status BlasProduct::submit(api::CUstream stream) const {
  const float one = 1, zero = 0;
  const double wideOne = 1, wideZero = 0;
  const void *alpha = isDouble ? static_cast<const void *>(&wideOne) : &one;
  const void *beta = call.accumulate() ? alpha : isDouble ? static_cast<const void *>(&wideZero) : &zero;
  auto at = [](api::CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  return library->check(
      (*library)->matmul(handle, desc.get(), alpha, at(operands.b), layoutOfA.get(), at(operands.a), layoutOfB.get(),
                         beta, at(operands.c), layoutOfC.get(), at(operands.c), layoutOfC.get(), &algorithm.algo,
                         algorithm.workspaceBytes ? at(operands.workspace) : nullptr, algorithm.workspaceBytes, stream),
      "submitting a product");
}

} // namespace tcc::cuda
