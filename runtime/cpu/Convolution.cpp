//===- Convolution.cpp - convolutions by one-thread oneDNN primitives ----===//
//
// A tile is a few samples. Activations that lie channels-last are taken as they are. Of others the library chooses the
// layout; where that is not the plan's plain NCHW, a tile reorders its samples into its slot of scratch, computes
// there, and reorders the result back; the weights are reordered once, for all tiles. A layout choice for which the
// library only has its gemm-based kernel, which allocates megabytes at each call, gives way to another one, at last to
// one call for each group. The weight gradient sums over samples: each tile is a chunk of the batch with a partial sum
// of its own, in f32 and in the layout that the library asks for; these are added in order, and the sum is reordered.
//
// On a level whose library does not compute in bf16, the reorders widen its operands and round its result.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/LibraryOffer.h"
#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/WeightSlices.h"
#include "runtime/cpu/calls/Dimensions.h"

#include "runtime/plan/DType.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <optional>

namespace tcc::runtime {

namespace {
using Kind = plan::ConvolutionCall;

using Layout = plan::ConvolutionCall::Activations;

/// The three operands in the library's terms, whatever the direction: data, weights, result of the forward pass.
enum Role { X = 0, W = 1, Y = 2 };

/// Primitives for tiles of one number of samples.
struct Variant {
  int64_t samples = 0;
  PrimitiveDesc main;
  dnnl_memory_desc_t plain[3], asked[3];
  bool reordered[3];
  PrimitiveDesc reorder[3];           // inputs: plain to asked; result: asked to plain
  std::optional<WeightSlices> slices; // of the weights, where they are reordered once for all tiles
  uint64_t sharedOffset = 0;          // where reordered weights lie, as an input, from the start of the scratch

  uint64_t weightBytes() const { return alignScratch(dnnl_memory_desc_get_size(&asked[W])); }
};

std::vector<int64_t> toVector(const google::protobuf::RepeatedField<int64_t> &field) {
  return {field.begin(), field.end()};
}

struct Design {
  plan::ConvolutionCall call;
  Layout layout = Kind::BLOCKED;
  int64_t tileBatch = 0;
  Role inputs[2] = {X, W}, result = Y;
  int arguments[3] = {0, 0, 0};  // the library's argument numbers by role
  std::vector<Variant> variants; // full tile, then the rest
  uint64_t offset[3] = {0, 0, 0}, slotBytes = 0, sharedBytes = 0;
  bool askedPartials = false; // partial sums lie as the primitive asks for, not as the plan's weights
  dnnl_data_type_t plainType[3], askedType[3];
  std::string layouts;

  int64_t batch() const { return call.x_dims(0); }
  int64_t tiles() const { return (batch() + tileBatch - 1) / tileBatch; }
  bool partial() const { return result == W && tiles() > 1; }
  int64_t groupCalls() const { return layout == Kind::PER_GROUP ? call.groups() : 1; }

  /// Of one chunk of the batch.
  uint64_t partialBytes() const {
    if (!partial())
      return 0;
    return askedPartials ? variants.front().weightBytes() * static_cast<uint64_t>(groupCalls())
                         : static_cast<uint64_t>(product(call.w_dims(), 0)) * 4;
  }
};

std::vector<int64_t> denseStrides(const std::vector<int64_t> &dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i)
    strides[i - 1] = strides[i] * dims[i];
  return strides;
}

/// "aBcd16b": outer axes from slow to fast, blocked ones in capitals, then the inner blocks.
std::string layoutName(const dnnl_memory_desc_t &desc) {
  if (desc.format_kind != dnnl_blocked)
    return "opaque";
  const dnnl_blocking_desc_t &blocking = desc.format_desc.blocking;
  std::vector<int> axes(static_cast<size_t>(desc.ndims));
  for (int i = 0; i < desc.ndims; ++i)
    axes[static_cast<size_t>(i)] = i;
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return blocking.strides[a] > blocking.strides[b]; });
  std::string name;
  for (int axis : axes) {
    bool blocked = false;
    for (int i = 0; i < blocking.inner_nblks; ++i)
      blocked |= blocking.inner_idxs[i] == axis;
    name += static_cast<char>((blocked ? 'A' : 'a') + axis);
  }
  for (int i = 0; i < blocking.inner_nblks; ++i)
    name += fmt::format("{}{}", blocking.inner_blks[i], static_cast<char>('a' + blocking.inner_idxs[i]));
  return name;
}

/// N, spatial, C
std::vector<int64_t> channelsLastStrides(const std::vector<int64_t> &dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  int64_t stride = dims[1];
  for (size_t i = dims.size() - 1; i >= 2; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  return strides;
}

/// Dimensions of an operand as one library call sees it, with the strides of the plan's plain tensor.
void plainShape(const Design &design, Role role, int64_t samples, std::vector<int64_t> &dims,
                std::vector<int64_t> &strides) {
  const plan::ConvolutionCall &call = design.call;
  int64_t groups = call.groups();
  dims = toVector(role == X ? call.x_dims() : role == W ? call.w_dims() : call.y_dims());
  if (role != W) {
    strides = call.channels_last() ? channelsLastStrides(dims) : denseStrides(dims);
    dims[0] = samples;
    if (design.layout == Kind::PER_GROUP)
      dims[1] /= groups;
    return;
  }
  if (groups > 1) {
    dims[0] /= groups;
    if (design.layout != Kind::PER_GROUP)
      dims.insert(dims.begin(), groups);
  }
  strides = denseStrides(dims);
}

Expected<dnnl_memory_desc_t> wantedDesc(const Design &design, Role role, const std::vector<int64_t> &dims) {
  if (role == W || design.layout != Kind::CHANNELS_LAST)
    return anyDesc(dims, design.askedType[role]);
  return stridedDesc(dims, design.askedType[role], channelsLastStrides(dims));
}

Expected<PrimitiveDesc> makeMain(const Design &design, const dnnl_memory_desc_t *wanted) {
  const plan::ConvolutionCall &call = design.call;
  // Gradients ask for the forward pass, which has weights of its operands' type.
  std::vector<int64_t> weightDims(wanted[W].dims, wanted[W].dims + wanted[W].ndims);
  auto weights = anyDesc(weightDims, design.askedType[X]);
  if (!weights)
    return weights.status();
  std::vector<int64_t> strides = toVector(call.strides()), dilations = toVector(call.dilations()),
                       begin = toVector(call.pads_begin()), end = toVector(call.pads_end());
  for (int64_t &dilation : dilations)
    dilation -= 1; // the library counts the gaps
  dnnl_convolution_desc_t operation{};
  dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
      &operation, dnnl_forward_training, dnnl_convolution_direct, &wanted[X], &*weights, nullptr, &wanted[Y],
      strides.data(), dilations.data(), begin.data(), end.data());
  if (status != dnnl_success)
    return error("oneDNN refuses the convolution: {}", libraryError(status));
  auto forward = PrimitiveDesc::create(&operation, false, nullptr);
  if (!forward || call.kind() == Kind::FORWARD)
    return forward;
  if (call.kind() == Kind::INPUT_GRADIENT)
    status = dnnl_dilated_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, &wanted[X],
                                                              &wanted[W], &wanted[Y], strides.data(), dilations.data(),
                                                              begin.data(), end.data());
  else
    status = dnnl_dilated_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, &wanted[X],
                                                                 &wanted[W], nullptr, &wanted[Y], strides.data(),
                                                                 dilations.data(), begin.data(), end.data());
  if (status != dnnl_success)
    return error("oneDNN refuses the convolution's gradient: {}", libraryError(status));
  return PrimitiveDesc::create(&operation, false, &*forward);
}

/// `weights`, if given, is the layout that the weights' gradient has to have.
Expected<Variant> makeVariant(const Design &design, int64_t samples,
                                    const dnnl_memory_desc_t *weights = nullptr) {
  Variant variant;
  variant.samples = samples;
  dnnl_memory_desc_t wanted[3];
  for (Role role : {X, W, Y}) {
    std::vector<int64_t> dims, strides;
    plainShape(design, role, samples, dims, strides);
    auto plain = stridedDesc(dims, design.plainType[role], strides), want = wantedDesc(design, role, dims);
    if (!plain || !want)
      return plain ? want.status() : plain.status();
    variant.plain[role] = *plain;
    wanted[role] = role == W && weights ? *weights : *want;
  }
  auto main = makeMain(design, wanted);
  if (!main)
    return main.status();
  variant.main = main.take();
  Kind::Kind kind = design.call.kind();
  dnnl_query_t queries[3] = {kind == Kind::INPUT_GRADIENT ? dnnl_query_diff_src_md : dnnl_query_src_md,
                             kind == Kind::WEIGHT_GRADIENT ? dnnl_query_diff_weights_md : dnnl_query_weights_md,
                             kind == Kind::FORWARD ? dnnl_query_dst_md : dnnl_query_diff_dst_md};
  for (Role role : {X, W, Y}) {
    variant.asked[role] = *variant.main.memory(queries[role]);
    variant.reordered[role] = !dnnl_memory_desc_equal(&variant.plain[role], &variant.asked[role]);
    if (!variant.reordered[role])
      continue;
    auto reorder = role == design.result ? PrimitiveDesc::reorder(variant.asked[role], variant.plain[role])
                                         : PrimitiveDesc::reorder(variant.plain[role], variant.asked[role]);
    if (!reorder)
      return reorder.status();
    variant.reorder[role] = reorder.take();
  }
  return variant;
}

bool allocatesMuch(const std::string &implementation) {
  return implementation.find("gemm") != std::string::npos && implementation.find("brg") == std::string::npos;
}

/// Chooses the layout: the first without the gemm-based kernel, else the first that the library has at all.
Expected<Layout> chooseLayout(Design design) {
  Status problem;
  std::optional<Layout> fallback;
  bool last = design.call.channels_last();
  for (Layout layout :
       {last ? Kind::CHANNELS_LAST : Kind::BLOCKED, last ? Kind::BLOCKED : Kind::CHANNELS_LAST, Kind::PER_GROUP}) {
    if (layout == Kind::PER_GROUP && design.call.groups() == 1)
      continue;
    design.layout = layout;
    auto variant = makeVariant(design, design.tileBatch);
    if (!variant) {
      problem = problem.ok() ? variant.status() : problem;
      continue;
    }
    std::string implementation = variant->main.implementation();
    if (!allocatesMuch(implementation) && implementation.find("ref") == std::string::npos)
      return layout;
    if (!fallback)
      fallback = layout;
  }
  if (fallback)
    return *fallback;
  return problem;
}

/// All but the layout.
Expected<Design> beginDesign(const plan::ConvolutionCall &call) {
  if (Status status = checkShape(call); !status.ok())
    return status;
  plan::DType resultType = call.result_dtype() == plan::DTYPE_NONE ? call.dtype() : call.result_dtype();
  Design design;
  design.call = call;
  design.tileBatch = call.tile_batch();
  bool forward = call.kind() == Kind::FORWARD, toInput = call.kind() == Kind::INPUT_GRADIENT;
  design.result = forward ? Y : toInput ? X : W;
  design.inputs[0] = toInput ? Y : X; // the order of the instruction's operands
  design.inputs[1] = forward || toInput ? W : Y;
  design.arguments[X] = toInput ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC;
  design.arguments[W] = design.result == W ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
  design.arguments[Y] = forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST;
  for (Role role : {X, W, Y}) {
    design.plainType[role] = libraryType(role == design.result ? resultType : call.dtype());
    design.askedType[role] = call.widened() ? dnnl_f32 : libraryType(call.dtype());
  }
  if (design.result == W)
    design.askedType[W] = dnnl_f32; // chunks of the batch are added without rounding
  return design;
}

/// The primitives of a call whose tiles and layout are decided.
Expected<Design> makeDesign(const plan::ConvolutionCall &call, Layout layout) {
  auto begun = beginDesign(call);
  if (!begun)
    return begun.status();
  Design design = begun.take();
  design.layout = layout;
  WorkerScope scope;
  std::vector<int64_t> sizes = {design.tileBatch};
  if (design.batch() % design.tileBatch)
    sizes.push_back(design.batch() % design.tileBatch);
  uint64_t own = 0, room[3] = {0, 0, 0};
  for (int64_t samples : sizes) {
    // A rest of the batch that makes its partial sum in another layout could not be added.
    bool follow = design.result == W && !design.variants.empty();
    auto variant = makeVariant(design, samples, follow ? &design.variants.front().asked[W] : nullptr);
    if (!variant && follow)
      variant = makeVariant(design, samples);
    if (!variant)
      return variant.status();
    own = std::max(own, variant->main.scratchBytes());
    for (Role role : {X, W, Y})
      if (variant->reordered[role]) {
        own = std::max(own, variant->reorder[role].scratchBytes());
        room[role] = std::max<uint64_t>(room[role], dnnl_memory_desc_get_size(&variant->asked[role]));
      }
    design.variants.push_back(variant.take());
  }
  bool sameWeights = dnnl_memory_desc_equal(&design.variants.front().asked[W], &design.variants.back().asked[W]) != 0;
  if (design.result != W) {
    // Reordered once for all tiles, and once more for a last tile that asks for another layout.
    for (size_t i = 0; i < design.variants.size(); ++i) {
      if (!design.variants[i].reordered[W] || (i > 0 && sameWeights))
        continue;
      auto slices = WeightSlices::create(design.variants[i].plain[W], design.variants[i].asked[W], false);
      if (!slices)
        return slices.status();
      own = std::max({own, slices->reorder[0].scratchBytes(), slices->reorder[1].scratchBytes()});
      design.variants[i].slices = slices.take();
      design.variants[i].sharedOffset = design.sharedBytes;
      design.sharedBytes += design.variants[i].weightBytes() * static_cast<uint64_t>(design.groupCalls());
    }
    room[W] = 0;
  } else if (design.partial() && sameWeights && design.variants.front().reordered[W]) {
    design.askedPartials = true;
    room[W] = 0;
    auto slices = WeightSlices::create(design.variants.front().plain[W], design.variants.front().asked[W], true);
    if (!slices)
      return slices.status();
    own = std::max({own, slices->reorder[0].scratchBytes(), slices->reorder[1].scratchBytes()});
    design.variants.front().slices = slices.take();
  }
  if (design.partial() && !sameWeights && design.plainType[W] != dnnl_f32)
    return error("oneDNN has no common layout for the partial sums of a weight gradient in {}: the call must be "
                       "compiled",
                       plan::dtypeName(call.dtype()));
  uint64_t at = alignScratch(own);
  for (Role role : {X, W, Y}) {
    design.offset[role] = at;
    at += alignScratch(room[role]);
  }
  design.slotBytes = at;
  const Variant &first = design.variants.front();
  design.layouts =
      fmt::format("x:{} w:{} y:{}", layoutName(first.asked[X]), layoutName(first.asked[W]), layoutName(first.asked[Y]));
  return design;
}

uint64_t reorderedBytesOf(const Design &design) {
  uint64_t bytes = 0;
  for (const Variant &variant : design.variants)
    for (Role role : {X, Y}) // what is only widened stays in its order
      if (variant.reordered[role] && layoutName(variant.asked[role]) != layoutName(variant.plain[role]))
        bytes += dnnl_memory_desc_get_size(&variant.asked[role]) *
                 static_cast<uint64_t>(&variant == &design.variants.front() ? design.batch() / design.tileBatch : 1) *
                 static_cast<uint64_t>(design.groupCalls());
  return bytes;
}

class ConvolutionRunner final : public LibraryCall {
public:
  static Expected<std::unique_ptr<LibraryCall>> create(Design made, unsigned workers) {
    auto runner = std::make_unique<ConvolutionRunner>();
    WorkerScope scope;
    for (const Variant &variant : made.variants) {
      std::vector<Primitive::Argument> arguments;
      for (Role role : {X, W, Y})
        arguments.push_back({made.arguments[role], variant.asked[role]});
      auto main = Primitive::create(variant.main, arguments, workers);
      if (!main)
        return main.status();
      Ready ready{{}, {}, main.take()};
      for (Role role : {X, W, Y}) {
        if (!variant.reordered[role])
          continue;
        bool back = role == made.result;
        auto reorder = Primitive::create(variant.reorder[role],
                                         {{DNNL_ARG_FROM, back ? variant.asked[role] : variant.plain[role]},
                                          {DNNL_ARG_TO, back ? variant.plain[role] : variant.asked[role]}},
                                         workers);
        if (!reorder)
          return reorder.status();
        ready.reorder[role] = reorder.take();
      }
      for (size_t kind = 0; variant.slices && kind < 2; ++kind) {
        bool back = made.result == W;
        const WeightSlices &slices = *variant.slices;
        auto reorder = Primitive::create(slices.reorder[kind],
                                         {{DNNL_ARG_FROM, back ? slices.asked[kind] : slices.plain[kind]},
                                          {DNNL_ARG_TO, back ? slices.plain[kind] : slices.asked[kind]}},
                                         workers);
        if (!reorder)
          return reorder.status();
        ready.slices.push_back(reorder.take());
      }
      runner->ready.push_back(std::move(ready));
    }
    runner->design = std::move(made);
    const plan::ConvolutionCall &call = runner->design.call;
    auto size = [&](Role role) { return static_cast<int64_t>(dnnl_data_type_size(runner->design.plainType[role])); };
    runner->sampleBytes[X] = product(call.x_dims(), 1) * size(X);
    runner->sampleBytes[Y] = product(call.y_dims(), 1) * size(Y);
    runner->weightBytes = product(call.w_dims(), 0) * size(W);
    runner->groupBytes[X] = (call.channels_last() ? call.x_dims(1) * size(X) : runner->sampleBytes[X]) / call.groups();
    runner->groupBytes[Y] = (call.channels_last() ? call.y_dims(1) * size(Y) : runner->sampleBytes[Y]) / call.groups();
    runner->groupBytes[W] = runner->weightBytes / call.groups();
    runner->work = runner->stagesOf();
    return std::unique_ptr<LibraryCall>(std::move(runner));
  }

  int stages() const override { return static_cast<int>(work.size()); }

  int longestStage() const override {
    auto tiles = std::find_if(work.begin(), work.end(), [](const Stage &stage) { return stage.kind == Stage::Tiles; });
    return static_cast<int>(tiles - work.begin());
  }

  int64_t tiles(int stage) const override {
    const Stage &what = work[static_cast<size_t>(stage)];
    switch (what.kind) {
    case Stage::Weights:
      return design.groupCalls() * design.variants[what.variant].slices->count;
    case Stage::Tiles:
      return design.tiles() * design.groupCalls();
    case Stage::Sums:
      return PartialSums::tiles(static_cast<int64_t>(design.partialBytes() / 4));
    }
    return 0;
  }

  bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const override {
    const Stage &what = work[static_cast<size_t>(stage)];
    if (what.kind == Stage::Sums) {
      PartialSums{static_cast<const float *>(context.pointers[3]), design.tiles(),
                  static_cast<int64_t>(design.partialBytes() / 4)}
          .add(static_cast<float *>(context.pointers[2]), false, begin, end);
      return true;
    }
    bool good = true;
    for (int64_t tile = begin; tile < end; ++tile) {
      // Parts of weights may outnumber the tiles that there are slots for; their copies need none.
      char *slot = context.scratch + design.sharedBytes +
                   slotOf(tile, tiles(stage), context.worker, context.workers) * design.slotBytes;
      if (what.kind == Stage::Weights)
        good &= reorderWeights(what.variant, context, tile, slot);
      else
        good &= runTile(context.worker, tile / design.groupCalls(), tile % design.groupCalls(), context.pointers,
                        context.scratch, slot);
    }
    return good;
  }

private:
  struct Stage {
    enum Kind { Weights, Tiles, Sums } kind;
    size_t variant = 0; ///< whose weights
  };

  /// Weights as the primitive asks for them: before the tiles where they are read, after them where they are made.
  std::vector<Stage> stagesOf() const {
    std::vector<Stage> result;
    if (design.result != W)
      for (size_t i = 0; i < ready.size(); ++i)
        if (design.variants[i].slices)
          result.push_back({Stage::Weights, i});
    result.push_back({Stage::Tiles});
    if (design.partial())
      result.push_back({design.askedPartials ? Stage::Weights : Stage::Sums});
    return result;
  }

  /// A slice of a group's weights. Where they are made, chunks of the batch are added first, while it is in cache.
  bool reorderWeights(size_t which, const CallContext &context, int64_t part, char *slot) const {
    const Variant &decided = design.variants[which];
    const WeightSlices &slices = *decided.slices;
    bool made = design.result == W;
    auto *plain = static_cast<char *>(context.pointers[made ? 2 : 1]),
         *asked = made ? static_cast<char *>(context.pointers[3]) : context.scratch + decided.sharedOffset;
    auto group = static_cast<uint64_t>(part / slices.count), slice = static_cast<uint64_t>(part % slices.count);
    void *pair[2] = {plain + group * static_cast<uint64_t>(groupBytes[W]) + slice * slices.plainStep,
                     asked + group * decided.weightBytes() + slice * slices.askedStep};
    if (made) {
      uint64_t end =
          slice + 1 < static_cast<uint64_t>(slices.count) ? (slice + 1) * slices.askedStep : decided.weightBytes();
      addChunks(static_cast<char *>(pair[1]), end - slice * slices.askedStep);
      std::swap(pair[0], pair[1]);
    }
    return ready[which].slices[slices.kindOf(part % slices.count)].execute(context.worker, pair, slot);
  }

  /// Adds the partial sums of the later chunks to the first one's, in order.
  void addChunks(char *first, uint64_t bytes) const {
    auto *sum = reinterpret_cast<float *>(first);
    for (int64_t chunk = 1; chunk < design.tiles(); ++chunk) {
      const auto *partial =
          reinterpret_cast<const float *>(first + static_cast<uint64_t>(chunk) * design.partialBytes());
      for (uint64_t i = 0; i < bytes / 4; ++i)
        sum[i] += partial[i];
    }
  }

  struct Ready {
    std::optional<Primitive> reorder[3];
    std::vector<Primitive> slices; // of the weights
    Primitive main;
  };

  bool runTile(unsigned worker, int64_t tile, int64_t group, void *const *pointers, char *scratch, char *slot) const {
    int64_t first = tile * design.tileBatch;
    bool full = design.batch() - first >= design.tileBatch;
    size_t which = full ? 0 : ready.size() - 1;
    const Ready &variant = ready[which];
    const Variant &decided = design.variants[which];
    char *plain[3];
    plain[design.inputs[0]] = static_cast<char *>(pointers[0]);
    plain[design.inputs[1]] = static_cast<char *>(pointers[1]);
    plain[design.result] = static_cast<char *>(pointers[design.partial() ? 3 : 2]);
    for (Role role : {X, Y})
      plain[role] += first * sampleBytes[role];
    if (design.partial() && !design.askedPartials)
      plain[W] += tile * weightBytes;
    for (Role role : {X, W, Y})
      plain[role] += group * groupBytes[role];

    void *asked[3];
    for (Role role : {X, W, Y}) {
      asked[role] = variant.reorder[role] ? static_cast<void *>(slot + design.offset[role]) : plain[role];
      void *pair[2] = {plain[role], asked[role]};
      if (variant.reorder[role] && role != design.result && role != W &&
          !variant.reorder[role]->execute(worker, pair, slot))
        return false;
    }
    auto weights = decided.weightBytes();
    if (design.result != W && variant.reorder[W])
      asked[W] = scratch + decided.sharedOffset + static_cast<uint64_t>(group) * weights;
    if (design.askedPartials)
      asked[W] = static_cast<char *>(pointers[3]) + static_cast<uint64_t>(tile) * design.partialBytes() +
                 static_cast<uint64_t>(group) * weights;
    if (!variant.main.execute(worker, asked, slot))
      return false;
    if (!variant.reorder[design.result] || (design.result == W && design.askedPartials))
      return true;
    void *pair[2] = {asked[design.result], plain[design.result]};
    return variant.reorder[design.result]->execute(worker, pair, slot);
  }

  Design design;
  std::vector<Ready> ready;
  std::vector<Stage> work;
  int64_t sampleBytes[3] = {0, 0, 0}, groupBytes[3] = {0, 0, 0}, weightBytes = 0; // of the plan's tensors
};
} // namespace

Expected<uint64_t> offerConvolution(plan::ConvolutionCall &call, CpuLevel level) {
  if (Status status = selectLevel(levelName(level)); !status.ok())
    return status;
  auto begun = beginDesign(call);
  if (!begun)
    return begun.status();
  WorkerScope scope;
  auto layout = chooseLayout(*begun);
  if (!layout)
    return layout.status();
  auto design = makeDesign(call, *layout);
  if (!design)
    return design.status();
  call.set_activations(*layout);
  call.set_layout(design->layouts);
  call.set_partial_bytes(design->partialBytes());
  call.set_slot_bytes(design->slotBytes);
  call.set_shared_bytes(design->sharedBytes);
  return reorderedBytesOf(*design);
}

Expected<std::unique_ptr<LibraryCall>> prepare(const plan::ConvolutionCall &call, const Scratch &scratch,
                                               unsigned workers) {
  if (Status status = checkCall(call, scratch, workers); !status.ok())
    return status;
  auto design = makeDesign(call, call.activations());
  if (!design)
    return design.status();
  if (design->layouts != call.layout())
    return error("this library lays a convolution's operands out as {}, the plan as {}; recompile the model with tcc",
                 design->layouts, call.layout());
  if (design->slotBytes > call.slot_bytes() || design->sharedBytes > call.shared_bytes() ||
      design->partialBytes() > call.partial_bytes())
    return error("this library takes {} bytes of scratch, {} of shared scratch and {} of partial sums for a "
                 "convolution, the plan bounds them by {}, {} and {}; recompile the model with tcc",
                 design->slotBytes, design->sharedBytes, design->partialBytes(), call.slot_bytes(),
                 call.shared_bytes(), call.partial_bytes());
  return ConvolutionRunner::create(design.take(), workers);
}

} // namespace tcc::runtime
