//===- WeightSlices.cpp - weights into the library's layout, by all workers -===//
#include "runtime/cpu/WeightSlices.h"

namespace tcc::runtime {

namespace {
/// A slice fits into a core's second cache, twice, and gives more than it costs to hand it to a worker.
constexpr int64_t kSliceElements = 1 << 16;

/// How the outermost axis is cut: whole blocks of the layout.
struct Cut {
  int axis = 0;
  int64_t block = 1, extent = 0;
};

Cut noCut(const dnnl_memory_desc_t &asked) { return {0, 1, asked.dims[0]}; }

Cut chooseCut(const dnnl_memory_desc_t &asked) {
  Cut cut = noCut(asked);
  int64_t elements = 1;
  for (int i = 0; i < asked.ndims; ++i)
    elements *= asked.dims[i];
  if (asked.format_kind != dnnl_blocked || elements < kSliceElements)
    return cut;
  const dnnl_blocking_desc_t &blocking = asked.format_desc.blocking;
  int64_t widest = 0;
  for (int axis = 0; axis < asked.ndims; ++axis) {
    int64_t block = 1;
    for (int i = 0; i < blocking.inner_nblks; ++i)
      if (blocking.inner_idxs[i] == axis)
        block *= blocking.inner_blks[i];
    if (asked.dims[axis] <= block || blocking.strides[axis] <= widest)
      continue;
    widest = blocking.strides[axis];
    int64_t count = (elements + kSliceElements - 1) / kSliceElements, share = (asked.dims[axis] + count - 1) / count;
    cut = {axis, block, (share + block - 1) / block * block};
  }
  return cut;
}

Expected<dnnl_memory_desc_t> part(const dnnl_memory_desc_t &whole, int axis, int64_t first, int64_t extent) {
  dnnl_dims_t dims, offsets = {};
  for (int i = 0; i < whole.ndims; ++i)
    dims[i] = whole.dims[i];
  dims[axis] = extent;
  offsets[axis] = first;
  dnnl_memory_desc_t desc{};
  if (dnnl_status_t status = dnnl_memory_desc_init_submemory(&desc, &whole, dims, offsets); status != dnnl_success)
    return error("oneDNN refuses a part of a layout: {}", libraryError(status));
  desc.offset0 = 0; // slices are told apart by their pointers, so that they share a primitive
  return desc;
}

Expected<WeightSlices> createWith(const Cut &cut, const dnnl_memory_desc_t &plain,
                                        const dnnl_memory_desc_t &asked, bool back) {
  WeightSlices slices;
  int64_t size = asked.dims[cut.axis];
  slices.count = (size + cut.extent - 1) / cut.extent;
  if (slices.count > 1) {
    slices.plainStep = static_cast<uint64_t>(cut.extent * plain.format_desc.blocking.strides[cut.axis]) *
                       dnnl_data_type_size(plain.data_type);
    slices.askedStep = static_cast<uint64_t>(cut.extent / cut.block * asked.format_desc.blocking.strides[cut.axis]) *
                       dnnl_data_type_size(asked.data_type);
  }
  for (size_t kind = 0; kind < 2; ++kind) {
    slices.plain[kind] = plain;
    slices.asked[kind] = asked;
    if (slices.count > 1) {
      int64_t first = kind == 0 ? 0 : (slices.count - 1) * cut.extent;
      int64_t extent = kind == 0 ? cut.extent : size - first;
      auto from = part(plain, cut.axis, first, extent), to = part(asked, cut.axis, first, extent);
      if (!from || !to)
        return from ? to.status() : from.status();
      slices.plain[kind] = *from;
      slices.asked[kind] = *to;
    }
    auto reorder = back ? PrimitiveDesc::reorder(slices.asked[kind], slices.plain[kind])
                        : PrimitiveDesc::reorder(slices.plain[kind], slices.asked[kind]);
    if (!reorder)
      return reorder.status();
    slices.reorder[kind] = reorder.take();
  }
  return slices;
}
} // namespace

Expected<WeightSlices> WeightSlices::create(const dnnl_memory_desc_t &plain, const dnnl_memory_desc_t &asked,
                                                  bool back) {
  auto slices = createWith(chooseCut(asked), plain, asked, back);
  // There may be fewer slots of scratch than slices.
  if (slices && slices->reorder[0].scratchBytes() + slices->reorder[1].scratchBytes() == 0)
    return slices;
  return createWith(noCut(asked), plain, asked, back);
}

} // namespace tcc::runtime
