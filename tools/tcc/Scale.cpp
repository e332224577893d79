//===- Scale.cpp - a step on many devices, predicted ----------------------===//
//
// Messages are those of rings (Patarasuk and Yuan, 2009): of n devices each sends (n − 1)/n of the bytes of a
// reduce-scatter or an all-gather, in n − 1 messages, and twice that for an all-reduce, which may take a tree's few
// messages instead. Several rings use all links between nodes at once. A device has one channel for messages; they are
// carried out in the order in which they begin.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/Scale.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Spaces.h"
#include "support/PlanNames.h"
#include "tools/tcc/ScaleProfile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tcc::report {

namespace {
uint64_t padded(uint64_t bytes) {
  return (bytes + plan::kAlignmentBytes - 1) / plan::kAlignmentBytes * plan::kAlignmentBytes;
}

/// Devices that exchange messages: `size`, on so many nodes.
struct Group {
  double size = 1, nodes = 1;
};

struct Cost {
  double seconds = 0, bytes = 0; ///< bytes: sent by a device
  Cost operator+(const Cost &other) const { return {seconds + other.seconds, bytes + other.bytes}; }
};

class Messages {
public:
  explicit Messages(const Cluster &cluster) : cluster(cluster) {}

  /// A reduce-scatter or an all-gather of `bytes` in all.
  Cost half(double bytes, Group group) const {
    if (group.size <= 1)
      return {};
    const double sent = bytes * (group.size - 1) / group.size;
    return {(group.size - 1) * latency(group) + sent / rate(group), sent};
  }

  Cost allReduce(double bytes, Group group) const {
    if (group.size <= 1)
      return {};
    const double sent = 2 * bytes * (group.size - 1) / group.size;
    const double perNode = group.size / group.nodes;
    const double ring = 2 * (group.size - 1) * latency(group);
    const double tree =
        2 * (std::ceil(std::log2(group.nodes)) * cluster.between.seconds + (perNode - 1) * cluster.within.seconds);
    return {std::min(ring, tree) + sent / rate(group), sent};
  }

  /// All-reduces of every device of a node with its counterparts on other nodes, all at once: they share the node's
  /// links.
  Cost allReduceAcross(double bytes, double perNode, double nodes) const {
    if (nodes <= 1)
      return {};
    const double sent = 2 * bytes * (nodes - 1) / nodes;
    return {2 * std::ceil(std::log2(nodes)) * cluster.between.seconds + sent * perNode / cluster.between.bytesPerSecond,
            sent};
  }

private:
  double latency(Group group) const { return group.nodes > 1 ? cluster.between.seconds : cluster.within.seconds; }
  double rate(Group group) const {
    if (group.nodes <= 1)
      return cluster.within.bytesPerSecond;
    if (group.size <= group.nodes)
      return cluster.between.bytesPerSecond;
    return std::min(cluster.within.bytesPerSecond, cluster.between.bytesPerSecond);
  }

  const Cluster &cluster;
};

/// A message that begins, or one that is waited for, at a moment of the computation.
struct Event {
  double at = 0;
  bool waits = false;
  size_t message = 0;
  double seconds = 0;
};

class Predictor {
public:
  Predictor(const plan::Plan &plan, const Cluster &cluster, std::vector<ScaleProgram> given)
      : plan(plan), cluster(cluster), messages(cluster), programs(std::move(given)),
        bucketBytes(std::max<uint64_t>(plan.training().parallel().bucket_bytes(), 1)),
        parameterWidth(plan.precision() == "bf16" || plan.precision() == "f16" ? 2 : 4) {}

  ScalePoint predict(ScaleMode mode, uint64_t devices) const {
    ScalePoint point;
    point.mode = mode;
    point.devices = devices;
    const double perNode = double(std::min(devices, cluster.ranksPerNode));
    const Group all{double(devices), std::ceil(double(devices) / double(cluster.ranksPerNode))};
    const bool gathers = mode == ScaleMode::Full || mode == ScaleMode::Hybrid;
    const Group sharing = mode == ScaleMode::Hybrid ? Group{perNode, 1} : all;
    const double shards = mode == ScaleMode::GradOp || gathers ? sharing.size : 1;
    setMemory(point, shards, gathers);

    auto reduce = [&](double bytes) {
      if (mode == ScaleMode::Ddp)
        return messages.allReduce(bytes, all);
      Cost cost = messages.half(bytes, sharing);
      return mode == ScaleMode::Hybrid ? cost + messages.allReduceAcross(bytes / perNode, perNode, all.nodes) : cost;
    };
    double seconds = 0, compute = 0;
    for (const ScaleProgram &program : programs) {
      std::vector<Event> events;
      Cost sent;
      std::vector<double> costs;
      auto begin = [&](double at, Cost cost) {
        events.push_back({at, false, costs.size(), cost.seconds});
        costs.push_back(cost.seconds);
        sent = sent + cost;
      };
      if (gathers)
        for (bool backward : {false, true}) {
          double before = 0;
          for (auto [at, bytes] : blocksOf(program, backward)) {
            events.push_back({at, true, costs.size(), 0});
            begin(std::min(before, at), messages.half(bytes, sharing));
            before = at;
          }
        }
      double lastShare = 1;
      if (mode != ScaleMode::None && !program.gradients.empty()) {
        double total = 0, bucket = 0;
        for (const ScaleProgram::Gradient &gradient : program.gradients)
          total += double(gradient.bytes);
        for (size_t i = 0; i < program.gradients.size(); ++i) {
          bucket += double(program.gradients[i].bytes);
          if (bucket < double(bucketBytes) && i + 1 < program.gradients.size())
            continue;
          begin(program.gradients[i].ready, reduce(bucket));
          lastShare = bucket / total;
          bucket = 0;
        }
      }
      const auto [clock, channel] = run(events, costs.size(), program.passSeconds);
      const double update = program.updateSeconds / shards;
      // A norm needs all sums; else parameters of earlier buckets are updated while the last one travels.
      double time = std::max(clock, channel) + update;
      if (!program.clips && mode == ScaleMode::Ddp)
        time = std::max(clock + update, channel + update * lastShare);
      if (mode == ScaleMode::GradOp && program.updateSeconds > 0) {
        const Cost gathered = messages.half(double(program.updatedElements) * 4, all);
        sent = sent + gathered;
        time += gathered.seconds;
      }
      const double runs = program.runs;
      seconds += runs * time;
      compute += runs * (program.passSeconds + update);
      point.sentBytes += runs * sent.bytes;
      point.messageSeconds += runs * sent.seconds;
    }
    if (mode != ScaleMode::None) { // whether all go on
      const Cost agreement = messages.allReduce(8, all);
      seconds += agreement.seconds;
      point.messageSeconds += agreement.seconds;
      point.sentBytes += agreement.bytes;
    }
    point.stepSeconds = seconds;
    point.exposedSeconds = std::max(seconds - compute, 0.0);
    return point;
  }

  uint64_t elements() const {
    uint64_t count = 0;
    for (const plan::Variable &variable : plan.variables())
      if (variable.role() == plan::PARAMETER)
        count += elementsOf(variable);
    return count;
  }

private:
  static uint64_t elementsOf(const plan::Variable &variable) {
    uint64_t count = 1;
    for (int64_t extent : variable.type().dims())
      count *= uint64_t(extent);
    return count;
  }

  /// Parameters in the order of their first use, grouped into blocks of a bucket's size: time of first use, and bytes.
  std::vector<std::pair<double, double>> blocksOf(const ScaleProgram &program, bool backward) const {
    std::vector<ScaleProgram::Parameter> uses;
    for (const ScaleProgram::Parameter &parameter : program.parameters)
      if (!backward || parameter.backward >= 0)
        uses.push_back(parameter);
    if (backward)
      std::stable_sort(uses.begin(), uses.end(), [](const auto &a, const auto &b) { return a.backward < b.backward; });
    std::vector<std::pair<double, double>> blocks;
    for (const ScaleProgram::Parameter &parameter : uses) {
      if (blocks.empty() || blocks.back().second >= double(bucketBytes))
        blocks.emplace_back(backward ? parameter.backward : parameter.forward, 0);
      blocks.back().second += double(parameter.elements * parameterWidth);
    }
    return blocks;
  }

  void setMemory(ScalePoint &point, double shards, bool gathers) const {
    point.stateBytes = plan::spaceBytes(plan, plan::RESIDENT);
    for (const plan::Variable &variable : plan.variables()) {
      // Averages are where their parameters are.
      const bool sharded = variable.role() == plan::OPTIMIZER ||
                           (gathers && (variable.role() == plan::PARAMETER || variable.role() == plan::EMA));
      const uint64_t elements = elementsOf(variable), width = plan::dtypeBytes(variable.type().dtype());
      if (sharded && shards > 1)
        point.stateBytes -= padded(elements * width) - padded(plan::shardElements(elements, uint64_t(shards)) * width);
    }
    double block = 0;
    for (const ScaleProgram &program : programs) {
      point.arenaBytes =
          std::max(point.arenaBytes, shards > 1 ? program.arenaWith(1 / shards, gathers ? 0 : 1) : program.arenaBytes);
      double before = 0;
      for (auto [at, bytes] : blocksOf(program, false)) {
        block = std::max(block, before + bytes);
        before = bytes;
      }
    }
    if (shards > 1)
      point.gatherBytes = uint64_t(gathers ? block : 0) + std::min<uint64_t>(bucketBytes, elements() * 4);
    point.fits = point.memoryBytes() <= cluster.memoryBytes - cluster.reservedBytes;
  }

  /// The times at which the computation and the last message end.
  std::pair<double, double> run(std::vector<Event> events, size_t count, double passSeconds) const {
    // At equal times messages begin before waits, so that a message has begun when it is waited for.
    std::stable_sort(events.begin(), events.end(),
                     [](const Event &a, const Event &b) { return a.at != b.at ? a.at < b.at : a.waits < b.waits; });
    std::vector<double> done(count, 0);
    double clock = 0, channel = 0, computed = 0;
    for (const Event &event : events) {
      clock += event.at - computed;
      computed = event.at;
      if (event.waits) {
        clock = std::max(clock, done[event.message]);
        continue;
      }
      done[event.message] = channel = std::max(clock, channel) + event.seconds;
      if (!cluster.overlap)
        clock = channel;
    }
    return {clock + passSeconds - computed, channel};
  }

  const plan::Plan &plan;
  const Cluster &cluster;
  const Messages messages;
  const std::vector<ScaleProgram> programs;
  const uint64_t bucketBytes, parameterWidth;
};
} // namespace

std::string_view scaleModeName(ScaleMode mode) {
  constexpr std::string_view names[] = {"none", "ddp", "grad_op", "full", "hybrid"};
  return names[size_t(mode)];
}

const ScalePoint *ScalePrediction::best(uint64_t devices) const {
  const ScalePoint *found = nullptr;
  for (const ScalePoint &point : points)
    if (point.devices == devices && point.fits && (!found || point.stepSeconds < found->stepSeconds * (1 - 1e-9)))
      found = &point;
  return found;
}

const ScalePoint *ScalePrediction::smallest() const {
  for (const ScalePoint &point : points)
    if (point.fits)
      return best(point.devices);
  return nullptr;
}

Expected<ScalePrediction> predictScale(const plan::Plan &plan, const Cluster &cluster, uint64_t mostDevices) {
  std::vector<ScaleProgram> programs = profileScale(plan, cluster);
  if (programs.empty())
    return error("the model does not train: a prediction needs a loss; give a recipe with [loss]");
  ScalePrediction result;
  int64_t accumulate = std::max<int64_t>(plan.training().accumulate(), 1);
  for (const plan::Entry &entry : plan.entries())
    if (entries::isOfUpdate(entry.name()))
      result.samples = std::max(result.samples, entry.batch() * accumulate);
  for (const ScaleProgram &program : programs)
    for (const ScaleProgram::Gradient &gradient : program.gradients)
      result.gradientBytes += gradient.bytes;
  const Predictor predictor(plan, cluster, std::move(programs));
  result.parameters = predictor.elements();
  result.parameterBytes = result.parameters * 4;
  result.availableBytes = cluster.memoryBytes - cluster.reservedBytes;
  const ScalePoint alone = predictor.predict(ScaleMode::None, 1);
  result.computeSeconds = alone.stepSeconds;
  for (uint64_t devices = 1; devices <= mostDevices; devices *= 2)
    for (ScaleMode mode : kScaleModes) {
      const bool several = devices > 1;
      if ((mode == ScaleMode::None) == several ||
          (mode == ScaleMode::Hybrid &&
           (devices <= cluster.ranksPerNode || devices % cluster.ranksPerNode != 0 || cluster.ranksPerNode == 1)))
        continue;
      ScalePoint point = predictor.predict(mode, devices);
      point.efficiency = point.stepSeconds > 0 ? alone.stepSeconds / point.stepSeconds : 0;
      result.points.push_back(point);
    }
  return result;
}

} // namespace tcc::report
