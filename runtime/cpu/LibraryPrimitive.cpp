//===- LibraryPrimitive.cpp - one-thread oneDNN primitives ---------------===//
#include "runtime/cpu/LibraryPrimitive.h"

#include <algorithm>
#include <bit>

namespace tcc::runtime {

dnnl_engine_t cpuEngine() {
  static const std::shared_ptr<dnnl_engine> engine = [] {
    dnnl_engine_t made = nullptr;
    dnnl_engine_create(&made, dnnl_cpu, 0);
    return std::shared_ptr<dnnl_engine>(made, dnnl_engine_destroy);
  }();
  return engine.get();
}

dnnl_data_type_t libraryType(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return dnnl_f32;
  case plan::BF16:
    return dnnl_bf16;
  default:
    return dnnl_data_type_undef;
  }
}

std::string libraryError(dnnl_status_t status) {
  switch (status) {
  case dnnl_out_of_memory:
    return "out of memory";
  case dnnl_invalid_arguments:
    return "invalid arguments";
  case dnnl_unimplemented:
    return "not implemented";
  case dnnl_runtime_error:
    return "run-time error";
  default:
    return fmt::format("status {}", static_cast<int>(status));
  }
}

Expected<dnnl_memory_desc_t> stridedDesc(const std::vector<int64_t> &dims, dnnl_data_type_t type,
                                               const std::vector<int64_t> &strides) {
  dnnl_memory_desc_t desc{};
  dnnl_status_t status =
      dnnl_memory_desc_init_by_strides(&desc, static_cast<int>(dims.size()), dims.data(), type, strides.data());
  if (status != dnnl_success)
    return error("oneDNN refuses a layout: {}", libraryError(status));
  return desc;
}

Expected<dnnl_memory_desc_t> denseDesc(const std::vector<int64_t> &dims, dnnl_data_type_t type) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i)
    strides[i - 1] = strides[i] * dims[i];
  return stridedDesc(dims, type, strides);
}

Expected<dnnl_memory_desc_t> anyDesc(const std::vector<int64_t> &dims, dnnl_data_type_t type) {
  dnnl_memory_desc_t desc{};
  dnnl_status_t status =
      dnnl_memory_desc_init_by_tag(&desc, static_cast<int>(dims.size()), dims.data(), type, dnnl_format_tag_any);
  if (status != dnnl_success)
    return error("oneDNN refuses a layout: {}", libraryError(status));
  return desc;
}

namespace {
/// Attributes of all primitives: scratch is ours, arithmetic is strict f32.
std::shared_ptr<dnnl_primitive_attr> makeAttributes(bool accumulate) {
  dnnl_primitive_attr_t attributes = nullptr;
  dnnl_primitive_attr_create(&attributes);
  dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
  dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict);
  if (accumulate) {
    dnnl_post_ops_t operations = nullptr;
    dnnl_post_ops_create(&operations);
    dnnl_post_ops_append_sum(operations, 1.0f);
    dnnl_primitive_attr_set_post_ops(attributes, operations);
    dnnl_post_ops_destroy(operations);
  }
  return {attributes, dnnl_primitive_attr_destroy};
}
} // namespace

Expected<PrimitiveDesc> PrimitiveDesc::create(const_dnnl_op_desc_t operation, bool accumulate,
                                                    const PrimitiveDesc *hint) {
  dnnl_primitive_desc_t made = nullptr;
  auto attributes = makeAttributes(accumulate);
  dnnl_status_t status =
      dnnl_primitive_desc_create(&made, operation, attributes.get(), cpuEngine(), hint ? hint->get() : nullptr);
  if (status != dnnl_success)
    return error("oneDNN has no kernel for this shape: {}", libraryError(status));
  return PrimitiveDesc(made);
}

Expected<PrimitiveDesc> PrimitiveDesc::reorder(const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to) {
  dnnl_primitive_desc_t made = nullptr;
  auto attributes = makeAttributes(false);
  dnnl_status_t status =
      dnnl_reorder_primitive_desc_create(&made, &from, cpuEngine(), &to, cpuEngine(), attributes.get());
  if (status != dnnl_success)
    return error("oneDNN has no reorder between two layouts: {}", libraryError(status));
  return PrimitiveDesc(made);
}

std::string PrimitiveDesc::implementation() const {
  const char *text = nullptr;
  dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &text);
  return text ? text : "";
}

const dnnl_memory_desc_t *PrimitiveDesc::memory(dnnl_query_t what) const {
  return dnnl_primitive_desc_query_md(desc.get(), what, 0);
}

uint64_t PrimitiveDesc::scratchBytes() const {
  const dnnl_memory_desc_t *scratch = memory(dnnl_query_scratchpad_md);
  return scratch ? dnnl_memory_desc_get_size(scratch) : 0;
}

Expected<Primitive> Primitive::create(const PrimitiveDesc &desc, const std::vector<Argument> &arguments,
                                            unsigned workers) {
  Primitive result;
  dnnl_primitive_t made = nullptr;
  if (dnnl_status_t status = dnnl_primitive_create(&made, desc.get()); status != dnnl_success)
    return error("oneDNN cannot make a primitive: {}", libraryError(status));
  result.primitive = {made, dnnl_primitive_destroy};
  std::vector<Argument> all = arguments;
  const dnnl_memory_desc_t *scratch = desc.memory(dnnl_query_scratchpad_md);
  all.push_back({DNNL_ARG_SCRATCHPAD, scratch ? *scratch : dnnl_memory_desc_t{}});
  result.count = static_cast<int>(all.size());
  for (unsigned worker = 0; worker < workers; ++worker) {
    dnnl_stream_t stream = nullptr;
    if (dnnl_stream_create(&stream, cpuEngine(), dnnl_stream_default_flags) != dnnl_success)
      return error("oneDNN cannot make a stream");
    result.streams.emplace_back(stream, dnnl_stream_destroy);
    Bound bound{};
    for (int i = 0; i < result.count; ++i) {
      dnnl_memory_t memory = nullptr;
      dnnl_status_t status = dnnl_memory_create(&memory, &all[i].desc, cpuEngine(), DNNL_MEMORY_NONE);
      if (status != dnnl_success)
        return error("oneDNN cannot make a memory object: {}", libraryError(status));
      result.memories.emplace_back(memory, dnnl_memory_destroy);
      bound.arguments[i] = {all[i].id, memory};
    }
    result.bound.push_back(bound);
  }
  return result;
}

bool Primitive::execute(unsigned worker, void *const *pointers, void *scratch) const {
  const Bound &mine = bound[worker];
  dnnl_stream_t stream = streams[worker].get();
  for (int i = 0; i < count; ++i) {
    void *pointer = i + 1 < count ? pointers[i] : scratch;
    if (dnnl_memory_set_data_handle_v2(mine.arguments[i].memory, pointer, stream) != dnnl_success)
      return false;
  }
  return dnnl_primitive_execute(primitive.get(), stream, count, mine.arguments) == dnnl_success;
}

bool runCall(const LibraryCall &call, ThreadPool &pool, void *const *pointers, char *scratch) {
  std::atomic<bool> good{true};
  for (int stage = 0; stage < call.stages(); ++stage)
    pool.run(call.tiles(stage), [&](unsigned worker, int64_t begin, int64_t end) {
      if (!call.run(stage, {worker, pool.size(), pointers, scratch}, begin, end))
        good.store(false, std::memory_order_relaxed);
    });
  return good.load();
}

namespace {
constexpr int64_t kPartialTile = 4096; // elements
}

int64_t PartialSums::tiles(int64_t elements) { return (elements + kPartialTile - 1) / kPartialTile; }

void PartialSums::add(float *destination, bool accumulate, int64_t begin, int64_t end) const {
  int64_t first = begin * kPartialTile, last = std::min(end * kPartialTile, elements);
  if (accumulate) {
    for (int64_t i = first; i < last; ++i) {
      float sum = partials[i] + partials[elements + i];
      for (int64_t chunk = 2; chunk < chunks; ++chunk)
        sum += partials[chunk * elements + i];
      destination[i] += sum;
    }
    return;
  }
  for (int64_t i = first; i < last; ++i)
    destination[i] = partials[i] + partials[elements + i];
  for (int64_t chunk = 2; chunk < chunks; ++chunk) {
    const float *source = partials + chunk * elements;
    for (int64_t i = first; i < last; ++i)
      destination[i] += source[i];
  }
}

void PartialSums::round(uint16_t *destination, int64_t begin, int64_t end) const {
  for (int64_t i = begin * kPartialTile; i < std::min(end * kPartialTile, elements); ++i) {
    float sum = partials[i];
    for (int64_t chunk = 1; chunk < chunks; ++chunk)
      sum += partials[chunk * elements + i];
    destination[i] = roundToBf16(sum);
  }
}

uint16_t roundToBf16(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  bool isNan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((isNan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::string scratchMismatch(const Scratch &planned, const CallNeeds &needed, unsigned workers) {
  uint64_t slots = std::min<uint64_t>(needed.scratchSlots, workers);
  if (planned.slotBytes < needed.scratchSlotBytes || planned.sharedBytes < needed.scratchSharedBytes ||
      (needed.scratchSlotBytes > 0 && planned.slots < slots))
    return fmt::format("the plan has scratch of {} and {} times {} bytes, it needs {} and {} times {}",
                       planned.sharedBytes, planned.slots, planned.slotBytes, needed.scratchSharedBytes, slots,
                       needed.scratchSlotBytes);
  return "";
}

template <typename Call> Status checkCall(const Call &call, CpuLevel level, const Scratch &scratch, unsigned workers) {
  auto needs = needsOf(call);
  if (!needs)
    return needs.status();
  if (Status status = checkLevel(call, level); !status.ok())
    return status;
  if (Status status = checkNumerics(call); !status.ok())
    return status;
  if (std::string reason = scratchMismatch(scratch, *needs, workers); !reason.empty())
    return error("{}; recompile the model with tcc", reason);
  return Status::success();
}
template Status checkCall(const plan::MatmulCall &, CpuLevel, const Scratch &, unsigned);
template Status checkCall(const plan::ConvolutionCall &, CpuLevel, const Scratch &, unsigned);

} // namespace tcc::runtime
