//===- Convolution.cpp - convolutions by one-thread oneDNN primitives ----===//
//
// A tile is a few samples. The library chooses the layouts; where they are not the plan's plain NCHW, a tile reorders
// its samples into its slot of scratch, computes there, and reorders the result back; the weights are reordered once,
// for all tiles. A layout choice for which the library only has its gemm-based kernel, which allocates megabytes at each
// call, gives way to channels last, then to one call for each group. The weight gradient sums over samples: each tile is
// a chunk of the batch with a partial sum of its own, in the layout that the library asks for; these are added in order,
// and the sum is reordered.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/LibraryPrimitive.h"

#include "runtime/plan/DType.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>

namespace tcc::runtime {

namespace {
using Kind = plan::ConvolutionCall;

enum class Layout { Any, ChannelsLast, PerGroup };

/// The three operands in the library's terms, whatever the direction: data, weights, result of the forward pass.
enum Role { X = 0, W = 1, Y = 2 };

/// Primitives for tiles of one number of samples.
struct Variant {
  int64_t samples = 0;
  PrimitiveDesc main;
  dnnl_memory_desc_t plain[3], asked[3];
  bool reordered[3];
  PrimitiveDesc reorder[3];  // inputs: plain to asked; result: asked to plain
  uint64_t sharedOffset = 0; // where reordered weights lie, as an input, from the start of the scratch

  uint64_t weightBytes() const { return alignScratch(dnnl_memory_desc_get_size(&asked[W])); }
};

std::vector<int64_t> toVector(const google::protobuf::RepeatedField<int64_t> &field) {
  return {field.begin(), field.end()};
}

int64_t product(const google::protobuf::RepeatedField<int64_t> &dims, int from) {
  int64_t value = 1;
  for (int i = from; i < dims.size(); ++i)
    value *= dims[i];
  return value;
}

struct Design {
  plan::ConvolutionCall call;
  Layout layout = Layout::Any;
  int64_t tileBatch = 0;
  Role inputs[2] = {X, W}, result = Y;
  int arguments[3] = {0, 0, 0};  // the library's argument numbers by role
  std::vector<Variant> variants; // full tile, then the rest
  uint64_t offset[3] = {0, 0, 0}, slotBytes = 0, sharedBytes = 0;
  bool askedPartials = false; // partial sums lie as the primitive asks for, not as the plan's weights
  std::string layouts;

  int64_t batch() const { return call.x_dims(0); }
  int64_t tiles() const { return (batch() + tileBatch - 1) / tileBatch; }
  bool partial() const { return result == W && tiles() > 1; }
  int64_t groupCalls() const { return layout == Layout::PerGroup ? call.groups() : 1; }

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

/// Dimensions of an operand as one library call sees it, with the strides of the plan's plain tensor.
void plainShape(const Design &design, Role role, int64_t samples, std::vector<int64_t> &dims,
                std::vector<int64_t> &strides) {
  const plan::ConvolutionCall &call = design.call;
  int64_t groups = call.groups();
  dims = toVector(role == X ? call.x_dims() : role == W ? call.w_dims() : call.y_dims());
  if (role != W) {
    strides = denseStrides(dims);
    dims[0] = samples;
    if (design.layout == Layout::PerGroup)
      dims[1] /= groups;
    return;
  }
  if (groups > 1) {
    dims[0] /= groups;
    if (design.layout != Layout::PerGroup)
      dims.insert(dims.begin(), groups);
  }
  strides = denseStrides(dims);
}

plan::Expected<dnnl_memory_desc_t> wantedDesc(const Design &design, Role role, const std::vector<int64_t> &dims) {
  if (role == W || design.layout != Layout::ChannelsLast)
    return anyDesc(dims, dnnl_f32);
  // N, spatial, C
  std::vector<int64_t> strides(dims.size(), 1);
  int64_t stride = dims[1];
  for (size_t i = dims.size() - 1; i >= 2; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  return stridedDesc(dims, dnnl_f32, strides);
}

plan::Expected<PrimitiveDesc> makeMain(const Design &design, const dnnl_memory_desc_t *wanted) {
  const plan::ConvolutionCall &call = design.call;
  std::vector<int64_t> strides = toVector(call.strides()), dilations = toVector(call.dilations()),
                       begin = toVector(call.pads_begin()), end = toVector(call.pads_end());
  for (int64_t &dilation : dilations)
    dilation -= 1; // the library counts the gaps
  dnnl_convolution_desc_t operation{};
  dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
      &operation, dnnl_forward_training, dnnl_convolution_direct, &wanted[X], &wanted[W], nullptr, &wanted[Y],
      strides.data(), dilations.data(), begin.data(), end.data());
  if (status != dnnl_success)
    return plan::error("oneDNN refuses the convolution: {}", libraryError(status));
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
    return plan::error("oneDNN refuses the convolution's gradient: {}", libraryError(status));
  return PrimitiveDesc::create(&operation, false, &*forward);
}

plan::Expected<Variant> makeVariant(const Design &design, int64_t samples) {
  Variant variant;
  variant.samples = samples;
  dnnl_memory_desc_t wanted[3];
  for (Role role : {X, W, Y}) {
    std::vector<int64_t> dims, strides;
    plainShape(design, role, samples, dims, strides);
    auto plain = stridedDesc(dims, dnnl_f32, strides), want = wantedDesc(design, role, dims);
    if (!plain || !want)
      return plain ? want.status() : plain.status();
    variant.plain[role] = *plain;
    wanted[role] = *want;
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

/// Samples a tile, by a model of arithmetic, reorders and idle workers, from the shape alone.
int64_t chooseTileBatch(const plan::ConvolutionCall &call) {
  constexpr double flopsPerNs = 105.0, reorderNsPerElement = 0.8, callNs = 4000;
  int64_t batch = call.x_dims(0);
  double perSample = 2.0 * static_cast<double>(product(call.y_dims(), 1)) *
                         static_cast<double>(product(call.w_dims(), 1)) / flopsPerNs +
                     reorderNsPerElement * static_cast<double>(product(call.x_dims(), 1) + product(call.y_dims(), 1));
  auto weights = static_cast<double>(product(call.w_dims(), 0));
  bool gradient = call.kind() == Kind::WEIGHT_GRADIENT;
  int64_t best = batch;
  double bestCost = 0;
  for (int64_t tile = batch;; tile = (tile + 1) / 2) {
    int64_t tiles = (batch + tile - 1) / tile;
    // Partial sums cost memory: at most four, or as many as a MiB holds.
    if (gradient && tiles > 4 && static_cast<double>(tiles) * weights * 4 > (1 << 20))
      break;
    double idle = 0.75 * static_cast<double>((tiles + 1) / 2 * 2) + 0.25 * static_cast<double>((tiles + 15) / 16 * 16);
    double cost = (static_cast<double>(tile) * perSample + reorderNsPerElement * weights + callNs) * idle;
    if (gradient && tiles > 1)
      cost += static_cast<double>(tiles) * weights * 0.5;
    if (bestCost == 0 || cost < bestCost) {
      bestCost = cost;
      best = tile;
    }
    if (tile == 1)
      break;
  }
  return best;
}

plan::Status checkShape(const plan::ConvolutionCall &call) {
  int rank = call.x_dims_size(), spatial = rank - 2;
  if (rank < 3 || rank > 5 || call.w_dims_size() != rank || call.y_dims_size() != rank ||
      call.strides_size() != spatial || call.dilations_size() != spatial || call.pads_begin_size() != spatial ||
      call.pads_end_size() != spatial)
    return plan::error("a convolution of 1 to 3 spatial dimensions needs operands of one rank; x has {}, w {}, y {}",
                       rank, call.w_dims_size(), call.y_dims_size());
  for (const auto *dims : {&call.x_dims(), &call.w_dims(), &call.y_dims()})
    for (int64_t dim : *dims)
      if (dim < 1 || dim >= (int64_t(1) << 31))
        return plan::error("a convolution with a dimension of {} is not supported", dim);
  if (call.groups() < 1 || call.x_dims(1) != call.w_dims(1) * call.groups() || call.w_dims(0) % call.groups() != 0 ||
      call.y_dims(1) != call.w_dims(0) || call.y_dims(0) != call.x_dims(0))
    return plan::error("batch or channels do not fit: x {}, w {}, y {}, groups {}", fmt::join(call.x_dims(), "x"),
                       fmt::join(call.w_dims(), "x"), fmt::join(call.y_dims(), "x"), call.groups());
  for (int i = 0; i < spatial; ++i)
    if (call.strides(i) < 1 || call.dilations(i) < 1 || call.pads_begin(i) < 0 || call.pads_end(i) < 0)
      return plan::error("spatial axis {}: stride {}, dilation {}, pads {} and {} are not supported", i,
                         call.strides(i), call.dilations(i), call.pads_begin(i), call.pads_end(i));
  return plan::Status::success();
}

bool allocatesMuch(const std::string &implementation) {
  return implementation.find("gemm") != std::string::npos && implementation.find("brg") == std::string::npos;
}

/// Chooses the layout: the first without the gemm-based kernel, else the first that the library has at all.
plan::Expected<Layout> chooseLayout(Design design) {
  plan::Status problem;
  std::optional<Layout> fallback;
  for (Layout layout : {Layout::Any, Layout::ChannelsLast, Layout::PerGroup}) {
    if (layout == Layout::PerGroup && design.call.groups() == 1)
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

plan::Expected<Design> makeDesign(const plan::ConvolutionCall &call) {
  if (call.dtype() != plan::F32)
    return plan::error("oneDNN is not used for {} convolutions: the call must be compiled",
                       plan::dtypeName(call.dtype()));
  if (plan::Status status = checkShape(call); !status.ok())
    return status;
  Design design;
  design.call = call;
  design.tileBatch = chooseTileBatch(call);
  bool forward = call.kind() == Kind::FORWARD, toInput = call.kind() == Kind::INPUT_GRADIENT;
  design.result = forward ? Y : toInput ? X : W;
  design.inputs[0] = toInput ? Y : X; // the order of the instruction's operands
  design.inputs[1] = forward || toInput ? W : Y;
  design.arguments[X] = toInput ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC;
  design.arguments[W] = design.result == W ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
  design.arguments[Y] = forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST;
  WorkerScope scope;
  auto layout = chooseLayout(design);
  if (!layout)
    return layout.status();
  design.layout = *layout;
  std::vector<int64_t> sizes = {design.tileBatch};
  if (design.batch() % design.tileBatch)
    sizes.push_back(design.batch() % design.tileBatch);
  uint64_t own = 0, room[3] = {0, 0, 0};
  for (int64_t samples : sizes) {
    auto variant = makeVariant(design, samples);
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
      design.variants[i].sharedOffset = design.sharedBytes;
      design.sharedBytes += design.variants[i].weightBytes() * static_cast<uint64_t>(design.groupCalls());
    }
    room[W] = 0;
  } else if (design.partial() && sameWeights && design.variants.front().reordered[W]) {
    design.askedPartials = true;
    room[W] = 0;
  }
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

void describe(const Design &design, plan::ConvolutionCall &call) {
  call.set_tile_batch(design.tileBatch);
  call.set_layout(design.layouts);
  call.set_partial_bytes(design.partialBytes());
  call.clear_kernels();
  auto add = [&](const PrimitiveDesc &desc) {
    plan::LibraryKernel *kernel = call.add_kernels();
    kernel->set_implementation(desc.implementation());
    kernel->set_scratch_bytes(desc.scratchBytes());
  };
  for (const Variant &variant : design.variants) {
    add(variant.main);
    for (Role role : {X, W, Y})
      if (variant.reordered[role])
        add(variant.reorder[role]);
  }
}

class ConvolutionRunner final : public LibraryCall {
public:
  static plan::Expected<std::unique_ptr<LibraryCall>> create(Design made, unsigned workers) {
    auto runner = std::make_unique<ConvolutionRunner>();
    WorkerScope scope;
    for (const Variant &variant : made.variants) {
      std::vector<Primitive::Argument> arguments;
      for (Role role : {X, W, Y})
        arguments.push_back({made.arguments[role], variant.asked[role]});
      auto main = Primitive::create(variant.main, arguments, workers);
      if (!main)
        return main.status();
      Ready ready{{}, main.take()};
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
      runner->ready.push_back(std::move(ready));
    }
    runner->design = std::move(made);
    const plan::ConvolutionCall &call = runner->design.call;
    runner->sampleElements[X] = product(call.x_dims(), 1);
    runner->sampleElements[Y] = product(call.y_dims(), 1);
    runner->weightElements = product(call.w_dims(), 0);
    for (Role role : {X, W, Y})
      runner->groupElements[role] = (role == W ? runner->weightElements : runner->sampleElements[role]) / call.groups();
    return std::unique_ptr<LibraryCall>(std::move(runner));
  }

  bool run(ThreadPool &pool, void *const *pointers, char *scratch) const override {
    std::atomic<bool> good{true};
    int64_t groups = design.groupCalls(), tiles = design.tiles() * groups;
    auto slot = [&](int64_t tile, int64_t of, unsigned worker) {
      return scratch + design.sharedBytes + slotOf(tile, of, worker, pool) * design.slotBytes;
    };
    auto note = [&good](bool fine) {
      if (!fine)
        good.store(false, std::memory_order_relaxed);
    };
    // Weights as the primitive asks for them: before the tiles where they are read, after the sum where they are made.
    auto reorderWeights = [&](const Ready &variant, float *plain, char *asked, uint64_t askedBytes) {
      pool.run(groups, [&](unsigned worker, int64_t begin, int64_t end) {
        for (int64_t group = begin; group < end; ++group) {
          void *pair[2] = {plain + group * groupElements[W], asked + static_cast<uint64_t>(group) * askedBytes};
          if (design.result == W)
            std::swap(pair[0], pair[1]);
          note(variant.reorder[W]->execute(worker, pair, slot(group, groups, worker)));
        }
      });
    };
    if (design.result != W)
      for (size_t i = 0; i < ready.size(); ++i)
        if (ready[i].reorder[W] && (i == 0 || design.variants[i].sharedOffset != design.variants[0].sharedOffset))
          reorderWeights(ready[i], static_cast<float *>(pointers[1]), scratch + design.variants[i].sharedOffset,
                         design.variants[i].weightBytes());
    pool.run(tiles, [&](unsigned worker, int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile)
        note(runTile(worker, tile / groups, tile % groups, pointers, scratch, slot(tile, tiles, worker)));
    });
    if (!design.partial())
      return good.load();
    auto *partials = static_cast<float *>(pointers[3]), *result = static_cast<float *>(pointers[2]);
    bool reorder = design.askedPartials;
    addPartials(pool, partials, design.tiles(), static_cast<int64_t>(design.partialBytes() / 4),
                reorder ? partials : result);
    if (reorder)
      reorderWeights(ready.front(), result, static_cast<char *>(pointers[3]), design.variants.front().weightBytes());
    return good.load();
  }

private:
  struct Ready {
    std::optional<Primitive> reorder[3];
    Primitive main;
  };

  bool runTile(unsigned worker, int64_t tile, int64_t group, void *const *pointers, char *scratch, char *slot) const {
    int64_t first = tile * design.tileBatch;
    bool full = design.batch() - first >= design.tileBatch;
    size_t which = full ? 0 : ready.size() - 1;
    const Ready &variant = ready[which];
    const Variant &decided = design.variants[which];
    float *plain[3];
    plain[design.inputs[0]] = static_cast<float *>(pointers[0]);
    plain[design.inputs[1]] = static_cast<float *>(pointers[1]);
    plain[design.result] = static_cast<float *>(pointers[design.partial() ? 3 : 2]);
    for (Role role : {X, Y})
      plain[role] += first * sampleElements[role];
    if (design.partial() && !design.askedPartials)
      plain[W] += tile * weightElements;
    for (Role role : {X, W, Y})
      plain[role] += group * groupElements[role];

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
  int64_t sampleElements[3] = {0, 0, 0}, groupElements[3] = {0, 0, 0}, weightElements = 0;
};
} // namespace

namespace {
LibraryNeeds needsOf(const Design &design) {
  LibraryNeeds needs;
  needs.scratchSlotBytes = design.slotBytes;
  needs.scratchSharedBytes = design.sharedBytes;
  needs.scratchSlots = static_cast<uint64_t>(design.tiles() * design.groupCalls());
  needs.partialBytes = static_cast<uint64_t>(design.tiles()) * design.partialBytes();
  return needs;
}
} // namespace

plan::Expected<LibraryNeeds> query(plan::ConvolutionCall &call) {
  auto design = makeDesign(call);
  if (!design)
    return design.status();
  describe(*design, call);
  return needsOf(*design);
}

plan::Expected<std::unique_ptr<LibraryCall>> prepare(const plan::ConvolutionCall &call, const Scratch &scratch,
                                                     unsigned workers) {
  auto design = makeDesign(call);
  if (!design)
    return design.status();
  plan::ConvolutionCall chosen = call;
  describe(*design, chosen);
  if (std::string reason = kernelMismatch(call, chosen); !reason.empty())
    return plan::error("{}; recompile the model with tcc", reason);
  if (std::string reason = scratchMismatch(scratch, needsOf(*design), workers); !reason.empty())
    return plan::error("{}; recompile the model with tcc", reason);
  return ConvolutionRunner::create(design.take(), workers);
}

} // namespace tcc::runtime
