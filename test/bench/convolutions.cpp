//===- convolutions.cpp - our convolutions beside oneDNN's -----------------===//
//
//   convolutions-bench [f32|bf16] [NAME] [first]
//
// Times layers of well-known networks, one thread, channels last (or first): forward, the input's gradient, the
// weights' gradient. The library's primitive chooses the weights' layout; copying weights into it, and their gradient
// back, is not counted. Prints a row of a table for each layer: milliseconds of ours (in the form chosen, and in each)
// and of the library, scratch of both in MiB, and the library's implementation. TCC_TEST_LEVEL names the level; the
// library uses all of the machine's instructions unless ONEDNN_MAX_CPU_ISA limits it.
//
//===----------------------------------------------------------------------===//
#include "test/bench/LeastTime.h"
#include "runtime/cpu/calls/ConvolutionDesign.h"
#include "test/unit/runtime/LibraryFixture.h"

#include <cstdio>

using namespace tcc;
using namespace tcc::test;
using Kind = plan::ConvolutionCall;

using tcc::bench::leastMilliseconds;

namespace {
struct Layer {
  const char *name;
  ConvolutionShape shape;
};

ConvolutionShape square(int64_t batch, int64_t in, int64_t size, int64_t out, int64_t kernel, int64_t stride, int64_t groups = 1,
                        int64_t dilation = 1) {
  int64_t pad = kernel / 2 * dilation;
  return {{batch, in, size, size}, {out, in / groups, kernel, kernel}, {stride, stride}, {dilation, dilation}, {pad, pad},
          {pad, pad}, groups};
}

const std::vector<Layer> kLayers = {
    {"ResNet-50 stem 7×7/2, 3→64, 224²", square(8, 3, 224, 64, 7, 2)},
    {"1×1, 64→256, 56²", square(8, 64, 56, 256, 1, 1)},
    {"1×1, 256→64, 56²", square(8, 256, 56, 64, 1, 1)},
    {"3×3, 64→64, 56²", square(8, 64, 56, 64, 3, 1)},
    {"3×3/2, 128→128, 56²", square(8, 128, 56, 128, 3, 2)},
    {"1×1/2, 256→512, 56²", square(8, 256, 56, 512, 1, 2)},
    {"3×3, 256→256, 14²", square(8, 256, 14, 256, 3, 1)},
    {"1×1, 1024→256, 14²", square(8, 1024, 14, 256, 1, 1)},
    {"3×3/2, 512→512, 14²", square(8, 512, 14, 512, 3, 2)},
    {"3×3, 512→512, 7²", square(8, 512, 7, 512, 3, 1)},
    {"1×1, 512→2048, 7²", square(8, 512, 7, 2048, 1, 1)},
    {"CIFAR 3×3, 3→64, 32²", square(64, 3, 32, 64, 3, 1)},
    {"depthwise 3×3, 96, 56²", square(8, 96, 56, 96, 3, 1, 96)},
    {"depthwise 3×3/2, 144, 56²", square(8, 144, 56, 144, 3, 2, 144)},
    {"depthwise 5×5, 240, 28²", square(8, 240, 28, 240, 5, 1, 240)},
    {"depthwise 7×7, 96, 56²", square(4, 96, 56, 96, 7, 1, 96)},
    {"ResNeXt 3×3, 32 groups of 4, 56²", square(4, 128, 56, 128, 3, 1, 32)},
    {"8 groups of 16, 28²", square(8, 128, 28, 128, 3, 1, 8)},
    {"dilated 3×3, 64→64, 28²", square(8, 64, 28, 64, 3, 1, 1, 2)},
    {"audio 1-D 3, 80→384, 3000", {{2, 80, 3000}, {384, 80, 3}, {1}, {1}, {1}, {1}, 1}},
    {"narrow 3×3, 1→8, 24²", square(4, 1, 24, 8, 3, 1)},
    {"narrow 3×3, 8→8, 24²", square(4, 8, 24, 8, 3, 1)},
    {"narrow 3×3, 16→8, 24²", square(4, 16, 24, 8, 3, 1)},
    {"narrow 3×3, 8→16, 12²", square(4, 8, 12, 16, 3, 1)},
    {"narrow 3×3/2, 8→16, 24²", square(4, 8, 24, 16, 3, 2)},
    {"narrow 2×2/2, 8→16, 24²", {{4, 8, 24, 24}, {16, 8, 2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, 1}},
    {"narrow 1×1, 8→2, 24²", square(4, 8, 24, 2, 1, 1)},
    {"narrow 3×3, 16→16, 128²", square(8, 16, 128, 16, 3, 1)},
    {"narrow 3×3, 3→16, 32²", square(64, 3, 32, 16, 3, 1)},
    {"3-D 3×3×3, 16→32, 16³", {{2, 16, 16, 16, 16}, {32, 16, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1}},
};

struct Result {
  double milliseconds = 0, scratchMiB = 0;
  std::string how;
  std::string form = "";
};

/// Times our call in form `form`; -1: in the form that the compiler chooses.
Result ours(Kind call, const Floats &first, const Floats &second, const Floats &result, int form) {
  if (auto needs = test::query(call); !needs)
    return {0, 0, needs.message(), ""};
  if (form >= 0) {
    call.set_form(Kind::Form(form));
    call.set_numerics(runtime::numericsOf(call.form()));
    auto design = runtime::ConvolutionDesign::create(call);
    if (!design)
      return {0, 0, "", ""};
    call.set_partial_bytes(design->partialBytes);
  }
  auto needs = runtime::needsOf(call);
  auto made = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, 1), 1);
  if (!made)
    return {0, 0, made.message(), ""};
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(1);
  Floats scratch(needs->scratchBytes(1) / 4), partials(needs->partialBytes / 4);
  void *pointers[] = {first.get(), second.get(), result.get(), partials.get()};
  double took = leastMilliseconds(
      [&] { runtime::runCall(**made, pool, pointers, reinterpret_cast<char *>(scratch.get())); });
  return {took, static_cast<double>(needs->scratchBytes(1) + needs->partialBytes) / (1 << 20), "", Kind::Form_Name(call.form())};
}

void check(dnnl_status_t status) {
  if (status != dnnl_success) {
    std::fprintf(stderr, "oneDNN: status %d\n", static_cast<int>(status));
    std::exit(1);
  }
}

Result library(const Kind &call, const Floats &first, const Floats &second, const Floats &result) {
  runtime::WorkerScope scope;
  dnnl_data_type_t type = call.dtype() == plan::BF16 ? dnnl_bf16 : dnnl_f32;
  std::vector<dnnl_dim_t> x(call.x_dims().begin(), call.x_dims().end()), w(call.w_dims().begin(), call.w_dims().end()),
      y(call.y_dims().begin(), call.y_dims().end()), strides(call.strides().begin(), call.strides().end()), dilations,
      begin(call.pads_begin().begin(), call.pads_begin().end()), end(call.pads_end().begin(), call.pads_end().end());
  for (int64_t dilation : call.dilations())
    dilations.push_back(dilation - 1);
  if (call.groups() > 1) {
    w[0] /= call.groups();
    w.insert(w.begin(), call.groups());
  }
  auto last = [&](const std::vector<dnnl_dim_t> &dims) {
    std::vector<int64_t> by(dims.size(), 1);
    int64_t pitch = dims[1];
    for (size_t i = dims.size() - 1; i >= 2; pitch *= dims[i--])
      by[i] = pitch;
    by[0] = pitch;
    return *runtime::stridedDesc(dims, type, by);
  };
  dnnl_memory_desc_t xd = last(x), yd = last(y), wd = *runtime::anyDesc(w, type);
  dnnl_convolution_desc_t operation{};
  check(dnnl_dilated_convolution_forward_desc_init(&operation, dnnl_forward_training, dnnl_convolution_direct, &xd, &wd,
                                                   nullptr, &yd, strides.data(), dilations.data(), begin.data(), end.data()));
  auto desc = runtime::PrimitiveDesc::create(&operation, false, nullptr);
  bool toInput = call.kind() == Kind::INPUT_GRADIENT, toWeights = call.kind() == Kind::WEIGHT_GRADIENT;
  if (toInput)
    check(dnnl_dilated_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, &xd, &wd, &yd, strides.data(),
                                                           dilations.data(), begin.data(), end.data()));
  if (toWeights)
    check(dnnl_dilated_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, &xd, &wd, nullptr, &yd,
                                                              strides.data(), dilations.data(), begin.data(), end.data()));
  runtime::PrimitiveDesc forward = desc.take(), main = forward;
  if (toInput || toWeights)
    main = runtime::PrimitiveDesc::create(&operation, false, &forward).take();
  dnnl_memory_desc_t weights = *main.memory(toWeights ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
  int xArgument = toInput ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, wArgument = toWeights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
      yArgument = toInput || toWeights ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST;
  auto primitive = runtime::Primitive::create(main, {{xArgument, xd}, {wArgument, weights}, {yArgument, yd}}, 1);
  Floats panel(dnnl_memory_desc_get_size(&weights) / 4 + 16), scratch(main.scratchBytes() / 4 + 16);
  void *pointers[] = {toInput ? result.get() : first.get(), panel.get(),
                      toInput     ? first.get()
                      : toWeights ? second.get()
                                  : result.get()};
  double took = leastMilliseconds([&] { primitive->execute(0, pointers, scratch.get()); });
  return {took, static_cast<double>(main.scratchBytes()) / (1 << 20), main.implementation(), ""};
}
} // namespace

int main(int argc, char **argv) {
  bool narrow = argc > 1 && std::string(argv[1]) == "bf16";
  const char *only = argc > 2 ? argv[2] : "";
  bool channelsLast = argc <= 3 || std::string(argv[3]) != "first";
  if (Status status = runtime::selectLevel(testLevel()); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  fmt::print("| layer | direction | ours, ms | by | by each form, ms | oneDNN, ms | ratio | ours, MiB | oneDNN, MiB | its kernel |\n"
             "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |\n");
  for (const Layer &layer : kLayers)
    for (Kind::Kind kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT}) {
      if (!std::strstr(layer.name, only))
        continue;
      Kind call = convolutionCall(layer.shape, kind);
      call.set_channels_last(channelsLast);
      call.set_dtype(narrow ? plan::BF16 : plan::F32);
      call.set_result_dtype(call.dtype());
      size_t x = elements(call.x_dims()), w = elements(call.w_dims()), y = elements(call.y_dims());
      bool forward = kind == Kind::FORWARD, toInput = kind == Kind::INPUT_GRADIENT;
      Floats first(toInput ? y : x), second(forward || toInput ? w : y), result(forward ? y : toInput ? x : w);
      Result own = ours(call, first, second, result, -1), other = library(call, first, second, result);
      static constexpr const char *names[] = {"forward", "input", "weights"};
      std::vector<std::string> forms;
      for (int form = Kind::Form_MIN; form <= Kind::Form_MAX; ++form)
        if (Result of = ours(call, first, second, result, form); of.milliseconds > 0)
          forms.push_back(fmt::format("{} {:.3f}", of.form, of.milliseconds));
      fmt::print("| {} | {} | {:.3f} | {} | {} | {:.3f} | {:.2f} | {:.1f} | {:.1f} | {} |\n", layer.name, names[kind], own.milliseconds,
                 own.form, fmt::join(forms, ", "), other.milliseconds, own.milliseconds / other.milliseconds, own.scratchMiB, other.scratchMiB,
                 own.how.empty() ? other.how : own.how);
      std::fflush(stdout);
    }
  return 0;
}
