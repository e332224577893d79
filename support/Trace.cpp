//===- Trace.cpp - timelines of threads, for Perfetto ---------------------===//
#include "support/Trace.h"

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
