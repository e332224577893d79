//===- ScaleProfile.cpp - times and bytes of a plan's programs ------------===//
#include "tools/tcc/ScaleProfile.h"

#include "compiler/emit/Lives.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/UpdateCalls.h"
#include "support/PlanNames.h"
#include "tools/tcc/Report.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tcc::report {

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
    for (int32_t i = 0; i < entry.instructions_size(); ++i) {
      begins.push_back(result.passSeconds);
      const double seconds = secondsOf(entry.instructions(i), cluster);
      (lives.phases[size_t(i)] == emit::Phase::Update ? result.updateSeconds : result.passSeconds) += seconds;
    }
    begins.push_back(result.passSeconds);
    for (int id = 0; id < entry.buffers_size(); ++id) {
      const int32_t variable = entry.buffers(id).variable();
      if (variable >= 0 && plan.variables(variable).role() == plan::PARAMETER)
        addParameter(id, plan.variables(variable));
    }
    auto byTime = [](const auto &a, const auto &b) { return a.ready < b.ready; };
    std::stable_sort(result.gradients.begin(), result.gradients.end(), byTime);
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

  bool isUpdate(int32_t i) const { return lives.phases[size_t(i)] == emit::Phase::Update; }

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
      const plan::VariableRole role = buffer.variable() < 0 ? plan::CONSTANT : plan.variables(buffer.variable()).role();
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

std::vector<ScaleProgram> profileScale(const plan::Plan &plan, const Cluster &cluster) {
  const Report report = analyzePlan(plan, 0);
  std::vector<ScaleProgram> programs;
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs)
      if (entries::isOfUpdate(program.name))
        programs.push_back(Profiler(plan, cluster, program).run());
  return programs;
}

} // namespace tcc::report
