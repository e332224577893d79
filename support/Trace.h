//===- Trace.h - timelines of threads, for Perfetto -----------------------===//
//
// Each thread has a track and appends spans to it: no lock and no allocation between the start and the end. The file is
// the Trace Event Format that ui.perfetto.dev and chrome://tracing read
// (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_TRACE_H
#define TCC_SUPPORT_TRACE_H

#include "support/Status.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace tcc::nvtx {

// A profiler such as Nsight Systems names a library in NVTX_INJECTION64_PATH. The library is opened once and provides
// the functions to call; without it nothing is called. The tables and their numbers are those of NVTX 3
// (github.com/NVIDIA/NVTX, nvtxDetail/nvtxTypes.h), a header-only library.

/// True if a profiler records ranges.
bool isAttached();

/// Begins a range of this thread inside its open ranges: `name`, then label and number if there is a label. Requires an
/// attached profiler.
void push(const char *name, const char *label, uint64_t number);

/// Ends this thread's innermost range.
void pop();

} // namespace tcc::nvtx

namespace tcc {

class Trace {
public:
  /// `name` must outlive the trace; times are seconds since the trace began; `number` is shown as `label` (null: none).
  struct Span {
    const char *name;
    double begin, end;
    const char *label;
    uint64_t number;
  };

  /// The spans of one thread, or of threads that run one after the other. They must nest.
  class Track {
  public:
    void add(const Span &span) {
      if (spans.size() < spans.capacity())
        spans.push_back(span);
      else
        ++lost;
    }
    double now() const { return owner->now(); }

  private:
    friend class Trace;
    Track(const Trace &owner, std::string name, size_t capacity) : owner(&owner), name(std::move(name)) {
      spans.reserve(capacity);
    }
    const Trace *owner;
    std::string name;
    std::vector<Span> spans;
    uint64_t lost = 0;
  };

  /// Each track holds that many spans; later ones are counted and left out.
  explicit Trace(size_t capacity = 200'000) : capacity(capacity) {}

  /// A new track; it lives as long as the trace. Any thread may call this.
  Track &track(const std::string &name);

  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); }

  /// The trace as text; no thread may add spans meanwhile. `process` names the traced process.
  std::string text(const std::string &process) const;
  /// Spans that were left out because their track was full.
  uint64_t lost() const;

private:
  size_t capacity;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  mutable std::mutex mutex;
  std::deque<Track> tracks; ///< a deque, whose elements never move
};

/// A span that ends with the scope, on the track, if there is one, and for an attached profiler.
class TraceScope {
public:
  TraceScope(Trace::Track *track, const char *name, const char *label = nullptr, uint64_t number = 0)
      : track(track), span{name, track ? track->now() : 0, 0, label, number} {
    if (nvtx::isAttached())
      nvtx::push(name, label, number);
  }
  ~TraceScope() {
    if (nvtx::isAttached())
      nvtx::pop();
    if (!track)
      return;
    span.end = track->now();
    track->add(span);
  }
  TraceScope(const TraceScope &) = delete;
  TraceScope &operator=(const TraceScope &) = delete;

private:
  Trace::Track *track;
  Trace::Span span;
};

} // namespace tcc

#endif // TCC_SUPPORT_TRACE_H
