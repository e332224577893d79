//===- InstructionText.cpp - describe a plan's instruction in words -------===//
#include "tools/common/InstructionText.h"
#include "runtime/cpu/calls/Needs.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/ProductSlices.h"
#include "runtime/plan/Shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <set>

namespace tcc::report {

namespace {
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// The message of the call, or null where an instruction has none.
const Message *callOf(const plan::Instruction &instruction) {
  const auto *oneof = plan::Instruction::descriptor()->FindOneofByName("call");
  const FieldDescriptor *field = instruction.GetReflection()->GetOneofFieldDescriptor(instruction, oneof);
  return field ? &instruction.GetReflection()->GetMessage(instruction, field) : nullptr;
}

/// " name=value" of each singular number, word or flag that is set and not in `known`. An element type that equals the
/// call's own is left out.
std::string otherFields(const Message &message, const std::set<std::string_view> &known) {
  std::vector<const FieldDescriptor *> fields;
  const auto *reflection = message.GetReflection();
  reflection->ListFields(message, &fields);
  std::string text;
  for (const FieldDescriptor *field : fields) {
    if (field->is_repeated() || field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE || known.count(field->name()))
      continue;
    bool isType = field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM && field->enum_type() == plan::DType_descriptor();
    if (const FieldDescriptor *own = message.GetDescriptor()->FindFieldByName("dtype");
        isType && own && own->enum_type() == plan::DType_descriptor() &&
        reflection->GetEnumValue(message, own) == reflection->GetEnumValue(message, field))
      continue;
    if (isType) {
      std::string_view type = plan::dtypeName(static_cast<plan::DType>(reflection->GetEnumValue(message, field)));
      text +=
          field->name() == "result_dtype" ? fmt::format(" -> {}", type) : fmt::format(" {}={}", field->name(), type);
      continue;
    }
    text += " " + std::string(field->name());
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      text += fmt::format("={}", reflection->GetEnum(message, field)->name());
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      text += fmt::format("={}", reflection->GetString(message, field));
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      text += fmt::format("={}", reflection->GetInt32(message, field));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      text += fmt::format("={}", reflection->GetInt64(message, field));
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      text += fmt::format("={}", reflection->GetUInt32(message, field));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      text += fmt::format("={}", reflection->GetUInt64(message, field));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      text += fmt::format("={}", reflection->GetDouble(message, field));
      break;
    default:
      break;
    }
  }
  return text;
}

/// "bf16 " for another type than f32.
std::string typePrefix(plan::DType type) {
  return type == plan::F32 || type == plan::DTYPE_NONE ? "" : fmt::format("{} ", plan::dtypeName(type));
}

std::string matmulText(const plan::MatmulCall &call, const char *finished) {
  static const std::set<std::string_view> known = {"dtype",
                                                   "batch",
                                                   "m",
                                                   "n",
                                                   "k",
                                                   "trans_a",
                                                   "trans_b",
                                                   "chunk_k",
                                                   "block_k",
                                                   "tile_batch",
                                                   "tile_m",
                                                   "tile_n",
                                                   "row_operands",
                                                   "implementation",
                                                   "numerics",
                                                   "library_scratch_bytes",
                                                   "widened"};
  // Symbols are hashes: their beginning distinguishes them.
  std::string how = call.has_row_kernel()
                        ? fmt::format(" by {} to kernel {}",
                                      plan::hasSlices(call) ? fmt::format("{} slices", plan::sliceCount(call)) : "rows",
                                      call.row_kernel().symbol().substr(0, 10))
                        : fmt::format(" by {}{}", runtime::implementationName(call), finished);
  return fmt::format("matmul {}{}{}x{}x{} {}{}{}{}{}", typePrefix(call.dtype()),
                     call.batch() > 1 ? fmt::format("{} * ", call.batch()) : "", call.m(), call.n(), call.k(),
                     call.trans_a() ? 'T' : 'N', call.trans_b() ? 'T' : 'N', otherFields(call, known),
                     epilogueText(call), how);
}

template <typename Dims> std::string product(const Dims &dims, int from) {
  return fmt::format("{}", fmt::join(dims.begin() + std::min(from, dims.size()), dims.end(), "x"));
}

std::string convolutionText(const plan::ConvolutionCall &call, const char *finished) {
  static const std::set<std::string_view> known = {
      "kind",          "dtype",   "groups",   "tile_batch", "tile_lines",     "tile_columns",          "block_words",
      "partial_bytes", "widened", "numerics", "form",       "implementation", "library_scratch_bytes", "finish",
      "exact_bias"};
  static constexpr const char *kinds[] = {"forward", "input gradient", "weight gradient"};
  int kind = call.kind();
  std::string text = fmt::format("conv {}{}", typePrefix(call.dtype()), product(call.w_dims(), 2));
  if (call.x_dims_size() > 1 && call.y_dims_size() > 1)
    text += fmt::format(" {}->{} {}x{}", call.x_dims(1), call.y_dims(1), call.y_dims(0), product(call.y_dims(), 2));
  auto notOne = [](const auto &values) {
    return std::any_of(values.begin(), values.end(), [](auto v) { return v != 1; });
  };
  if (notOne(call.strides()))
    text += fmt::format(" stride {}", product(call.strides(), 0));
  if (notOne(call.dilations()))
    text += fmt::format(" dilation {}", product(call.dilations(), 0));
  if (call.groups() > 1)
    text += fmt::format(" groups {}", call.groups());
  const char *form = call.form() == plan::ConvolutionCall::PLANES   ? " by planes"
                     : call.form() == plan::ConvolutionCall::PIXELS ? " by pixels"
                                                                    : "";
  const char *library = call.implementation() == plan::ConvolutionCall::CUDNN ? " by cuDNN" : "";
  return text + " " + (kind >= 0 && kind < 3 ? kinds[kind] : "gradient") + form + otherFields(call, known) + library +
         finished + finishText(call);
}

std::string attentionText(const plan::AttentionCall &call, const char *computedBy) {
  std::string bias;
  if (call.bias_batch() > 0)
    bias = fmt::format(", bias {}x{}{}", call.bias_batch(), call.bias_heads(),
                       call.bias_gradient() ? " and its gradient" : "");
  return fmt::format("attention{} {}{} * {} heads{} {}x{} of {}{}{}{} by {}",
                     call.kind() == plan::AttentionCall::GRADIENT ? " gradient" : "", typePrefix(call.dtype()),
                     call.batch(), call.heads(),
                     call.key_heads() != call.heads() ? fmt::format(" ({} of keys)", call.key_heads()) : "",
                     call.queries(), call.keys(), call.depth(),
                     call.width() != call.depth() ? fmt::format(" and {}", call.width()) : "",
                     call.causal() ? ", causal" : "", bias, computedBy);
}

/// "f32 4x64", of an operand.
std::string operandText(const plan::Entry &entry, const plan::Instruction &instruction, int index) {
  if (index >= instruction.operands_size() ||
      instruction.operands(index).buffer() >= static_cast<uint32_t>(entry.buffers_size()))
    return "nothing";
  const plan::TensorType &type = entry.buffers(static_cast<int>(instruction.operands(index).buffer())).type();
  return fmt::format("{}{}{}", plan::dtypeName(type.dtype()), type.dims().empty() ? "" : " ", product(type.dims(), 0));
}

std::string callText(const plan::Entry &entry, const plan::Instruction &instruction, bool byKernels) {
  const char *finished = byKernels ? " and kernels" : "";
  switch (instruction.call_case()) {
  case plan::Instruction::kKernel: {
    static const std::set<std::string_view> known = {"code", "symbol", "tiles", "loops", "dtype"};
    const plan::KernelCall &call = instruction.kernel();
    if (plan::isJoined(call.symbol()))
      return fmt::format("{} of {} nodes, kernels in one launch{}", call.symbol().substr(0, 10),
                         instruction.nodes_size(), otherFields(call, known));
    // Symbols are hashes: their beginning distinguishes them.
    if (!call.loops().empty()) {
      int written = 0;
      while (written + 1 < instruction.operands_size() && !instruction.operands(written).write())
        ++written;
      return fmt::format("{} {} -> {}, kernel {}{}", call.loops(), operandText(entry, instruction, 0),
                         operandText(entry, instruction, written), call.symbol().substr(0, 10),
                         otherFields(call, known));
    }
    return fmt::format("kernel {} of {} node{}{}", call.symbol().substr(0, 10), instruction.nodes_size(),
                       instruction.nodes_size() == 1 ? "" : "s", otherFields(call, known));
  }
  case plan::Instruction::kMatmul:
    return matmulText(instruction.matmul(), finished);
  case plan::Instruction::kConvolution:
    return convolutionText(instruction.convolution(), finished);
  case plan::Instruction::kAttention:
    return attentionText(instruction.attention(), byKernels ? "kernels" : "cuDNN");
  case plan::Instruction::kCopy:
    return "copy " + operandText(entry, instruction, 1);
  case plan::Instruction::kFill:
    return fmt::format("fill {} with {}", operandText(entry, instruction, 0), instruction.fill().value());
  case plan::Instruction::kCollective: {
    const plan::CollectiveCall &call = instruction.collective();
    const int tensors = instruction.operands_size() / 2;
    const std::string beside =
        instruction.beside() ? fmt::format(", beside the next {} instructions", instruction.beside()) : "";
    const std::string what =
        fmt::format("{} of {} tensor{}", plan::collectiveName(call.kind()), tensors, tensors == 1 ? "" : "s");
    switch (call.kind()) {
    case plan::CollectiveCall::ALL_REDUCE:
    case plan::CollectiveCall::REDUCE_SCATTER:
      return what +
             fmt::format(" of {} {}", plan::dtypeName(call.dtype()),
                         call.reach() == plan::CollectiveCall::ACROSS_NODES  ? "across nodes"
                         : call.reach() == plan::CollectiveCall::WITHIN_NODE ? "over the ranks of a node"
                                                                             : "over the ranks") +
             beside;
    case plan::CollectiveCall::BROADCAST:
      return what + fmt::format(" from rank {}", call.root()) + beside;
    default:
      return what + beside;
    }
  }
  default:
    break;
  }
  const Message *call = callOf(instruction);
  const auto *oneof = plan::Instruction::descriptor()->FindOneofByName("call");
  return call ? std::string(instruction.GetReflection()->GetOneofFieldDescriptor(instruction, oneof)->name()) +
                    otherFields(*call, {})
              : "nothing";
}
} // namespace

std::string finishText(const plan::ConvolutionCall &call) {
  return call.finish() == plan::ConvolutionCall::BIAS ? " + bias" : "";
}

std::string epilogueText(const plan::MatmulCall &call) {
  static constexpr const char *kinds[] = {"", " + bias", " + bias, gelu", " times gelu'"};
  static constexpr const char *sums[] = {"", " with sums of its rows", " with sums of A", " with sums of B"};
  if (!call.has_epilogue() || !plan::Epilogue::Kind_IsValid(call.epilogue().kind()) ||
      !plan::Epilogue::Sums_IsValid(call.epilogue().sums()))
    return "";
  return fmt::format("{}{}{}", kinds[call.epilogue().kind()], call.epilogue().keeps_input() ? " and its input" : "",
                     sums[call.epilogue().sums()]);
}

InstructionKind instructionKind(const plan::Instruction &instruction) {
  if (instruction.has_kernel())
    return InstructionKind::Generated;
  bool moves = instruction.has_copy() || instruction.has_fill() || !callOf(instruction);
  return moves ? InstructionKind::Copy : InstructionKind::Library;
}

const char *kindName(InstructionKind kind) {
  switch (kind) {
  case InstructionKind::Library:
    return "library";
  case InstructionKind::Generated:
    return "generated";
  case InstructionKind::Copy:
    break;
  }
  return "copy";
}

std::string instructionText(const plan::Entry &entry, const plan::Instruction &instruction, bool byKernels) {
  static const std::set<std::string_view> known = {
      "scratch", "scratch_slot_bytes",   "node",          "flops", "bytes", "recompute",
      "cost",    "scratch_shared_bytes", "scratch_offset", "beside"};
  return callText(entry, instruction, byKernels) + (instruction.recompute() ? " again" : "") +
         otherFields(instruction, known);
}

std::string instructionKey(const plan::Entry &entry, const plan::Instruction &instruction) {
  const Message *call = callOf(instruction);
  // Regions with different numbers of nodes may share one kernel, so the number is not part of the key.
  return fmt::format("{}\n{}\n{}\n{}\n{}", instruction.has_kernel() ? "" : instructionText(entry, instruction),
                     instruction.recompute(), call ? call->SerializeAsString() : "", instruction.flops(),
                     instruction.bytes());
}

plan::DType arithmeticType(const plan::Instruction &instruction) {
  if (const Message *call = callOf(instruction))
    if (const FieldDescriptor *field = call->GetDescriptor()->FindFieldByName("dtype");
        field && field->enum_type() == plan::DType_descriptor() && !field->is_repeated())
      if (int type = call->GetReflection()->GetEnumValue(*call, field); type != plan::DTYPE_NONE)
        return static_cast<plan::DType>(type);
  return plan::F32;
}

} // namespace tcc::report
