//===- VerifierAttention.cpp - calls of attention --------------------------===//
#include "runtime/plan/AttentionLayout.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/VerifierImpl.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace tcc::plan::verifier {

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
      return fail("{} lies in operand {}, the call has {}", tensor.name, at.operand(), used.size());
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
}

} // namespace tcc::plan::verifier
