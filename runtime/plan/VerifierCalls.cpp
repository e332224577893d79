//===- VerifierCalls.cpp - checks that each call fits its operands --------===//
#include "runtime/plan/AttentionLayout.h"
#include "runtime/plan/CallKernels.h"
#include "runtime/plan/FourBits.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/ProductSlices.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VerifierImpl.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <utility>

namespace tcc::plan::verifier {

uint64_t operandBytes(const Entry &entry, const Instruction &instruction, int index) {
  const Operand &operand = instruction.operands(index);
  const Buffer &buffer = entry.buffers(static_cast<int>(operand.buffer()));
  return buffer.bytes() - operand.byte_offset();
}

namespace {
const char *accessName(bool read, bool write) {
  return read && write ? "read and written" : read ? "read" : write ? "written" : "not touched";
}

/// Sizes above this are refused, so that products stay in 62 bits or saturate.
constexpr int64_t kMaxDim = int64_t(1) << 40;

/// One instruction under examination.
struct Call {
  const SignatureIndex &signatures;
  const Entry &entry;
  int index;
  const Instruction &instruction;
  Reporter &report;

  std::string where() const { return describeInstruction(entry, index); }

  bool operandCount(const char *kind, int wanted) const {
    if (instruction.operands_size() == wanted)
      return true;
    report("{}: a {} takes {} operands, it has {}", where(), kind, wanted, instruction.operands_size());
    return false;
  }

  /// Operand `position` must offer `bytes` and be aligned to an element.
  void reaches(int position, std::string_view role, uint64_t bytes, uint64_t elementBytes) const {
    const Operand &operand = instruction.operands(position);
    std::string buffer = describe(entry, operand.buffer());
    if (operandBytes(entry, instruction, position) < bytes)
      report("{}: {} needs {} bytes, {} offers {} from byte {} on", where(), role, bytes, buffer,
             operandBytes(entry, instruction, position), operand.byte_offset());
    if (elementBytes && operand.byte_offset() % elementBytes != 0)
      report("{}: {} starts inside an element of {}: byte offset {}", where(), role, buffer, operand.byte_offset());
  }

  /// The same, and it must be read or written as `written` says.
  void operand(int position, const char *role, uint64_t bytes, uint64_t elementBytes, bool written) const {
    reaches(position, role, bytes, elementBytes);
    const Operand &operand = instruction.operands(position);
    std::string buffer = describe(entry, operand.buffer());
    if (written ? !operand.write() : (!operand.read() || operand.write()))
      report("{}: {} ({}) must be {}", where(), role, buffer, written ? "marked as written" : "read only");
  }

  /// An in-place pair of operands that start at one address.
  bool sameMemory(int source, int destination) const {
    auto buffer = [&](int position) -> const Buffer & {
      return entry.buffers(static_cast<int>(instruction.operands(position).buffer()));
    };
    bool declared = false;
    for (const InPlace &pair : instruction.in_place())
      declared |=
          pair.source() == static_cast<uint32_t>(source) && pair.destination() == static_cast<uint32_t>(destination);
    return declared && buffer(source).arena() == buffer(destination).arena() &&
           buffer(source).offset() + instruction.operands(source).byte_offset() ==
               buffer(destination).offset() + instruction.operands(destination).byte_offset();
  }
};

/// The signature of a kernel with this number of operands, or null after a message.
const KernelSignature *findSignature(const Call &call, const KernelCall &kernel, int operands) {
  if (kernel.code() >= call.signatures.size()) {
    call.report("{}: code object {} does not exist, the plan has {}", call.where(), kernel.code(),
                call.signatures.size());
    return nullptr;
  }
  const auto &symbols = call.signatures[kernel.code()];
  auto found = symbols.find(kernel.symbol());
  if (found == symbols.end()) {
    call.report("{}: code object {} has no signature of a kernel '{}'", call.where(), kernel.code(), kernel.symbol());
    return nullptr;
  }
  const KernelSignature &signature = *found->second;
  if (kernel.tiles() != signature.tiles()) {
    call.report("{}: a call of {} tiles, kernel '{}' has {}", call.where(), kernel.tiles(), kernel.symbol(),
                signature.tiles());
    return nullptr;
  }
  if (operands != signature.operands_size()) {
    call.report("{}: kernel '{}' takes {} operands, it is given {}", call.where(), kernel.symbol(),
                signature.operands_size(), operands);
    return nullptr;
  }
  return &signature;
}

/// The call's operands from `first` on must provide the memory that the signature's from `firstOfKernel` on access.
void verifyAgainst(const Call &call, const KernelSignature &signature, int first, int firstOfKernel) {
  int shift = first - firstOfKernel;
  for (int i = firstOfKernel; i < signature.operands_size(); ++i) {
    const KernelSignature::Operand &wanted = signature.operands(i);
    const Operand &operand = call.instruction.operands(i + shift);
    std::string role = fmt::format("operand {} of kernel '{}'", i, signature.symbol());
    call.reaches(i + shift, role, wanted.bytes(), wanted.alignment());
    if (operand.read() != wanted.read() || operand.write() != wanted.write())
      call.report("{}: {} ({}) is {}, the plan says it is {}", call.where(), role,
                  describe(call.entry, operand.buffer()), accessName(wanted.read(), wanted.write()),
                  accessName(operand.read(), operand.write()));
  }
  for (const InPlace &pair : call.instruction.in_place()) {
    bool allowed = false;
    for (const KernelSignature::Pair &known : signature.in_place())
      allowed |= int64_t(known.source()) + shift == pair.source() &&
                 int64_t(known.destination()) + shift == pair.destination();
    if (!allowed)
      call.report("{}: kernel '{}' cannot write its operand {} in place of {}", call.where(), signature.symbol(),
                  int64_t(pair.destination()) - shift, int64_t(pair.source()) - shift);
  }
  for (const KernelSignature::Pair &pair : signature.in_place())
    if (pair.required() &&
        !call.sameMemory(static_cast<int>(pair.source()) + shift, static_cast<int>(pair.destination()) + shift))
      call.report("{}: kernel '{}' updates its operand {} in place, which is not where operand {} is", call.where(),
                  signature.symbol(), pair.source(), pair.destination());
}

void verifyKernel(const Context &context, const Call &call, const KernelCall &kernel) {
  const KernelSignature *signature = findSignature(call, kernel, call.instruction.operands_size());
  if (!signature)
    return;
  if (takesFirstTile(context.plan, *signature))
    call.report("{}: kernel '{}' takes slices of a product, but no product calls it", call.where(), kernel.symbol());
  verifyAgainst(call, *signature, 0, 0);
  if (call.instruction.scratch_slot_bytes() < signature->scratch_bytes())
    call.report("{}: kernel '{}' needs {} bytes of scratch for each worker, the plan has {}", call.where(),
                kernel.symbol(), signature->scratch_bytes(), call.instruction.scratch_slot_bytes());
  verifyGrid(context, call.entry, call.index, kernel, *signature);
}

/// The kernel behind a product: its first operand is the product's rows in a worker's scratch (on a card, a slice of
/// them). The kernel itself has no scratch.
void verifyRowKernel(const Context &context, const Call &call, const MatmulCall &matmul) {
  const KernelSignature *signature = findSignature(call, matmul.row_kernel(), matmul.row_operands() + 1);
  if (!signature)
    return;
  const KernelSignature::Operand &rows = signature->operands(0);
  uint64_t rowBytes = saturatingProduct({4, static_cast<uint64_t>(matmul.n())});
  if (!rows.read() || rows.write() ||
      rows.bytes() != saturatingProduct({rowBytes, static_cast<uint64_t>(matmul.m())}) ||
      (!hasSlices(matmul) &&
       rows.tile_bytes() != saturatingProduct({rowBytes, static_cast<uint64_t>(matmul.tile_m())})))
    call.report("{}: kernel '{}' does not read {} rows of {} f32 values of the product a tile", call.where(),
                signature->symbol(), matmul.tile_m(), matmul.n());
  if (signature->scratch_bytes() > 0)
    call.report("{}: kernel '{}' needs scratch, which a kernel behind a product does not get", call.where(),
                signature->symbol());
  for (const KernelSignature::Pair &pair : signature->in_place())
    if (pair.required() && pair.source() == 0)
      call.report("{}: kernel '{}' updates the product's rows, which are not in memory", call.where(),
                  signature->symbol());
  verifyAgainst(call, *signature, 2, 1);
  if (hasSlices(matmul))
    verifySlices(context, call.entry, call.index, *signature);
}

/// A product whose rows go to a kernel: it computes whole rows of C in f32, a few at a time, and never stores all of C.
void verifyRowwise(const Context &context, const Call &call, const MatmulCall &matmul) {
  if (matmul.row_operands() < 1 || matmul.row_operands() > call.instruction.operands_size()) {
    call.report("{}: a kernel with {} operands beside the rows of a product", call.where(), matmul.row_operands());
    return;
  }
  if (!call.operandCount("matmul whose rows go to a kernel", 2 + matmul.row_operands()))
    return;
  verifyRowKernel(context, call, matmul);
  uint64_t size = dtypeBytes(matmul.dtype()), m = matmul.m(), n = matmul.n(), k = matmul.k();
  uint64_t sizeOfB = matmul.rounds_b() ? dtypeBytes(F32) : size;
  call.operand(0, "A", saturatingProduct({size, m, k}), size, false);
  call.operand(1, "B", saturatingProduct({sizeOfB, k, n}), sizeOfB, false);
  DType result = matmul.result_dtype() == DTYPE_NONE ? matmul.dtype() : matmul.result_dtype();
  if (matmul.batch() != 1 || matmul.accumulate() || result != F32 || matmul.tile_n() != matmul.n() ||
      matmul.chunk_k() != matmul.k())
    call.report("{}: a matmul whose rows go to a kernel must be one product in f32 of whole rows, without addend",
                call.where());
  if (int64_t tiles = (matmul.m() - 1) / matmul.tile_m() + 1;
      !hasSlices(matmul) && matmul.row_kernel().tiles() != tiles)
    call.report("{}: the kernel has {} tiles, the product's rows come in {}", call.where(), matmul.row_kernel().tiles(),
                tiles);
  // The product reads A and B until its last tile is done; by then the kernel has written results of earlier tiles.
  for (const InPlace &pair : call.instruction.in_place())
    if (pair.source() < 2)
      call.report("{}: the kernel writes in place of {}, which the product reads", call.where(),
                  describe(call.entry, call.instruction.operands(static_cast<int>(pair.source())).buffer()));
  for (int i = 2; i < call.instruction.operands_size(); ++i)
    for (int factor : {0, 1})
      if (call.instruction.operands(i).write() &&
          call.instruction.operands(i).buffer() == call.instruction.operands(factor).buffer())
        call.report("{}: the kernel writes {}, which the product reads", call.where(),
                    describe(call.entry, call.instruction.operands(i).buffer()));
}

/// The kernels of a library's call must access the call's operands as it does, read what is read or was written before,
/// write all of its results, and have no scratch but the sums that one passes to the next.
void verifyKernelsOf(const Context &context, const Call &call) {
  const Instruction &instruction = call.instruction;
  const KernelCalls &kernels = kernelsOf(instruction);
  if (kernels.empty())
    return;
  const std::vector<std::vector<int>> operands = callKernelOperands(instruction);
  if (kernels.size() != static_cast<int>(operands.size()))
    return call.report("{}: {} kernels compute {}, {} were expected", call.where(), kernels.size(),
                       instruction.has_attention() ? "attention" : "the epilogue", operands.size());
  const uint64_t sumBytes = callKernelScratchBytes(instruction), scratch = instruction.scratch_slot_bytes();
  if (sumBytes > 0 && (scratch < kLibraryWorkspaceAlignment || scratch - kLibraryWorkspaceAlignment < sumBytes))
    call.report("{}: scratch of {} bytes does not hold aligned sums of {}, which its kernels write", call.where(),
                scratch, sumBytes);
  bool summed = false;
  std::vector<char> filled; // operands that have values
  for (const Operand &operand : instruction.operands())
    filled.push_back(operand.read());
  if (const std::vector<int> plain = plainCallOf(instruction).second; !plain.empty())
    filled[static_cast<size_t>(plain.back())] = 1;
  for (int k = 0; k < kernels.size(); ++k) {
    const KernelCall &kernel = kernels.Get(k);
    const std::vector<int> &own = operands[static_cast<size_t>(k)];
    const KernelSignature *signature = findSignature(call, kernel, static_cast<int>(own.size()));
    if (!signature)
      continue;
    for (size_t i = 0; i < own.size(); ++i) {
      const KernelSignature::Operand &wanted = signature->operands(static_cast<int>(i));
      std::string role = fmt::format("operand {} of kernel '{}'", i, kernel.symbol());
      if (own[i] == kInScratch) {
        const bool written = !std::exchange(summed, true);
        if (wanted.read() == written || wanted.write() != written || wanted.bytes() > sumBytes)
          call.report("{}: {} is {} and of {} bytes, the sums in the scratch are {} and take {}", call.where(), role,
                      accessName(wanted.read(), wanted.write()), wanted.bytes(), accessName(!written, written),
                      sumBytes);
        continue;
      }
      call.reaches(own[i], role, wanted.bytes(), wanted.alignment());
      const Operand &operand = call.instruction.operands(own[i]);
      if ((wanted.write() && !operand.write()) || (wanted.read() && !filled[static_cast<size_t>(own[i])]))
        call.report("{}: {} ({}) is {}, the plan says it is {}", call.where(), role,
                    describe(call.entry, operand.buffer()), accessName(wanted.read(), wanted.write()),
                    accessName(operand.read(), operand.write()));
      for (size_t j = 0; j < i; ++j) {
        const bool updates = own[j] == own[i] && (wanted.write() || signature->operands(static_cast<int>(j)).write());
        const bool allowed = std::any_of(
            signature->in_place().begin(), signature->in_place().end(),
            [&](const KernelSignature::Pair &pair) { return pair.source() == j && pair.destination() == i; });
        if (updates && !allowed)
          call.report("{}: kernel '{}' cannot write its operand {} in place of {}", call.where(), kernel.symbol(), i,
                      j);
      }
    }
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i] != kInScratch && signature->operands(static_cast<int>(i)).write())
        filled[static_cast<size_t>(own[i])] = 1;
    if (signature->scratch_bytes() > 0 || isJoined(kernel.symbol()) || takesFirstTile(context.plan, *signature))
      call.report(
          "{}: kernel '{}' has scratch of its own, shares its launch or takes slices, which no kernel of a call "
          "does",
          call.where(), kernel.symbol());
    for (const KernelSignature::Pair &pair : signature->in_place())
      if (pair.required() && own[pair.source()] != own[pair.destination()])
        call.report("{}: kernel '{}' writes its operand {} in place of {}, which {} does not", call.where(),
                    kernel.symbol(), pair.destination(), pair.source(),
                    instruction.has_attention() ? "attention" : "the epilogue");
    verifyGrid(context, call.entry, call.index, kernel, *signature);
  }
  for (size_t i = 0; i < filled.size(); ++i)
    if (!filled[i])
      call.report("{}: its kernels do not write operand {} ({})", call.where(), i,
                  describe(call.entry, instruction.operands(static_cast<int>(i)).buffer()));
}

/// A product with an epilogue; a batch may only have a bias. All tensors of the epilogue have the result's type.
void verifyEpilogue(const Context &context, const Call &call, const MatmulCall &matmul) {
  const Epilogue &epilogue = matmul.epilogue();
  const bool none = epilogue.kind() == Epilogue::NONE, gradient = epilogue.kind() == Epilogue::GELU_GRADIENT;
  const bool ofOperand = epilogue.sums() == Epilogue::OF_A || epilogue.sums() == Epilogue::OF_B;
  const bool known = Epilogue::Kind_IsValid(epilogue.kind()) && Epilogue::Sums_IsValid(epilogue.sums()) &&
                     (none ? ofOperand : !ofOperand) && (epilogue.sums() != Epilogue::OF_RESULT || gradient) &&
                     (!epilogue.keeps_input() || epilogue.kind() == Epilogue::GELU) &&
                     (epilogue.kind() == Epilogue::BIAS || (matmul.batch() == 1 && !epilogue.bias_of_each())) &&
                     (!none || !epilogue.exact_bias()) && epilogue.sum_parts() >= 0 &&
                     epilogue.sum_parts() <= (epilogue.sums() == Epilogue::NO_SUMS ? 0 : kMostSumParts);
  const DType result = matmul.result_dtype() == DTYPE_NONE ? matmul.dtype() : matmul.result_dtype();
  if (!known || matmul.accumulate() || matmul.chunk_k() != matmul.k()) {
    call.report("{}: a matmul with an epilogue that no library has for it", call.where());
    return;
  }
  const EpilogueOperands at = EpilogueOperands::of(epilogue);
  if (!call.operandCount("matmul with this epilogue", at.count))
    return;
  const uint64_t factor = dtypeBytes(matmul.dtype()), size = dtypeBytes(result), batch = matmul.batch(), m = matmul.m(),
                 n = matmul.n(), k = matmul.k();
  call.operand(0, "A", saturatingProduct({factor, batch, m, k}), factor, false);
  call.operand(1, "B", saturatingProduct({factor, batch, k, n}), factor, false);
  const uint64_t biases = epilogue.bias_of_each() ? batch : 1;
  if (!none)
    call.operand(at.added, gradient ? "the epilogue's matrix" : "the bias",
                 saturatingProduct({size, gradient ? m : biases, n}), size, false);
  if (epilogue.exact_bias()) // in f32, or in the type of C
    call.operand(at.bias, "the bias that kernels add", saturatingProduct({size, biases, n}), size, false);
  call.operand(at.c, "C", saturatingProduct({size, batch, m, n}), size, true);
  if (epilogue.keeps_input())
    call.operand(at.kept, "the kept input", saturatingProduct({size, m, n}), size, true);
  if (at.sums >= 0)
    call.operand(at.sums, "the sums", saturatingProduct({size, epilogue.sums() == Epilogue::OF_A ? m : n}), size, true);
  for (const InPlace &pair : call.instruction.in_place())
    call.report("{}: a matmul with an epilogue cannot write operand {} in place of {}", call.where(),
                pair.destination(), pair.source());
  verifyKernelsOf(context, call);
}

/// True if the codes of a product's B are those of a matrix [k, n].
bool fitsProduct(const MatmulCall &matmul) {
  const FourBits &b = matmul.four_bits();
  return isWellFormed(b) && b.dims_size() == 2 && b.dims(0) == matmul.k() && b.dims(1) == matmul.n();
}

void verifyMatmul(const Context &context, const Call &call, const MatmulCall &matmul) {
  for (auto [name, value] : {std::pair{"batch", matmul.batch()},
                             {"m", matmul.m()},
                             {"n", matmul.n()},
                             {"k", matmul.k()},
                             {"tile_m", matmul.tile_m()},
                             {"tile_n", matmul.tile_n()},
                             {"tile_batch", matmul.tile_batch()},
                             {"chunk_k", matmul.chunk_k()}})
    if (value <= 0 || value > kMaxDim) {
      call.report("{}: a matmul with {} = {}", call.where(), name, value);
      return;
    }
  uint64_t size = dtypeBytes(matmul.dtype());
  if (size == 0) {
    call.report("{}: a matmul without element type", call.where());
    return;
  }
  uint64_t batch = matmul.batch(), m = matmul.m(), n = matmul.n(), k = matmul.k();
  uint64_t chunks = (k + matmul.chunk_k() - 1) / matmul.chunk_k();
  const bool fourBits = matmul.has_four_bits();
  if (fourBits && (matmul.accumulate() || matmul.rounds_b() || matmul.has_row_kernel() || matmul.has_epilogue() ||
                   batch != 1 || (matmul.dtype() != F32 && matmul.dtype() != BF16) || !fitsProduct(matmul))) {
    call.report("{}: a matmul with a matrix in 4 bits that is not [k, n], or that does more than multiply",
                call.where());
    return;
  }
  if (matmul.has_row_kernel())
    return verifyRowwise(context, call, matmul);
  if (matmul.has_epilogue())
    return verifyEpilogue(context, call, matmul);
  // The addend D precedes C, which overwrites it; or the scales of a B in 4 bits and what belongs to them do.
  const bool zeros = fourBits && matmul.four_bits().grid().zeros() != BlockGrid::NONE,
             nested = fourBits && matmul.four_bits().nested();
  int c = zeros || nested ? 4 : matmul.accumulate() || fourBits ? 3 : 2;
  if (!call.operandCount("matmul", c + (chunks > 1 ? 2 : 1)))
    return;
  uint64_t sizeOfC = matmul.result_dtype() == DTYPE_NONE ? size : dtypeBytes(matmul.result_dtype());
  uint64_t bytesOfC = saturatingProduct({sizeOfC, batch, m, n});
  call.operand(0, "A", saturatingProduct({size, batch, m, k}), size, false);
  uint64_t sizeOfB = matmul.rounds_b() ? dtypeBytes(F32) : size;
  if (fourBits) {
    call.operand(1, "B", tensorBytes(bytesType(matmul.four_bits())).value_or(0), 1, false);
    const TensorType scales = scalesType(matmul.four_bits());
    call.operand(2, "the scales of B", tensorBytes(scales).value_or(0), dtypeBytes(scales.dtype()), false);
    if (nested)
      call.operand(3, "the numbers of B's nested scales", tensorBytes(nestedType(matmul.four_bits())).value_or(0), 4,
                   false);
    if (zeros) {
      const TensorType type = zerosType(matmul.four_bits());
      call.operand(3, "the zero points of B", tensorBytes(type).value_or(0), dtypeBytes(type.dtype()), false);
    }
  } else {
    call.operand(1, "B", saturatingProduct({sizeOfB, batch, k, n}), sizeOfB, false);
  }
  call.operand(c, "C", bytesOfC, sizeOfC, true);
  if (matmul.accumulate()) {
    call.operand(2, "the addend", bytesOfC, sizeOfC, false);
    if (!call.sameMemory(2, c))
      call.report("{}: the addend is not in the memory of C", call.where());
  }
  for (const InPlace &pair : call.instruction.in_place())
    if (pair.source() != 2 || pair.destination() != static_cast<uint32_t>(c) || !matmul.accumulate())
      call.report("{}: a matmul cannot write operand {} in place of {}", call.where(), pair.destination(),
                  pair.source());
  if (chunks > 1)
    call.operand(c + 1, "the partial sums", saturatingProduct({4, chunks, batch, m, n}), 4, true);
}

/// Grouped convolution: y = floor((x + pads - dilation (w - 1) - 1) / stride) + 1 on each spatial axis.
bool convolutionShapesFit(const Call &call, const ConvolutionCall &conv) {
  int rank = conv.x_dims_size(), spatial = rank - 2;
  if (rank < 3 || rank > 5 || conv.w_dims_size() != rank || conv.y_dims_size() != rank ||
      conv.strides_size() != spatial || conv.dilations_size() != spatial || conv.pads_begin_size() != spatial ||
      conv.pads_end_size() != spatial) {
    call.report("{}: the convolution's ranks do not fit: x {}, w {}, y {}, {} strides, {} dilations", call.where(),
                rank, conv.w_dims_size(), conv.y_dims_size(), conv.strides_size(), conv.dilations_size());
    return false;
  }
  for (const auto *dims : {&conv.x_dims(), &conv.w_dims(), &conv.y_dims()})
    for (int64_t dim : *dims)
      if (dim <= 0 || dim > kMaxDim) {
        call.report("{}: a convolution with a dimension of {}", call.where(), dim);
        return false;
      }
  int64_t groups = conv.groups();
  if (groups <= 0 || conv.x_dims(1) % groups != 0 || conv.w_dims(0) % groups != 0 ||
      conv.w_dims(1) != conv.x_dims(1) / groups || conv.y_dims(1) != conv.w_dims(0) ||
      conv.y_dims(0) != conv.x_dims(0)) {
    call.report("{}: batch or channels do not fit: x {}, w {}, y {}, groups {}", call.where(),
                fmt::join(conv.x_dims(), "x"), fmt::join(conv.w_dims(), "x"), fmt::join(conv.y_dims(), "x"), groups);
    return false;
  }
  for (int i = 0; i < spatial; ++i) {
    int64_t stride = conv.strides(i), dilation = conv.dilations(i), begin = conv.pads_begin(i), end = conv.pads_end(i);
    bool valid = stride > 0 && dilation > 0 && begin >= 0 && end >= 0 && stride < kMaxDim && dilation < (1 << 20) &&
                 begin < kMaxDim && end < kMaxDim && conv.w_dims(i + 2) < kMaxDim >> 20;
    int64_t room = valid ? conv.x_dims(i + 2) + begin + end - (dilation * (conv.w_dims(i + 2) - 1) + 1) : -1;
    if (room < 0 || room / stride + 1 != conv.y_dims(i + 2)) {
      call.report("{}: spatial axis {} does not fit: x {}, w {}, y {}, stride {}, dilation {}, pads {} and {}",
                  call.where(), i, conv.x_dims(i + 2), conv.w_dims(i + 2), conv.y_dims(i + 2), stride, dilation, begin,
                  end);
      return false;
    }
  }
  return true;
}

uint64_t bytesOf(const google::protobuf::RepeatedField<int64_t> &dims, uint64_t size) {
  uint64_t bytes = size;
  for (int64_t dim : dims)
    bytes = saturatingProduct({bytes, static_cast<uint64_t>(dim)});
  return bytes;
}

void verifyConvolution(const Context &context, const Call &call, const ConvolutionCall &conv) {
  uint64_t size = dtypeBytes(conv.dtype());
  if (size == 0) {
    call.report("{}: a convolution without element type", call.where());
    return;
  }
  if (conv.tile_batch() <= 0) {
    call.report("{}: a convolution with tile_batch = {}", call.where(), conv.tile_batch());
    return;
  }
  if (!convolutionShapesFit(call, conv))
    return;
  uint64_t x = bytesOf(conv.x_dims(), size), w = bytesOf(conv.w_dims(), size), y = bytesOf(conv.y_dims(), size);
  uint64_t sizeOfW = conv.result_dtype() == DTYPE_NONE ? size : dtypeBytes(conv.result_dtype()); // as a result
  uint64_t chunks = (conv.x_dims(0) + conv.tile_batch() - 1) / conv.tile_batch();
  bool partial = conv.kind() == ConvolutionCall::WEIGHT_GRADIENT && (chunks > 1 || conv.partial_bytes() > 0);
  const bool finished = isFinished(conv);
  if (finished && (!ConvolutionCall::Finish_IsValid(conv.finish()) || conv.kind() != ConvolutionCall::FORWARD ||
                   conv.implementation() != ConvolutionCall::CUDNN || sizeOfW != size)) {
    call.report("{}: a convolution with a bias that no library has for it", call.where());
    return;
  }
  if (!finished && (conv.exact_bias() || conv.kernels_size() > 0)) {
    call.report("{}: kernels add a bias to a convolution that has none", call.where());
    return;
  }
  if (!call.operandCount(finished ? "convolution with a bias" : "convolution", finished  ? 4 + conv.exact_bias()
                                                                               : partial ? 4
                                                                                         : 3))
    return;
  switch (conv.kind()) {
  case ConvolutionCall::FORWARD:
    call.operand(0, "x", x, size, false);
    call.operand(1, "w", w, size, false);
    if (finished)
      call.operand(2, "the bias", saturatingProduct({size, static_cast<uint64_t>(conv.y_dims(1))}), size, false);
    if (conv.exact_bias())
      call.operand(3, "the bias that kernels add", saturatingProduct({4, static_cast<uint64_t>(conv.y_dims(1))}), 4,
                   false);
    call.operand(finished ? 3 + conv.exact_bias() : 2, "y", y, size, true);
    if (finished)
      verifyKernelsOf(context, call);
    break;
  case ConvolutionCall::INPUT_GRADIENT:
    call.operand(0, "dy", y, size, false);
    call.operand(1, "w", w, size, false);
    call.operand(2, "dx", x, size, true);
    break;
  case ConvolutionCall::WEIGHT_GRADIENT:
    call.operand(0, "x", x, size, false);
    call.operand(1, "dy", y, size, false);
    call.operand(2, "dw", bytesOf(conv.w_dims(), sizeOfW), sizeOfW, true);
    if (partial)
      call.operand(3, "the partial sums",
                   saturatingProduct({chunks, std::max(conv.partial_bytes(), bytesOf(conv.w_dims(), 4))}), 4, true);
    break;
  default:
    call.report("{}: unknown kind of convolution {}", call.where(), static_cast<int>(conv.kind()));
  }
}

/// An entry has no branches, so all ranks make the same sequence of collectives if they run the same entries with
/// collectives. That holds for the entries that end an update, which all ranks run once per step. With synchronised
/// normalisations it also holds for micro-batches, since all ranks then have the same number of them; evaluation,
/// prediction and gradients run on one rank alone.
void verifyCollective(const Context &context, const Call &call, const CollectiveCall &collective) {
  const std::string_view name = entries::baseOf(call.entry.name());
  const bool window = name == entries::kAccumulateFirst || name == entries::kAccumulateNext;
  const Parallel &parallel = context.plan.training().parallel();
  // Micro-batches communicate only to gather sharded parameters, to sum shards of gradients, and for statistics over
  // the batches of all ranks. Ranks evaluate together if parameters are sharded (Evaluate.cpp).
  const bool shards =
      collective.kind() == CollectiveCall::ALL_GATHER || collective.kind() == CollectiveCall::REDUCE_SCATTER;
  const bool together =
      (window && (shards || parallel.batch_norm() == "sync")) ||
      (name == entries::kEvaluate && collective.kind() == CollectiveCall::ALL_GATHER && shardsParameters(parallel));
  if (name != entries::kStep && name != entries::kUpdate && !together)
    call.report("{}: a collective in an entry that ranks do not run together; only '{}' and '{}' may have some",
                call.where(), entries::kStep, entries::kUpdate);
  if (!context.plan.training().has_parallel())
    call.report("{}: a collective in a plan for one rank", call.where());
  if (!CollectiveCall::Kind_IsValid(collective.kind()))
    call.report("{}: unknown kind of collective {}", call.where(), static_cast<int>(collective.kind()));
  if (collective.reach() != CollectiveCall::ALL &&
      (!CollectiveCall::Reach_IsValid(collective.reach()) || collective.kind() != CollectiveCall::ALL_REDUCE ||
       !replicatesShards(parallel)))
    call.report("{}: only an all-reduce of a plan with mode hybrid is for some of the ranks, not {} with reach {}",
                call.where(), collectiveName(collective.kind()), static_cast<int>(collective.reach()));
  if (collective.root() != 0)
    call.report("{}: a broadcast of rank {}; a plan for any number of ranks can name rank 0 alone", call.where(),
                collective.root());
  const int operands = call.instruction.operands_size(), half = operands / 2;
  if (operands == 0 || operands % 2 != 0) {
    call.report("{}: a collective takes pairs of source and destination, it has {} operands", call.where(), operands);
    return;
  }
  const auto kind = collective.kind();
  const bool sums = kind == CollectiveCall::ALL_REDUCE || kind == CollectiveCall::REDUCE_SCATTER;
  const char *sumName = kind == CollectiveCall::ALL_REDUCE ? "an all-reduce" : "a reduce-scatter";
  const bool cuts = kind == CollectiveCall::REDUCE_SCATTER || kind == CollectiveCall::OWN_SHARD;
  const bool gathers = kind == CollectiveCall::ALL_GATHER;
  const uint64_t ranks = parallel.ranks();
  if (sums && !isFloatingPoint(collective.dtype()))
    call.report("{}: {} of {}", call.where(), sumName, dtypeName(collective.dtype()));
  if ((cuts || gathers) && ranks == 0) {
    call.report("{}: shards in a plan that is for any number of ranks", call.where());
    return;
  }
  auto bufferOf = [&](int position) -> const Buffer & {
    return call.entry.buffers(static_cast<int>(call.instruction.operands(position).buffer()));
  };
  for (int i = 0; i < half; ++i) {
    const uint64_t bytes = tensorBytes(bufferOf(half + i).type()).value_or(0);
    if (sums && bufferOf(half + i).type().dtype() != collective.dtype())
      call.report("{}: {} of {} writes {}, which holds {}", call.where(), sumName, dtypeName(collective.dtype()),
                  describe(call.entry, call.instruction.operands(half + i).buffer()),
                  typeName(bufferOf(half + i).type()));
    // Whole buffers, so that the next instruction reads exactly the sums.
    call.operand(i, "a source", tensorBytes(bufferOf(i).type()).value_or(0), dtypeBytes(bufferOf(i).type().dtype()),
                 false);
    call.operand(half + i, "a destination", bytes, dtypeBytes(bufferOf(half + i).type().dtype()), true);
    const Buffer &whole = bufferOf(gathers ? half + i : i), &part = bufferOf(gathers ? i : half + i);
    const uint64_t elements = elementCount(whole.type()).value_or(0);
    if (whole.type().dtype() != part.type().dtype() ||
        elementCount(part.type()).value_or(0) != (cuts || gathers ? shardElements(elements, ranks) : elements))
      call.report("{}: {} becomes {} {}", call.where(), typeName(bufferOf(i).type()),
                  describe(call.entry, call.instruction.operands(half + i).buffer()),
                  typeName(bufferOf(half + i).type()));
  }
  for (const InPlace &pair : call.instruction.in_place())
    if (cuts || gathers || pair.destination() != pair.source() + static_cast<uint32_t>(half))
      call.report("{}: a collective cannot write its operand {} in place of {}", call.where(), pair.destination(),
                  pair.source());
}
} // namespace

void verifyCall(const Context &context, const Entry &entry, int index) {
  const Instruction &instruction = entry.instructions(index);
  Reporter &report = context.report;
  Call call{context.signatures, entry, index, instruction, report};
  switch (instruction.call_case()) {
  case Instruction::kKernel:
    return verifyKernel(context, call, instruction.kernel());
  case Instruction::kMatmul:
    verifyLibrary(context, entry, index);
    return verifyMatmul(context, call, instruction.matmul());
  case Instruction::kConvolution:
    verifyLibrary(context, entry, index);
    return verifyConvolution(context, call, instruction.convolution());
  case Instruction::kAttention:
    return verifyAttention(context, entry, index);
  case Instruction::kCopy:
    if (call.operandCount("copy", 2)) {
      call.operand(0, "the source", 0, 0, false);
      call.operand(1, "the destination", 0, 0, true);
    }
    return;
  case Instruction::kTransfer:
    if (call.operandCount("transfer", 2)) {
      const Buffer &from = entry.buffers(static_cast<int>(instruction.operands(0).buffer()));
      const Buffer &to = entry.buffers(static_cast<int>(instruction.operands(1).buffer()));
      call.operand(0, "the source", 0, 0, false);
      call.operand(1, "the destination", 0, 0, true);
      if (isOnHost(from.arena()) == isOnHost(to.arena()))
        report("{}: {} and {} are both {} the memory of the host", call.where(),
               describe(entry, instruction.operands(0).buffer()), describe(entry, instruction.operands(1).buffer()),
               isOnHost(from.arena()) ? "in" : "outside");
      if (from.type().dtype() != to.type().dtype() || elementCount(from.type()) != elementCount(to.type()) ||
          instruction.operands(0).byte_offset() != 0 || instruction.operands(1).byte_offset() != 0)
        report("{}: {} is not all of {}", call.where(), typeName(from.type()), typeName(to.type()));
    }
    return;
  case Instruction::kFill:
    if (call.operandCount("fill", 1)) {
      const Buffer &buffer = entry.buffers(static_cast<int>(instruction.operands(0).buffer()));
      call.operand(0, "the destination", 0, dtypeBytes(buffer.type().dtype()), true);
      if (dtypeBytes(buffer.type().dtype()) == 0)
        report("{}: {} has no element type to fill", call.where(), describe(entry, instruction.operands(0).buffer()));
    }
    return;
  case Instruction::kCollective:
    return verifyCollective(context, call, instruction.collective());
  case Instruction::CALL_NOT_SET:
    report("{}: it calls nothing", call.where());
  }
}

int64_t leastTiles(const Instruction &instruction) {
  auto ceilDiv = [](int64_t size, int64_t tile) { return size > 0 && tile > 0 ? (size - 1) / tile + 1 : 1; };
  Wide tiles = 0;
  if (instruction.has_matmul() && hasSlices(instruction.matmul())) {
    tiles = 1; // slices share their scratch
  } else if (instruction.has_matmul()) {
    const MatmulCall &call = instruction.matmul();
    tiles = Wide(ceilDiv(call.batch(), call.tile_batch()));
    for (int64_t pieces :
         {ceilDiv(call.m(), call.tile_m()), ceilDiv(call.n(), call.tile_n()), ceilDiv(call.k(), call.chunk_k())})
      tiles = std::min<Wide>(tiles * Wide(pieces), std::numeric_limits<int64_t>::max());
  }
  if (instruction.has_convolution() && instruction.convolution().x_dims_size() > 0)
    tiles = ceilDiv(instruction.convolution().x_dims(0), instruction.convolution().tile_batch());
  return int64_t(std::clamp<Wide>(tiles, 0, std::numeric_limits<int64_t>::max()));
}

namespace {
/// Engines read and write this many bytes at a time; they assume aligned addresses without checking.
constexpr uint64_t kAttentionAccessBytes = 16;
constexpr int64_t kMostAttentionSize = int64_t(1) << 31, kMostAttentionStride = int64_t(1) << 40;

/// One past the last element that a tensor reaches; 0 for invalid strides, or if two elements share an address.
uint64_t reachOf(const AttentionTensor &tensor, const AttentionCall::Tensor &at, uint64_t step) {
  if (at.strides_size() != 4 || at.strides(3) != 1 || at.offset() < 0 || at.offset() > kMostAttentionStride)
    return 0;
  if (static_cast<uint64_t>(at.offset()) % step != 0)
    return 0;
  std::vector<std::pair<int64_t, int64_t>> dims; // stride, extent
  Wide last = static_cast<Wide>(at.offset());
  for (int d = 0; d < 4; ++d) {
    const int64_t stride = at.strides(d), extent = tensor.dims[static_cast<size_t>(d)];
    if (stride < 1 || stride > kMostAttentionStride || (d < 3 && static_cast<uint64_t>(stride) % step != 0))
      return 0;
    last += Wide(stride) * Wide(extent - 1);
    if (extent > 1)
      dims.emplace_back(stride, extent);
  }
  std::sort(dims.begin(), dims.end());
  Wide walked = 1; // elements from the first to the last of the dimensions so far
  for (auto [stride, extent] : dims) {
    if (Wide(stride) < walked)
      return 0;
    walked += Wide(stride) * Wide(extent - 1);
  }
  constexpr auto kMost = Wide(1) << 60;
  return static_cast<uint64_t>(std::min(last, kMost)) + 1;
}

/// True for the strides of a tensor without gaps.
bool isDense(const AttentionTensor &tensor, const AttentionCall::Tensor &at) {
  if (at.strides_size() != 4)
    return false;
  uint64_t step = 1;
  for (int d = 4; d-- > 0; step = saturatingProduct({step, static_cast<uint64_t>(tensor.dims[static_cast<size_t>(d)])}))
    if (static_cast<uint64_t>(at.strides(d)) != step)
      return false;
  return true;
}

/// Bytes that a tensor touches within its buffer: `begin` + stride·index of each dimension, largest stride first.
struct Bytes {
  Wide begin;
  std::vector<std::pair<Wide, Wide>> dims; // stride, extent

  /// One past the last, counted from the first.
  Wide span() const {
    Wide last = 0;
    for (auto [stride, extent] : dims)
      last += stride * (extent - 1);
    return last + 1;
  }
};

Bytes bytesOf(const AttentionTensor &tensor, const AttentionCall::Tensor &at, const Operand &operand, uint64_t bytes) {
  Bytes touched{Wide(operand.byte_offset()) + Wide(at.offset()) * Wide(bytes), {{1, Wide(bytes)}}};
  for (int d = 0; d < 4; ++d)
    if (const int64_t extent = tensor.dims[static_cast<size_t>(d)]; extent > 1)
      touched.dims.emplace_back(Wide(at.strides(d)) * Wide(bytes), Wide(extent));
  std::sort(touched.dims.rbegin(), touched.dims.rend());
  return touched;
}

/// True if the two provably share no byte: one ends before the other begins, or, within each period of the largest
/// stride, they are disjoint by the same rule. Ranges of columns of one matrix are such a case.
bool areDisjoint(Bytes one, Bytes other) {
  while (true) {
    if (one.begin + one.span() <= other.begin || other.begin + other.span() <= one.begin)
      return true;
    const Wide period = std::max(one.dims.front().first, other.dims.front().first);
    if (period <= 1)
      return false;
    for (Bytes *of : {&one, &other}) {
      if (of->dims.front().first == period)
        of->dims.erase(of->dims.begin());
      of->begin %= period;
      if (of->dims.empty() || of->begin + of->span() > period)
        return false;
    }
  }
}
} // namespace

void verifyAttention(const Context &context, const Entry &entry, int index) {
  const Instruction &instruction = entry.instructions(index);
  const AttentionCall &call = instruction.attention();
  auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
    context.report("{}: {}", describeInstruction(entry, index), fmt::format(format, std::forward<Args>(args)...));
  };
  if (!runsOnGrids(context.plan))
    return fail("attention by cuDNN, the plan is for {}", context.plan.target());
  if (!AttentionCall::Kind_IsValid(call.kind()))
    return fail("unknown kind of attention {}", static_cast<int>(call.kind()));
  if (call.dtype() != BF16 && call.dtype() != F16)
    return fail("cuDNN computes no attention of {}", DType_Name(call.dtype()));
  for (auto [name, size] : {std::pair("batch", call.batch()),
                            {"heads", call.heads()},
                            {"key_heads", call.key_heads()},
                            {"queries", call.queries()},
                            {"keys", call.keys()},
                            {"depth", call.depth()},
                            {"width", call.width()}})
    if (size < 1 || size >= kMostAttentionSize)
      return fail("attention with {} = {}", name, size);
  if (call.heads() % call.key_heads() != 0)
    return fail("attention of {} heads with {} of keys", call.heads(), call.key_heads());
  if (saturatingProduct({static_cast<uint64_t>(call.batch()), static_cast<uint64_t>(call.heads()),
                         static_cast<uint64_t>(std::max(call.queries(), call.keys())),
                         static_cast<uint64_t>(std::max(call.depth(), call.width()))}) >= uint64_t(kMostAttentionSize))
    return fail("a tensor of more elements than cuDNN takes");
  auto isOneOr = [](int64_t extent, int64_t all) { return extent == 1 || extent == all; };
  const bool biased = call.bias_batch() != 0;
  if (biased ? !isOneOr(call.bias_batch(), call.batch()) || !isOneOr(call.bias_heads(), call.heads())
             : call.bias_heads() != 0 || call.bias_gradient())
    return fail("a bias of {} samples and {} heads for attention of {} and {}", call.bias_batch(), call.bias_heads(),
                call.batch(), call.heads());
  if (call.bias_gradient() && call.kind() != AttentionCall::GRADIENT)
    return fail("attention forward with the gradient of a bias");
  if (biased && saturatingProduct({static_cast<uint64_t>(call.bias_batch()), static_cast<uint64_t>(call.bias_heads()),
                                   static_cast<uint64_t>(call.queries()), static_cast<uint64_t>(call.keys())}) >=
                    uint64_t(kMostAttentionSize))
    return fail("a bias of more elements than cuDNN takes");
  const std::vector<AttentionTensor> tensors = attentionTensors(call);
  if (call.tensors_size() != static_cast<int>(tensors.size()))
    return fail("attention takes {} tensors, it has {}", tensors.size(), call.tensors_size());
  std::vector<char> used(static_cast<size_t>(instruction.operands_size()));
  std::vector<std::tuple<const char *, uint64_t, Bytes>> written; // with their buffers
  for (int i = 0; i < call.tensors_size(); ++i) {
    const AttentionTensor &tensor = tensors[static_cast<size_t>(i)];
    const AttentionCall::Tensor &at = call.tensors(i);
    if (at.operand() >= used.size())
      return fail("{} is in operand {}, but the call has {} operands", tensor.name, at.operand(), used.size());
    used[at.operand()] = 1;
    const auto position = static_cast<int>(at.operand());
    const Operand &operand = instruction.operands(position);
    const uint64_t bytes = tensor.elementBytes(call),
                   step = tensor.kind == AttentionTensor::Heads ? kAttentionAccessBytes / bytes : 1;
    const uint64_t reach = reachOf(tensor, at, step);
    if (tensor.kind == AttentionTensor::Bias && (!isDense(tensor, at) || at.offset() != 0)) {
      fail("{} has gaps: cuDNN takes rows of {} one behind another", tensor.name, fmt::join(tensor.dims, "x"));
      continue;
    }
    if (reach == 0) {
      fail("{} has strides that are none of {} distinct elements, features side by side and pieces of {} bytes aligned",
           tensor.name, fmt::join(tensor.dims, "x"), kAttentionAccessBytes);
      continue;
    }
    if (saturatingProduct({reach, bytes}) > operandBytes(entry, instruction, position))
      fail("{} reaches {} elements, {} offers {} bytes from byte {} on", tensor.name, reach,
           describe(entry, operand.buffer()), operandBytes(entry, instruction, position), operand.byte_offset());
    if (operand.byte_offset() % (tensor.kind == AttentionTensor::Rows ? bytes : kAttentionAccessBytes) != 0)
      fail("{} begins at byte offset {}", tensor.name, operand.byte_offset());
    if (tensor.isWritten ? !operand.write() : (!operand.read() || operand.write()))
      fail("{} ({}) must be {}", tensor.name, describe(entry, operand.buffer()),
           tensor.isWritten ? "marked as written" : "read only");
    if (!tensor.isWritten)
      continue;
    const Bytes touched = bytesOf(tensor, at, operand, bytes);
    for (const auto &[name, buffer, other] : written)
      if (buffer == operand.buffer() && !areDisjoint(other, touched))
        fail("{} and {} may share bytes of {}", name, tensor.name, describe(entry, operand.buffer()));
    written.emplace_back(tensor.name, operand.buffer(), touched);
  }
  if (std::find(used.begin(), used.end(), 0) != used.end())
    fail("an operand is no tensor of attention");
  if (instruction.in_place_size() > 0)
    fail("attention cannot write a result in place of an operand");
  const uint64_t wanted = call.library_scratch_bytes(), scratch = instruction.scratch_slot_bytes();
  if (wanted < attentionRowBytes(call) || wanted > uint64_t(1) << 60)
    fail("{} bytes of scratch do not hold the {} of sums of rows", wanted, attentionRowBytes(call));
  if (wanted > 0 && (scratch < kLibraryWorkspaceAlignment || scratch - kLibraryWorkspaceAlignment < wanted))
    fail("scratch of {} bytes does not hold an aligned workspace of {}", scratch, wanted);
  verifyKernelsOf(context, Call{context.signatures, entry, index, instruction, context.report});
}

} // namespace tcc::plan::verifier
