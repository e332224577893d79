//===- DnnEngines.cpp - what cuDNN answers, as lines of JSON --------------===//
//
// For shapes of common networks, in both layouts and all types: which engines heuristics A list, in their order with
// their numerical notes; of the first one and of the first that our runtime takes, workspace, time and error. Forward
// also with a bias: a card without an engine for that is reported, not a failure.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/DnnProbe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace tcc::probes {

namespace {
constexpr int64_t kMostWorkspace = int64_t(2) << 30;
constexpr int kSamples = 64;

std::string listOf(const std::vector<int64_t> &numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return "[" + text + "]";
}

/// The least milliseconds of some runs; negative after a failure.
double millisecondsOf(Convolution &convolution, cudnnBackendDescriptor_t plan, CUstream stream, int runs) {
  CUevent begin = nullptr, end = nullptr;
  cu.eventCreate(&begin, CU_EVENT_DEFAULT);
  cu.eventCreate(&end, CU_EVENT_DEFAULT);
  float least = -1;
  for (int run = 0; run < runs; ++run) {
    cu.eventRecord(begin, stream);
    if (convolution.execute(plan, stream) != CUDNN_STATUS_SUCCESS)
      return -1;
    cu.eventRecord(end, stream);
    if (cu.eventSynchronize(end) != CUDA_SUCCESS)
      return -1;
    float milliseconds = 0;
    cu.eventElapsedTime(&milliseconds, begin, end);
    if (run > 0 || runs == 1)
      least = least < 0 ? milliseconds : std::min(least, milliseconds);
  }
  return double(least);
}

/// An engine and its measurements as a JSON object.
std::string describe(Program &p, Convolution &convolution, const Engine &engine, int runs, bool &good) {
  std::string text = "{\"engine\":" + std::to_string(engine.index) + ",\"notes\":" + listOf(engine.notes) +
                     ",\"behavior\":" + listOf(engine.behavior) + ",\"knobs\":\"";
  for (auto [kind, value] : engine.knobs)
    text += std::to_string(kind) + "=" + std::to_string(value) + " ";
  if (text.back() == ' ')
    text.pop_back();
  text += "\"";
  int64_t workspace = 0;
  auto plan = convolution.plan(engine.configuration, &workspace);
  if (!plan)
    return text + ",\"plan\":false}";
  text += ",\"workspace\":" + std::to_string(workspace);
  if (workspace > kMostWorkspace || convolution.card)
    return text + "}";
  convolution.reserve(workspace);
  const double milliseconds = millisecondsOf(convolution, plan, p.stream, runs);
  if (milliseconds < 0) {
    good = false;
    return text + ",\"runs\":false}";
  }
  const std::vector<float> one = convolution.get(convolution.result());
  convolution.execute(plan, p.stream);
  const std::vector<float> other = convolution.get(convolution.result());
  const bool repeats = std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
  // The error in units of half an ulp of f32, relative to the sum of absolute products.
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    const auto at = static_cast<int64_t>(size_t(i) * 2654435761u % one.size());
    double magnitude = 0;
    const double exact = convolution.reference(at, &magnitude);
    worst = std::max(worst, magnitude > 0 ? std::abs(double(one[size_t(at)]) - exact) / magnitude * 0x1p24 : 0);
    if (std::isnan(one[size_t(at)]))
      worst = INFINITY;
  }
  char numbers[128];
  std::snprintf(numbers, sizeof numbers, ",\"ms\":%.4f,\"error\":%.4g,\"repeats\":%s}", milliseconds,
                std::isfinite(worst) ? worst : 1e30, repeats ? "true" : "false");
  good = good && std::isfinite(worst);
  return text + numbers;
}
} // namespace

bool printEngines(Program &p, const std::string &architecture) {
  char name[256] = "";
  cudnnBackendDescriptor_t card = nullptr;
  if (architecture.empty()) {
    cu.deviceGetName(name, sizeof name, 0);
  } else {
    card = describeCard(architecture);
    if (!card) {
      std::fprintf(stderr, "probes: cuDNN %zu describes no card of %s\n", dnn.getVersion(), architecture.c_str());
      return false;
    }
    std::snprintf(name, sizeof name, "none: properties of %s", architecture.c_str());
  }
  const bool emulated = std::strncmp(name, "Emulated", 8) == 0;
  std::vector<ConvolutionShape> shapes(6);
  auto give = [&](size_t i, const char *title, int64_t batch, int64_t channels, int64_t size, int64_t features,
                  int64_t taps, int64_t stride, int64_t groups) {
    ConvolutionShape &s = shapes[i];
    s.name = title;
    s.batch = emulated ? 1 : batch;
    s.rows = s.columns = emulated ? 7 : size;
    s.channels = emulated ? std::max<int64_t>(3, channels / 16) : channels;
    s.features = emulated ? std::max<int64_t>(3, features / 16) : features;
    s.groups = groups > 1 ? s.channels / (channels / groups) : 1;
    s.taps[0] = s.taps[1] = taps;
    s.strides[0] = s.strides[1] = stride;
    s.before[0] = s.before[1] = s.after[0] = s.after[1] = taps / 2;
  };
  give(0, "3x3 64->64 at 56", 8, 64, 56, 64, 3, 1, 1);
  give(1, "1x1 256->64 at 56", 8, 256, 56, 64, 1, 1, 1);
  give(2, "3x3 512->512 at 7", 8, 512, 7, 512, 3, 1, 1);
  give(3, "7x7 stride 2 3->64 at 224", 8, 3, 224, 64, 7, 2, 1);
  give(4, "3x3 depthwise 144 at 28", 8, 144, 28, 144, 3, 1, 144);
  give(5, "3x3 stride 2 128->256 at 28", 8, 128, 28, 256, 3, 2, 1);
  std::printf("{\"cudnn\":%zu,\"device\":\"%s\"}\n", dnn.getVersion(), name);
  struct Type {
    const char *name;
    cudnnDataType_t type;
    bool tf32;
  };
  bool good = true;
  for (const ConvolutionShape &base : shapes)
    for (Type type : {Type{"f32", CUDNN_DATA_FLOAT, false},
                      {"tf32", CUDNN_DATA_FLOAT, true},
                      {"bf16", CUDNN_DATA_BFLOAT16, false},
                      {"f16", CUDNN_DATA_HALF, false}})
      for (bool last : {false, true})
        for (auto [direction, finish] : {std::pair(Direction::Forward, Finish::None),
                                         {Direction::Data, Finish::None},
                                         {Direction::Filter, Finish::None},
                                         {Direction::Forward, Finish::Bias}}) {
          ConvolutionShape shape = base;
          shape.type = type.type;
          shape.channelsLast = last;
          shape.direction = direction;
          shape.finish = finish;
          Convolution convolution(p, shape, card);
          if (!card)
            convolution.fill(false);
          const std::vector<Engine> listed = convolution.engines(CUDNN_HEUR_MODE_A);
          std::string order;
          for (size_t i = 0; i < listed.size() && i < 12; ++i)
            order +=
                (i ? "," : "") + std::string("\"") + std::to_string(listed[i].index) + listOf(listed[i].notes) + "\"";
          static constexpr const char *kDirections[] = {"forward", "data", "filter"};
          static constexpr const char *kFinishes[] = {"", " + bias"};
          std::printf("{\"shape\":\"%s\",\"direction\":\"%s%s\",\"type\":\"%s\",\"channels_last\":%s,\"listed\":%zu,"
                      "\"order\":[%s]",
                      shape.name, kDirections[int(direction)], kFinishes[int(finish)], type.name,
                      last ? "true" : "false", listed.size(), order.c_str());
          const int runs = emulated ? 1 : 6;
          const std::optional<Engine> taken = convolution.first(type.tf32);
          const bool same =
              taken && !listed.empty() && taken->index == listed.front().index && taken->knobs == listed.front().knobs;
          if (!listed.empty() && !emulated && !same)
            std::printf(",\"first\":%s", describe(p, convolution, listed.front(), runs, good).c_str());
          if (taken)
            std::printf(",\"taken_is_first\":%s,\"taken\":%s}\n", same ? "true" : "false",
                        describe(p, convolution, *taken, runs, good).c_str());
          else
            std::printf(",\"taken\":null}\n");
          good = good && (taken || finish != Finish::None);
          std::fflush(stdout);
        }
  return good;
}

} // namespace tcc::probes
