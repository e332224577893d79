//===- Scale.cpp - a step on many devices, predicted ----------------------===//
//
// Messages are those of rings (Patarasuk and Yuan, 2009): of n devices each sends (n − 1)/n of the bytes of a
// reduce-scatter or an all-gather, in n − 1 messages, and twice that for an all-reduce, which may take a tree's few
// messages instead. Several rings use all links between nodes at once. A device has one channel for messages; they are
// carried out in the order in which they begin.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/Scale.h"
#include "compiler/emit/Lives.h"
#include "compiler/planning/Transfers.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/DynamicMap.h"
#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VirtualRanks.h"
#include "support/PlanNames.h"
#include "tools/tcc/Cluster.h"
#include "tools/tcc/Report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

namespace tcc::report {

/// A program of an update on one device, by the roofline of the cluster's devices. Times count from its beginning and
/// leave out instructions that write parameters or optimizer state: these wait for sums and come last.
struct ScaleProgram {
  struct Gradient {
    double ready = 0;   ///< when its last term is computed, or the sum of a window
    uint64_t bytes = 0; ///< bytes that are sent
  };
  struct Parameter {
    double forward = 0, backward = -1; ///< first use in each pass; −1: none
    uint64_t elements = 0;
  };
  /// Bytes of the arena during instructions [first, last].
  struct Span {
    int32_t first = 0, last = 0;
    uint64_t bytes = 0;
  };

  double runs = 1;     ///< in an update; less for a phase that does not run at every step
  bool clips = false;  ///< its update waits for the norm of all gradients
  uint64_t updatedElements = 0; ///< of parameters
  double passSeconds = 0, updateSeconds = 0; ///< with the waits for transfers
  double passWaits = 0, updateWaits = 0;     ///< for transfers
  std::vector<Gradient> gradients;           ///< by time; only in programs that update
  std::vector<Gradient> windowGradients;     ///< by time; only in programs that add them to accumulators
  std::vector<Parameter> parameters; ///< by first use
  std::vector<uint64_t> liveBytes;   ///< of the arena, at each instruction
  std::vector<Span> doneGradients;   ///< gradients that wait for their update
  std::vector<Span> copies;          ///< copies of parameters in another type
  uint64_t arenaBytes = 0;

  /// The arena if only the fraction `kept` of every done gradient remains, and `copied` of every copy: it shrinks as
  /// its live bytes do.
  uint64_t arenaWith(double kept, double copied) const;
};

namespace {
uint64_t elementsOf(const plan::TensorType &type) {
  uint64_t elements = 1;
  for (int64_t extent : type.dims())
    elements *= uint64_t(extent);
  return elements;
}

double secondsOf(const plan::Instruction &instruction, const Cluster &cluster) {
  if (instruction.has_collective())
    return 0;
  const plan::MatmulCall &product = instruction.matmul();
  const plan::ConvolutionCall &convolution = instruction.convolution();
  const bool tensorF32 = product.tf32() || convolution.tf32();
  const double rate = instruction.has_matmul()        ? cluster.productRate(product.dtype(), tensorF32)
                      : instruction.has_convolution() ? cluster.productRate(convolution.dtype(), tensorF32)
                      : instruction.has_attention()   ? cluster.productRate(instruction.attention().dtype(), false)
                      : !instruction.kernel().loops().empty() && instruction.kernel().dtype() != plan::DTYPE_NONE
                          ? cluster.productRate(instruction.kernel().dtype(), false)
                          : cluster.vectorF32;
  return std::max(instruction.flops() / rate, double(instruction.bytes()) / cluster.memoryRate) / cluster.efficiency;
}

/// A part of a program as its device runs it: instructions one after another, and beside them two channels, of stores
/// and of fetches, each of which carries out its transfers in order.
class Clock {
public:
  double now = 0, waited = 0;

  void run(int32_t instruction, double seconds) {
    waitFor([&](const Transfer &one) { return one.until < instruction; });
    now += seconds;
  }
  /// A transfer that may run beside the instructions up to `until`.
  void transfer(int32_t instruction, bool store, double seconds, int32_t until) {
    waitFor([&](const Transfer &one) { return one.until < instruction; });
    double &channel = channels[store];
    channel = std::max(channel, now) + seconds;
    running.push_back({until, channel});
  }
  void finish() {
    waitFor([](const Transfer &) { return true; });
  }

private:
  struct Transfer {
    int32_t until = 0;
    double end = 0;
  };
  template <typename Due> void waitFor(Due isDue) {
    const double before = now;
    for (const Transfer &one : running)
      if (isDue(one))
        now = std::max(now, one.end);
    waited += now - before;
    std::erase_if(running, isDue);
  }

  std::array<double, 2> channels{};
  std::vector<Transfer> running;
};

class Profiler {
public:
  Profiler(const plan::Plan &plan, const Cluster &cluster, const ProgramMemory &memory)
      : plan(plan), cluster(cluster), entry(*memory.planned), lives(emit::analyzeLives(plan, entry)) {
    const plan::Phase *phase = phaseOf(entry.name());
    result.runs = double(entries::runsPerUpdate(entry.name(), std::max<int64_t>(plan.training().accumulate(), 1))) /
                  double(phase ? std::max<uint64_t>(phase->every(), 1) : 1);
    if (plan::isOfEarlierStage(plan.training(), entry.name()))
      result.runs = 0;
    result.clips = (phase ? phase->training() : plan.training()).has_clip_norm();
    result.arenaBytes = memory.arenaBytes;
    const uint64_t resident = plan::spaceBytes(plan, plan::RESIDENT);
    for (const TimelineRow &row : memory.timeline)
      result.liveBytes.push_back(row.liveBytes - std::min(row.liveBytes, resident));
  }

  ScaleProgram run() {
    findUpdates();
    Clock pass, update;
    for (int32_t i = 0; i < entry.instructions_size(); ++i) {
      begins.push_back(pass.now);
      const plan::Instruction &instruction = entry.instructions(i);
      Clock &clock = isUpdate(i) ? update : pass;
      if (instruction.has_transfer())
        clock.transfer(i, isStore(instruction), double(instruction.cost()) * 1e-9, i + instruction.beside());
      else
        clock.run(i, secondsOf(instruction, cluster));
    }
    begins.push_back(pass.now);
    for (Clock *clock : {&pass, &update})
      clock->finish();
    result.passSeconds = pass.now, result.passWaits = pass.waited;
    result.updateSeconds = update.now, result.updateWaits = update.waited;
    for (int id = 0; id < entry.buffers_size(); ++id) {
      const plan::Variable *variable = variableOf(uint32_t(id));
      if (variable && variable->role() == plan::PARAMETER)
        addParameter(id, *variable);
      else if (variable && variable->role() == plan::ACCUMULATOR)
        addSum(id, *variable);
    }
    if (!result.gradients.empty())
      result.windowGradients.clear();
    auto byTime = [](const auto &a, const auto &b) { return a.ready < b.ready; };
    std::stable_sort(result.gradients.begin(), result.gradients.end(), byTime);
    std::stable_sort(result.windowGradients.begin(), result.windowGradients.end(), byTime);
    std::stable_sort(result.parameters.begin(), result.parameters.end(),
                     [](const auto &a, const auto &b) { return a.forward < b.forward; });
    return std::move(result);
  }

private:
  /// Null: the plan has one optimizer.
  const plan::Phase *phaseOf(std::string_view name) const {
    const size_t dot = name.find('.');
    for (const plan::Phase &phase : plan.training().phases())
      if (dot != name.npos && name.substr(dot + 1) == phase.name())
        return &phase;
    return nullptr;
  }

  /// The variable that a buffer is, or whose copy from the host it holds; null: neither.
  const plan::Variable *variableOf(uint32_t buffer) const {
    const int32_t own = entry.buffers(int(buffer)).variable();
    return own < 0 ? nullptr : &plan.variables(own);
  }
  const plan::Variable *stateIn(uint32_t buffer, int32_t at) const {
    if (const plan::Variable *own = variableOf(buffer))
      return own;
    const int32_t writer = writerBefore(buffer, at);
    return writer >= 0 && entry.instructions(writer).has_transfer()
               ? variableOf(entry.instructions(writer).operands(0).buffer())
               : nullptr;
  }
  bool isStore(const plan::Instruction &transfer) const {
    return plan::isOnHost(entry.buffers(int(transfer.operands(1).buffer())).arena());
  }

  /// An update writes parameters or optimizer state: its memory, or a value that is then stored on the host. It
  /// includes the transfers of state, but for those of parameters that a pass reads.
  void findUpdates() {
    updates.resize(size_t(entry.instructions_size()));
    for (int32_t i = 0; i < entry.instructions_size(); ++i)
      updates[size_t(i)] = lives.phases[size_t(i)] == emit::Phase::Update;
    for (int32_t i = 0; i < entry.instructions_size(); ++i) {
      const plan::Instruction &instruction = entry.instructions(i);
      if (!instruction.has_transfer())
        continue;
      const uint32_t from = instruction.operands(0).buffer(), to = instruction.operands(1).buffer();
      if (variableOf(to))
        if (const int32_t maker = writerBefore(from, i); maker >= 0)
          updates[size_t(maker)] = true;
      if (const plan::Variable *variable = variableOf(from); variable && variable->role() != plan::PARAMETER)
        updates[size_t(i)] = true;
    }
  }
  bool isUpdate(int32_t i) const { return updates[size_t(i)]; }

  /// The last instruction before `at` that writes the buffer; −1: none.
  int32_t writerBefore(uint32_t buffer, int32_t at) const {
    const std::vector<int32_t> &writers = lives.buffers[buffer].writers;
    auto found = std::lower_bound(writers.begin(), writers.end(), at);
    return found == writers.begin() ? -1 : *std::prev(found);
  }

  void addParameter(int id, const plan::Variable &variable) {
    const uint64_t elements = elementsOf(variable.type());
    ScaleProgram::Parameter parameter;
    parameter.elements = elements;
    parameter.forward = -1;
    noteUses(id, elements, parameter, /*copies=*/true);
    if (parameter.forward >= 0 || parameter.backward >= 0) {
      if (parameter.forward < 0)
        std::swap(parameter.forward, parameter.backward);
      result.parameters.push_back(parameter);
    }
    int32_t updated = -1;
    for (int32_t writer : lives.buffers[size_t(id)].writers)
      updated = std::max(updated, writer);
    if (updated < 0)
      return;
    result.updatedElements += elements;
    std::set<int32_t> visited;
    const double ready = readyOf(updated, elements, visited);
    const plan::DType dtype = plan.training().parallel().reduce_dtype() == "f32" ? plan::F32 : plan::BF16;
    result.gradients.push_back({std::max(ready, 0.0), elements * plan::dtypeBytes(dtype)});
  }

  /// The sum of a parameter's gradient over a window.
  void addSum(int id, const plan::Variable &variable) {
    const std::vector<int32_t> &writers = lives.buffers[size_t(id)].writers;
    if (writers.empty() || variable.type().dims().empty())
      return;
    const uint64_t width = plan.training().parallel().reduce_dtype() == "f32" ? 4 : 2;
    result.windowGradients.push_back({begins[size_t(writers.back()) + 1], elementsOf(variable.type()) * width});
  }

  void noteUses(int id, uint64_t elements, ScaleProgram::Parameter &parameter, bool copies) {
    for (int32_t reader : lives.buffers[size_t(id)].readers) {
      if (isUpdate(reader))
        continue;
      double &first = lives.phases[size_t(reader)] == emit::Phase::Forward ? parameter.forward : parameter.backward;
      if (first < 0)
        first = begins[size_t(reader)];
      if (!copies || !copiesAlone(reader))
        continue;
      for (const plan::Operand &operand : entry.instructions(reader).operands()) {
        const plan::Buffer &made = entry.buffers(int(operand.buffer()));
        if (!operand.write() || made.variable() >= 0 || elementsOf(made.type()) != elements)
          continue;
        result.copies.push_back({made.first(), made.last(), made.bytes()});
        noteUses(int(operand.buffer()), elements, parameter, false);
      }
    }
  }

  /// True for an instruction that reads one buffer: if that is a parameter, it only converts its type or layout.
  bool copiesAlone(int32_t instruction) const {
    int reads = 0;
    for (const plan::Operand &operand : entry.instructions(instruction).operands())
      reads += operand.read();
    return reads == 1;
  }

  /// The time at which the gradient that an update's instruction reads is complete; looks through sums over ranks and
  /// the rest of the update. A value without the parameter's size (a norm, a rate) is not its gradient. −1: when the
  /// program begins.
  double readyOf(int32_t at, uint64_t elements, std::set<int32_t> &visited) {
    double ready = -1;
    bool found = false;
    for (const plan::Operand &operand : entry.instructions(at).operands()) {
      const plan::Buffer &buffer = entry.buffers(int(operand.buffer()));
      if (!operand.read() || elementsOf(buffer.type()) != elements)
        continue;
      const plan::Variable *state = stateIn(operand.buffer(), at);
      const plan::VariableRole role = state ? state->role() : plan::CONSTANT;
      if (role == plan::PARAMETER || role == plan::OPTIMIZER || role == plan::EMA)
        continue;
      found = true;
      ready = std::max(ready, readyOfBuffer(operand.buffer(), at, elements, visited));
    }
    // A product that hands its rows to the update stores no gradient.
    return found ? ready : begins[size_t(at)];
  }

  double readyOfBuffer(uint32_t id, int32_t at, uint64_t elements, std::set<int32_t> &visited) {
    const int32_t writer = writerBefore(id, at);
    if (writer < 0 || !visited.insert(writer).second)
      return -1;
    const plan::Buffer &buffer = entry.buffers(int(id));
    if (buffer.variable() < 0)
      result.doneGradients.push_back({writer + 1, std::min(buffer.last(), at), buffer.bytes()});
    const plan::Instruction &instruction = entry.instructions(writer);
    if (instruction.has_collective()) {
      // The sources, then as many destinations.
      const int half = instruction.operands_size() / 2;
      for (int i = 0; i < half; ++i)
        if (instruction.operands(half + i).buffer() == id)
          return readyOfBuffer(instruction.operands(i).buffer(), writer, elements, visited);
    }
    return isUpdate(writer) ? readyOf(writer, elements, visited) : begins[size_t(writer) + 1];
  }

  const plan::Plan &plan;
  const Cluster &cluster;
  const plan::Entry &entry;
  const emit::EntryLives lives;
  std::vector<bool> updates;  ///< by instruction
  std::vector<double> begins; ///< of each instruction, and the end
  ScaleProgram result;
};
} // namespace

uint64_t ScaleProgram::arenaWith(double kept, double copied) const {
  std::vector<double> change(liveBytes.size() + 2, 0);
  auto add = [&](const std::vector<Span> &spans, double share) {
    for (const Span &span : spans)
      if (span.first <= span.last) {
        change[size_t(std::max(span.first, 0))] += share * double(span.bytes);
        change[std::min(size_t(span.last) + 1, change.size() - 1)] -= share * double(span.bytes);
      }
  };
  add(doneGradients, 1 - kept);
  add(copies, 1 - copied);
  double saved = 0, peak = 0, before = 0;
  for (size_t i = 0; i < liveBytes.size(); ++i) {
    saved += change[i];
    before = std::max(before, double(liveBytes[i]));
    peak = std::max(peak, double(liveBytes[i]) - std::min(saved, double(liveBytes[i])));
  }
  return before > 0 ? uint64_t(std::ceil(double(arenaBytes) * (peak / before))) : arenaBytes;
}

/// The programs of an update.
static std::vector<ScaleProgram> profileScale(const plan::Plan &plan, const Cluster &cluster) {
  const Report report = analyzePlan(plan, 0);
  std::vector<ScaleProgram> programs;
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs)
      if (entries::isOfUpdate(program.name))
        programs.push_back(Profiler(plan, cluster, program).run());
  return programs;
}

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

/// What a compile decides anew where state is sharded.
struct Decisions {
  bool shardsSums = false; ///< accumulators are shards
  uint64_t movedParts = 0; ///< eighths of the optimizer's state that are on the host
};

class Predictor {
public:
  Predictor(const plan::Plan &plan, const Cluster &cluster, const ScaleWishes &wishes, std::vector<ScaleProgram> given)
      : plan(plan), cluster(cluster), wishes(wishes), messages(cluster), programs(std::move(given)),
        bucketBytes(std::max<uint64_t>(plan.training().parallel().bucket_bytes(), 1)),
        parameterWidth(plan.precision() == "bf16" || plan.precision() == "f16" ? 2 : 4) {
    std::map<std::string_view, const plan::Variable *> byName;
    for (const plan::Variable &variable : plan.variables())
      byName[variable.name()] = &variable;
    for (const auto &[name, variable] : byName) {
      const auto magnitudes = byName.find(std::string(name) + std::string(states::kMagnitudesSuffix));
      const auto parameter = byName.find(name.substr(0, name.rfind('/')));
      if (variable->role() != plan::OPTIMIZER || magnitudes == byName.end() || parameter == byName.end())
        continue;
      inBlocks[variable] = inBlocks[magnitudes->second] = elementsOf(parameter->second->type());
    }
  }

  /// The prediction of a mode with all that a compile may decide: the fastest that fits, else the smallest.
  ScalePoint predict(ScaleMode mode, uint64_t devices) const {
    ScalePoint best = predict(mode, devices, {wishes.accumulators == "shards", wishes.offload == "state" ? 8U : 0U});
    if (!wishes.budgetBytes || !isSharded(mode))
      return best;
    for (bool shardsSums : {false, true})
      for (uint64_t parts : {0, 1, 2, 4, 8}) {
        if ((wishes.accumulators != "auto" && shardsSums != (wishes.accumulators == "shards")) ||
            (wishes.offload != "auto" && parts != (wishes.offload == "state" ? 8U : 0U)))
          continue;
        const ScalePoint other = predict(mode, devices, {shardsSums, parts});
        if (isBetter(other, best))
          best = other;
      }
    return best;
  }

  static bool isSharded(ScaleMode mode) { return mode != ScaleMode::None && mode != ScaleMode::Ddp; }
  static bool isBetter(const ScalePoint &one, const ScalePoint &other) {
    if (one.fits != other.fits)
      return one.fits;
    return one.fits ? one.stepSeconds < other.stepSeconds * (1 - 1e-9) : one.memoryBytes() < other.memoryBytes();
  }

  ScalePoint predict(ScaleMode mode, uint64_t devices, Decisions decisions) const {
    ScalePoint point;
    point.mode = mode;
    point.devices = devices;
    point.shardsAccumulators = isSharded(mode) && decisions.shardsSums && plan.training().accumulate() > 1;
    const double perNode = double(std::min(devices, cluster.ranksPerNode));
    const Group all{double(devices), std::ceil(double(devices) / double(cluster.ranksPerNode))};
    const bool gathers = mode == ScaleMode::Full || mode == ScaleMode::Hybrid;
    const Group sharing = mode == ScaleMode::Hybrid ? Group{perNode, 1} : all;
    const double shards = mode == ScaleMode::GradOp || gathers ? sharing.size : 1;
    const uint64_t movedBytes = setMemory(point, shards, gathers, decisions);

    const bool replicates = mode == ScaleMode::Hybrid;
    auto scatter = [&](double bytes) { return messages.half(bytes, sharing); };
    auto across = [&](double bytes) { return messages.allReduceAcross(bytes / perNode, perNode, all.nodes); };
    auto reduce = [&](double bytes) {
      if (mode == ScaleMode::Ddp)
        return messages.allReduce(bytes, all);
      return replicates ? scatter(bytes) + across(bytes) : scatter(bytes);
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
      auto inBuckets = [&](const std::vector<ScaleProgram::Gradient> &gradients, auto costOf) {
        double total = 0, bucket = 0;
        for (const ScaleProgram::Gradient &gradient : gradients)
          total += double(gradient.bytes);
        for (size_t i = 0; i < gradients.size(); ++i) {
          bucket += double(gradients[i].bytes);
          if (bucket < double(bucketBytes) && i + 1 < gradients.size())
            continue;
          begin(gradients[i].ready, costOf(bucket));
          lastShare = bucket / total;
          bucket = 0;
        }
      };
      if (point.shardsAccumulators) {
        inBuckets(program.windowGradients, scatter);
        if (replicates)
          inBuckets(program.gradients, across);
      } else if (mode != ScaleMode::None) {
        inBuckets(program.gradients, reduce);
      }
      const auto [clock, channel] = run(events, costs.size(), program.passSeconds);
      double update = program.updateSeconds, updateWaits = program.updateWaits;
      if (isSharded(mode) && !program.gradients.empty()) {
        // The plan's transfers are those of whole state. Those of shards run beside the update, in both directions.
        const double work = (program.updateSeconds - program.updateWaits) / shards;
        update = movedBytes ? std::max(work, double(movedBytes) / wishes.linkBytesPerSecond) : work;
        updateWaits = update - work;
      }
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
      point.transferWaitSeconds += runs * (program.passWaits + updateWaits);
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
        count += elementsOf(variable.type());
    return count;
  }

private:
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

  /// Bytes of a variable on one of `shards` devices that share the state, before alignment.
  uint64_t heldBytes(const plan::Variable &variable, uint64_t shards, bool gathers, bool shardsSums) const {
    const uint64_t elements = elementsOf(variable.type()), width = plan::dtypeBytes(variable.type().dtype());
    const plan::VariableRole role = variable.role();
    // Averages are where their parameters are.
    const bool sharded = role == plan::OPTIMIZER || (role == plan::ACCUMULATOR && shardsSums) ||
                         (gathers && (role == plan::PARAMETER || role == plan::EMA));
    if (!sharded || shards <= 1)
      return elements * width;
    // Moments in 8 bits stay in f32 where shards would cut their blocks.
    if (auto blocked = inBlocks.find(&variable);
        blocked != inBlocks.end() && plan::shardsCutBlocks(blocked->second, shards))
      return variable.type().dtype() == plan::F32 ? 0 : plan::shardElements(blocked->second, shards) * 4;
    return plan::shardElements(elements, shards) * width;
  }

  /// Returns the bytes of state on the host that sharding and the decisions leave to each device; none in other modes,
  /// which take the plan's.
  uint64_t setMemory(ScalePoint &point, double shards, bool gathers, Decisions decisions) const {
    const bool decides = isSharded(point.mode);
    point.stateBytes = plan::spaceBytes(plan, plan::RESIDENT);
    point.hostBytes = plan::hostBytes(plan);
    uint64_t movable = 0;
    auto held = [&](const plan::Variable &variable) {
      return heldBytes(variable, uint64_t(shards), gathers, point.shardsAccumulators);
    };
    auto isMovable = [&](const plan::Variable &variable) {
      return (variable.role() == plan::OPTIMIZER || variable.role() == plan::EMA) &&
             held(variable) >= planning::kLeastMovedBytes;
    };
    for (const plan::Variable &variable : plan.variables())
      if (isMovable(variable))
        movable += padded(held(variable));
    uint64_t moved = 0, largest = 0;
    for (const plan::Variable &variable : plan.variables()) {
      if (!decides)
        break;
      const uint64_t whole = padded(elementsOf(variable.type()) * plan::dtypeBytes(variable.type().dtype())),
                     own = padded(held(variable));
      (plan::isOnHost(variable.arena()) ? point.hostBytes : point.stateBytes) -= whole;
      const bool moves = decisions.movedParts && isMovable(variable) && moved * 8 < movable * decisions.movedParts;
      (moves ? point.hostBytes : point.stateBytes) += own;
      moved += moves ? own : 0;
      largest = std::max(largest, moves ? own : 0);
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
    // A micro-batch's gradients are there until their bucket is sent, beside the next one.
    const uint64_t buckets = point.shardsAccumulators ? 2 : 1;
    if (shards > 1)
      point.gatherBytes = uint64_t(gathers ? block : 0) + std::min<uint64_t>(buckets * bucketBytes, elements() * 4);
    // State on its way: what one update reads, and what the next will.
    if (plan::spaceBytes(plan, plan::HOST_RESIDENT) == 0)
      point.gatherBytes += kStatesInFlight * largest;
    const uint64_t available = cluster.memoryBytes - cluster.reservedBytes;
    point.fits = point.memoryBytes() <= (wishes.budgetBytes ? std::min(wishes.budgetBytes, available) : available) &&
                 (!wishes.hostBytes || point.hostBytes <= wishes.hostBytes);
    return moved;
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

  static constexpr uint64_t kStatesInFlight = 4;

  const plan::Plan &plan;
  const Cluster &cluster;
  const ScaleWishes &wishes;
  const Messages messages;
  /// Codes and magnitudes of moments in 8 bits, with the elements of their parameters.
  std::map<const plan::Variable *, uint64_t> inBlocks;
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

Expected<ScalePrediction> predictScale(const plan::Plan &plan, const plan::Plan *within, const Cluster &cluster,
                                       const ScaleWishes &wishes, uint64_t mostDevices) {
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
  const Predictor unlimited(plan, cluster, wishes, std::move(programs));
  std::optional<Predictor> limited;
  if (within)
    limited.emplace(*within, cluster, wishes, profileScale(*within, cluster));
  auto predict = [&](ScaleMode mode, uint64_t devices) {
    if (!limited)
      return unlimited.predict(mode, devices);
    const ScalePoint point = limited->predict(mode, devices);
    // Whole state may need recomputation or transfers to fit into the budget; shards of it may fit without them.
    const ScalePoint other = Predictor::isSharded(mode) ? unlimited.predict(mode, devices) : point;
    return Predictor::isBetter(other, point) ? other : point;
  };
  result.parameters = unlimited.elements();
  result.parameterBytes = result.parameters * 4;
  result.availableBytes = cluster.memoryBytes - cluster.reservedBytes;
  const ScalePoint alone = predict(ScaleMode::None, 1);
  result.computeSeconds = alone.stepSeconds;
  for (uint64_t devices = 1; devices <= mostDevices; devices *= 2)
    for (ScaleMode mode : kScaleModes) {
      const bool several = devices > 1;
      if ((mode == ScaleMode::None) == several ||
          (mode == ScaleMode::Hybrid &&
           (devices <= cluster.ranksPerNode || devices % cluster.ranksPerNode != 0 || cluster.ranksPerNode == 1)))
        continue;
      ScalePoint point = predict(mode, devices);
      point.efficiency = point.stepSeconds > 0 ? alone.stepSeconds / point.stepSeconds : 0;
      result.points.push_back(point);
    }
  return result;
}

} // namespace tcc::report
