//===- Profile.cpp - time and processor time by phase ---------------------===//
#include "compiler/profile/Profile.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include "support/Json.h"
#include <sstream>
#include <unistd.h>

namespace tcc {

namespace {

double clockSeconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

/// When the process started, in seconds since boot: field 22 of /proc/self/stat. Coarse (a hundredth of a second), but
/// it includes loading shared libraries, a large part of a small compile.
double processStart() {
  double now = clockSeconds(CLOCK_BOOTTIME);
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  size_t name = text.rfind(')');
  if (name == text.npos)
    return now;
  std::istringstream fields(text.substr(name + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i)
    fields >> field;
  double started = std::strtod(field.c_str(), nullptr) / double(sysconf(_SC_CLK_TCK));
  return started > 0 && started <= now ? started : now;
}

/// The row of that name, added if it is new.
Profile::Row &rowOf(std::vector<Profile::Row> &rows, const std::string &name, double begin) {
  for (Profile::Row &row : rows)
    if (row.name == name)
      return row;
  Profile::Row &row = rows.emplace_back();
  row.name = name;
  row.begin = begin;
  return row;
}

void sortByBegin(std::vector<Profile::Row> &rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto &a, const auto &b) { return a.begin < b.begin; });
}

nlohmann::ordered_json toJson(const Profile::Row &row) {
  nlohmann::ordered_json out{{"name", row.name},
                             {"calls", row.calls},
                             {"begin", row.begin},
                             {"seconds", row.seconds()},
                             {"cpu_seconds", row.cpuSeconds}};
  for (const Profile::Row &part : row.parts)
    out["parts"].push_back(toJson(part));
  return out;
}

} // namespace

Profile::Span::Span(Span &&other) noexcept { *this = std::move(other); }

Profile::Span &Profile::Span::operator=(Span &&other) noexcept {
  finish();
  profile = std::exchange(other.profile, nullptr);
  phase = std::move(other.phase);
  part = std::move(other.part);
  begin = other.begin;
  cpuBegin = other.cpuBegin;
  return *this;
}

void Profile::Span::finish() {
  if (!profile)
    return;
  double cpu = part.empty() ? processCpuSeconds() : clockSeconds(CLOCK_THREAD_CPUTIME_ID);
  profile->add(*this, clockSeconds(CLOCK_BOOTTIME) - profile->start, cpu - cpuBegin);
  profile = nullptr;
}

Profile::Profile() : start(processStart()) {}

Profile::Span Profile::phase(const std::string &name) { return part(name, ""); }

Profile::Span Profile::part(const std::string &phase, const std::string &name) {
  Span span;
  span.profile = this;
  span.phase = phase;
  span.part = name;
  span.begin = seconds();
  span.cpuBegin = name.empty() ? processCpuSeconds() : clockSeconds(CLOCK_THREAD_CPUTIME_ID);
  return span;
}

void Profile::count(const std::string &what, uint64_t times) {
  std::lock_guard lock(mutex);
  counters[what] += times;
}

void Profile::add(const Span &span, double end, double cpu) {
  std::lock_guard lock(mutex);
  Row &phase = rowOf(phases, span.phase, span.begin);
  Row &row = span.part.empty() ? phase : rowOf(phase.parts, span.part, span.begin);
  ++row.calls;
  row.cpuSeconds += cpu;
  for (Row *each : {&phase, &row}) {
    each->begin = std::min(each->begin, span.begin);
    each->end = std::max(each->end, end);
  }
}

std::vector<Profile::Row> Profile::rows() const {
  std::lock_guard lock(mutex);
  std::vector<Row> rows = phases;
  sortByBegin(rows);
  for (Row &row : rows) {
    sortByBegin(row.parts);
    if (row.calls)
      continue;
    // A phase without a span of its own: sum its parts.
    for (const Row &part : row.parts)
      row.cpuSeconds += part.cpuSeconds;
  }
  return rows;
}

std::map<std::string, uint64_t> Profile::counts() const {
  std::lock_guard lock(mutex);
  return counters;
}

double Profile::processCpuSeconds() { return clockSeconds(CLOCK_PROCESS_CPUTIME_ID); }

double Profile::seconds() const { return clockSeconds(CLOCK_BOOTTIME) - start; }

std::string Profile::toTable() const {
  const double total = seconds(), cpu = processCpuSeconds();
  std::string text =
      fmt::format("{:<44} {:>7} {:>8} {:>8} {:>8} {:>8}\n", "", "calls", "begin s", "wall s", "CPU s", "threads");
  auto line = [&](const std::string &name, const std::string &calls, double begin, double wall, double cpuSeconds) {
    text += fmt::format("{:<44} {:>7} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.1f}\n", name, calls, begin, wall, cpuSeconds,
                        wall > 0 ? cpuSeconds / wall : 0.0);
  };
  for (const Row &phase : rows()) {
    line(phase.name, "", phase.begin, phase.seconds(), phase.cpuSeconds);
    for (const Row &part : phase.parts)
      line("  " + part.name, std::to_string(part.calls), part.begin, part.seconds(), part.cpuSeconds);
  }
  line("in all, with the start of the process", "", 0, total, cpu);
  for (const auto &[what, times] : counts())
    text += fmt::format("{:<44} {:>7}\n", what, times);
  return text;
}

std::string Profile::toJson() const {
  nlohmann::ordered_json out, phases = nlohmann::ordered_json::array(), counted = nlohmann::ordered_json::object();
  for (const Row &phase : rows()) {
    out[phase.name] = phase.seconds();
    phases.push_back(tcc::toJson(phase));
  }
  for (const auto &[what, times] : counts())
    counted[what] = times;
  out["profile"] = {
      {"seconds", seconds()}, {"cpu_seconds", processCpuSeconds()}, {"phases", phases}, {"counts", counted}};
  return jsonText(out, 1) + "\n";
}

} // namespace tcc
