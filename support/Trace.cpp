//===- Trace.cpp - timelines of threads, for Perfetto ---------------------===//
#include "support/Trace.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

using namespace tcc;

namespace {
/// A JSON text: names of threads and files.
std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (unsigned char c : text)
    if (c == '"' || c == '\\')
      result += {'\\', static_cast<char>(c)};
    else if (c < ' ' || c == 0x7f)
      result += fmt::format("\\u{:04x}", c);
    else
      result += static_cast<char>(c);
  return result + "\"";
}
} // namespace

Trace::Track &Trace::track(const std::string &name) {
  std::lock_guard lock(mutex);
  return tracks.emplace_back(Track(*this, name, capacity));
}

uint64_t Trace::lost() const {
  std::lock_guard lock(mutex);
  uint64_t sum = 0;
  for (const Track &one : tracks)
    sum += one.lost;
  return sum;
}

std::string Trace::text(const std::string &process) const {
  std::lock_guard lock(mutex);
  std::string text = fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                                 R"({{"ph":"M","name":"process_name","pid":1,"args":{{"name":{}}}}})",
                                 quoted(process));
  for (size_t i = 0; i < tracks.size(); ++i) {
    const size_t thread = i + 1;
    text += fmt::format(",\n"
                        R"({{"ph":"M","name":"thread_name","pid":1,"tid":{0},"args":{{"name":{1}}}}},)"
                        "\n"
                        R"({{"ph":"M","name":"thread_sort_index","pid":1,"tid":{0},"args":{{"sort_index":{0}}}}})",
                        thread, quoted(tracks[i].name));
    for (const Span &span : tracks[i].spans) {
      text += fmt::format(",\n"
                          R"({{"ph":"X","name":{},"pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f})",
                          quoted(span.name), thread, span.begin * 1e6, (span.end - span.begin) * 1e6);
      if (span.label)
        text += fmt::format(R"(,"args":{{"{}":{}}})", span.label, span.number);
      text += "}";
    }
  }
  return text + "\n]}\n";
}

namespace tcc::nvtx {

namespace {
using Function = void (*)();

/// Functions of one module of the interface by their numbers, from 1; a profiler writes its own through the pointers.
template <size_t count> struct Table {
  std::array<Function, count> functions{};
  std::array<Function *, count + 1> places{}; ///< the first and the last are null
  Table() {
    for (size_t i = 1; i < count; ++i)
      places[i] = &functions[i];
  }
};

constexpr int kCore = 1;                    // NVTX_CB_MODULE_CORE
constexpr size_t kRangePush = 9, kPop = 11; // NVTX_CBID_CORE_RangePushA, …RangePop

/// All modules that a profiler may ask for, used here or not: it may treat a missing module as a fault.
struct Tables {
  Table<16> core, domains;
  Table<9> cuda;
  Table<15> openCl;
  Table<7> cudaRuntime, synchronization;
} tables;

int functionTable(int module, Function ***places, unsigned *size) {
  auto give = [&](auto &table) {
    if (places)
      *places = table.places.data();
    if (size)
      *size = static_cast<unsigned>(table.functions.size());
    return 1;
  };
  switch (module) {
  case kCore:
    return give(tables.core);
  case 2:
    return give(tables.cuda);
  case 3:
    return give(tables.openCl);
  case 4:
    return give(tables.cudaRuntime);
  case 5:
    return give(tables.domains);
  case 6:
    return give(tables.synchronization);
  default:
    return 0;
  }
}

struct Callbacks {
  size_t bytes;
  int (*functionTable)(int module, Function ***places, unsigned *size);
};
struct VersionInfo {
  size_t bytes;
  uint32_t version, reserved;
  void (*setInjectionVersion)(uint32_t version);
};

const void *exportTable(uint32_t id) {
  static const Callbacks callbacks{sizeof(Callbacks), functionTable};
  static const VersionInfo version{sizeof(VersionInfo), 3, 0, [](uint32_t) {}};
  return id == 1 ? static_cast<const void *>(&callbacks) : id == 3 ? &version : nullptr;
}

/// The profiler's functions for ranges; both or neither.
struct Ranges {
  int (*push)(const char *) = nullptr;
  int (*pop)() = nullptr;
};

Ranges attach() {
  const char *path = std::getenv("NVTX_INJECTION64_PATH");
  void *library = path && *path ? ::dlopen(path, RTLD_LAZY) : nullptr;
  using Start = int (*)(const void *(*)(uint32_t));
  auto start = library ? reinterpret_cast<Start>(::dlsym(library, "InitializeInjectionNvtx2")) : nullptr;
  if (!start || start(exportTable) == 0)
    return {};
  Ranges ranges{reinterpret_cast<int (*)(const char *)>(tables.core.functions[kRangePush]),
                reinterpret_cast<int (*)()>(tables.core.functions[kPop])};
  return ranges.push && ranges.pop ? ranges : Ranges();
}

const Ranges &ranges() {
  static const Ranges attached = attach();
  return attached;
}
} // namespace

bool isAttached() { return ranges().push; }

void push(const char *name, const char *label, uint64_t number) {
  if (label)
    ranges().push(fmt::format("{}: {} {}", name, label, number).c_str());
  else
    ranges().push(name);
}

void pop() { ranges().pop(); }

} // namespace tcc::nvtx
