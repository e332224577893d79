//===- EntryStreams.cpp - entry points: streams, events, capture, graphs -===//
//
// CUDA Driver API, "Stream Management", "Event Management", "Graph Management"; CUDA C++ Programming Guide, "Creating a
// Graph Using Stream Capture": its parts on events across streams, prohibited operations and invalidation.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/Entry.h"

#include <algorithm>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

TCC_ENTRY cuStreamCreate(CUstream *stream, unsigned flags) {
  TCC_BEGIN;
  if (flags & ~1u)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, fmt::format("cuStreamCreate: flags {}", flags));
  auto made = std::make_unique<Stream>();
  made->blocking = !(flags & CU_STREAM_NON_BLOCKING);
  *stream = reinterpret_cast<CUstream>(d.streams.add(std::move(made)));
  return CUDA_SUCCESS;
}

// Destroying a stream does not cancel its queued work.
TCC_ENTRY cuStreamDestroy_v2(CUstream stream) {
  TCC_BEGIN;
  Stream *gone = d.lookup(d.streams, stream, "cuStreamDestroy", "stream");
  if (!gone)
    return CUDA_ERROR_INVALID_HANDLE;
  if (gone->capture)
    return d.invalidate(*gone->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        "cuStreamDestroy of a stream that captures");
  d.streams.remove(stream);
  return CUDA_SUCCESS;
}

TCC_ENTRY cuStreamSynchronize(CUstream stream) {
  TCC_BEGIN;
  Stream *one = d.stream(stream);
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  if (one->capture)
    return d.invalidate(*one->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        "cuStreamSynchronize of a stream that captures");
  if (one == &d.legacy)
    for (auto &[handle, other] : d.streams.all())
      if (other->capture && other->blocking)
        return d.invalidate(*other->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                            "cuStreamSynchronize of the legacy stream while a stream captures");
  return d.fail(d.queue.finish(one == &d.legacy ? d.predecessors(d.legacy) : one->tail));
}

TCC_ENTRY cuStreamQuery(CUstream stream) {
  TCC_BEGIN;
  Stream *one = d.stream(stream);
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  if (one->capture)
    return d.invalidate(*one->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        "cuStreamQuery of a stream that captures");
  for (WorkId id : one->tail)
    if (!d.queue.isDone(id))
      return CUDA_ERROR_NOT_READY;
  return d.fail(d.queue.finish(one->tail)); // nothing is left to run; records that the host knows this
}

TCC_ENTRY cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  TCC_BEGIN;
  if (!function)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, "cuLaunchHostFunc: no function");
  Task task;
  task.what = "cuLaunchHostFunc";
  task.readsHost = true;
  task.run = [=](uint32_t) -> std::optional<Fault> {
    function(data);
    return std::nullopt;
  };
  return d.enqueue(stream, std::move(task), "cuLaunchHostFunc");
}

TCC_ENTRY cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  TCC_BEGIN;
  Stream *one = d.stream(stream);
  Event *until = d.lookup(d.events, event, "cuStreamWaitEvent", "event");
  if (!one || !until)
    return CUDA_ERROR_INVALID_HANDLE;
  if (flags)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, fmt::format("cuStreamWaitEvent: flags {}", flags));
  if (!until->recorded)
    return d.misuse(FaultKind::Misuse, CUDA_SUCCESS,
                    "cuStreamWaitEvent: the event was never recorded, so nothing waits");
  if (until->capture && until->capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (until->capture &&
      std::none_of(d.captures.begin(), d.captures.end(), [&](auto &c) { return c.get() == until->capture; }))
    return d.misuse(FaultKind::Capture, CUDA_ERROR_CAPTURED_EVENT,
                    "cuStreamWaitEvent: the event was recorded in a capture that has ended");
  if (one->capture && !until->capture)
    return d.invalidate(*one->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                        "cuStreamWaitEvent in a capture for an event of work outside of it");
  if (one->capture && until->capture && one->capture != until->capture) {
    until->capture->invalid = true;
    return d.invalidate(*one->capture, kCaptureMerge, "cuStreamWaitEvent joins two captures");
  }
  if (until->capture) {
    if (one == &d.legacy)
      return d.invalidate(*until->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                          "cuStreamWaitEvent draws the legacy stream into a capture");
    if (!one->capture) {
      one->capture = until->capture;
      one->capture->streams.insert(one);
      one->captureTail.clear();
    }
    for (size_t node : until->captureAt)
      if (std::find(one->captureTail.begin(), one->captureTail.end(), node) == one->captureTail.end())
        one->captureTail.push_back(node);
    return CUDA_SUCCESS;
  }
  if (one == &d.legacy || one->blocking) // keep the stream's order with the legacy stream
    one->tail = d.predecessors(*one);
  one->tail.insert(one->tail.end(), until->at.begin(), until->at.end());
  std::sort(one->tail.begin(), one->tail.end());
  one->tail.erase(std::unique(one->tail.begin(), one->tail.end()), one->tail.end());
  return CUDA_SUCCESS;
}

TCC_ENTRY cuEventCreate(CUevent *event, unsigned flags) {
  TCC_BEGIN;
  if (flags & ~3u) // 1: blocking synchronisation, which has no effect here
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, fmt::format("cuEventCreate: flags {}", flags));
  auto made = std::make_unique<Event>();
  made->timing = !(flags & CU_EVENT_DISABLE_TIMING);
  *event = reinterpret_cast<CUevent>(d.events.add(std::move(made)));
  return CUDA_SUCCESS;
}

TCC_ENTRY cuEventDestroy_v2(CUevent event) {
  TCC_BEGIN;
  if (!d.lookup(d.events, event, "cuEventDestroy", "event"))
    return CUDA_ERROR_INVALID_HANDLE;
  d.events.remove(event);
  return CUDA_SUCCESS;
}

TCC_ENTRY cuEventRecord(CUevent event, CUstream stream) {
  TCC_BEGIN;
  Stream *one = d.stream(stream);
  Event *made = d.lookup(d.events, event, "cuEventRecord", "event");
  if (!one || !made)
    return CUDA_ERROR_INVALID_HANDLE;
  if (one->capture && one->capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  made->recorded = true;
  made->capture = one->capture;
  made->captureAt = one->captureTail;
  made->at = one->capture ? std::vector<WorkId>() : d.predecessors(*one);
  return CUDA_SUCCESS;
}

namespace {
/// An event that was recorded in a capture has no state to ask for.
CUresult refuseCaptured(StandIn &d, Event &event, const char *call) {
  if (!event.capture)
    return d.forbiddenInCapture(call);
  event.capture->invalid = true;
  return d.misuse(FaultKind::Capture, CUDA_ERROR_CAPTURED_EVENT,
                  fmt::format("{}: the event was recorded in a capture", call));
}
} // namespace

TCC_ENTRY cuEventSynchronize(CUevent event) {
  TCC_BEGIN;
  Event *one = d.lookup(d.events, event, "cuEventSynchronize", "event");
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult refused = refuseCaptured(d, *one, "cuEventSynchronize"))
    return refused;
  return d.fail(d.queue.finish(one->at));
}

TCC_ENTRY cuEventQuery(CUevent event) {
  TCC_BEGIN;
  Event *one = d.lookup(d.events, event, "cuEventQuery", "event");
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult refused = refuseCaptured(d, *one, "cuEventQuery"))
    return refused;
  for (WorkId id : one->at)
    if (!d.queue.isDone(id))
      return CUDA_ERROR_NOT_READY;
  return d.fail(d.queue.finish(one->at));
}

TCC_ENTRY cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  TCC_BEGIN;
  Event *from = d.lookup(d.events, start, "cuEventElapsedTime", "event"),
        *to = d.lookup(d.events, end, "cuEventElapsedTime", "event");
  if (!from || !to || !from->recorded || !to->recorded || !from->timing || !to->timing || from->capture || to->capture)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_HANDLE,
                    "cuEventElapsedTime: both events must be recorded outside of a capture, and made with timing");
  uint64_t times[2] = {0, 0};
  for (int i = 0; i < 2; ++i)
    for (WorkId id : (i ? to : from)->at) {
      if (!d.queue.isDone(id))
        return CUDA_ERROR_NOT_READY;
      times[i] = std::max(times[i], d.queue.ranAt(id));
    }
  *milliseconds = times[1] > times[0] ? 0.001f * static_cast<float>(times[1] - times[0]) : 0.0f;
  return CUDA_SUCCESS;
}

TCC_ENTRY cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  TCC_BEGIN;
  Stream *one = d.stream(stream);
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  if (one == &d.legacy)
    return d.misuse(FaultKind::Capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "cuStreamBeginCapture of the legacy stream");
  if (one->capture)
    return d.misuse(FaultKind::Capture, kIllegalState, "cuStreamBeginCapture: the stream captures already");
  auto made = std::make_unique<Capture>();
  made->origin = one;
  made->streams.insert(one);
  made->mode = mode;
  made->thread = std::this_thread::get_id();
  one->capture = made.get();
  one->captureTail.clear();
  d.captures.push_back(std::move(made));
  return CUDA_SUCCESS;
}

TCC_ENTRY cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  TCC_BEGIN;
  Stream *one = d.stream(stream);
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  *graph = nullptr;
  Capture *capture = one->capture;
  if (!capture)
    return d.misuse(FaultKind::Capture, kIllegalState, "cuStreamEndCapture: the stream does not capture");
  if (capture->origin != one)
    return d.invalidate(*capture, kCaptureUnmatched,
                        "cuStreamEndCapture of a stream that another one drew into its capture");
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return d.invalidate(*capture, kCaptureWrongThread, "cuStreamEndCapture by another thread than began it");
  // Every forked stream must have been joined: the last nodes of the origin stream must be after all nodes.
  std::vector<bool> reached(capture->graph.nodes.size());
  std::vector<size_t> open = one->captureTail;
  while (!open.empty()) {
    size_t node = open.back();
    open.pop_back();
    if (reached[node])
      continue;
    reached[node] = true;
    open.insert(open.end(), capture->graph.nodes[node].after.begin(), capture->graph.nodes[node].after.end());
  }
  auto missing = std::find(reached.begin(), reached.end(), false);
  for (Stream *member : capture->streams) {
    member->capture = nullptr;
    member->captureTail.clear();
  }
  auto place = std::find_if(d.captures.begin(), d.captures.end(), [&](auto &c) { return c.get() == capture; });
  d.ended.push_back(std::move(*place)); // kept, since events still point to it
  d.captures.erase(place);
  auto made = std::make_unique<Graph>(std::move(capture->graph)); // destroying the graph must free its nodes
  capture->graph.nodes.clear();
  if (capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (missing != reached.end())
    return d.misuse(FaultKind::Capture, CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                    fmt::format("cuStreamEndCapture: {} runs in a stream that was not joined",
                                made->nodes[static_cast<size_t>(missing - reached.begin())].task.what));
  *graph = reinterpret_cast<CUgraph>(d.graphs.add(std::move(made)));
  return CUDA_SUCCESS;
}

// An executable graph is a copy: the graph may be destroyed.
TCC_ENTRY cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
  TCC_BEGIN;
  Graph *from = d.lookup(d.graphs, graph, "cuGraphInstantiateWithFlags", "graph");
  if (!from)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("cuGraphInstantiateWithFlags: flags {}", flags));
  auto made = std::make_unique<GraphExec>();
  made->graph = *from;
  *executable = reinterpret_cast<CUgraphExec>(d.executables.add(std::move(made)));
  return CUDA_SUCCESS;
}

TCC_ENTRY cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  TCC_BEGIN;
  GraphExec *one = d.lookup(d.executables, executable, "cuGraphLaunch", "executable graph");
  Stream *in = d.stream(stream);
  if (!one)
    return CUDA_ERROR_INVALID_VALUE;
  if (!in)
    return CUDA_ERROR_INVALID_HANDLE;
  if (in->capture)
    return d.invalidate(*in->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        "cuGraphLaunch in a stream that captures: child graphs are not emulated");
  for (auto &node : one->graph.nodes)
    if (node.task.owner && !d.modules.find(node.task.owner))
      return d.misuse(FaultKind::UseAfterFree, CUDA_ERROR_INVALID_VALUE,
                      fmt::format("cuGraphLaunch: the module of {} is unloaded", node.task.what));
  if (!d.options.queuedFile.empty())
    d.recordQueued(one);
  // A launch begins when the previous launch of the same graph is done.
  std::vector<WorkId> begin = d.predecessors(*in);
  begin.insert(begin.end(), one->last.begin(), one->last.end());
  std::vector<WorkId> made;
  std::vector<bool> isLast(one->graph.nodes.size(), true);
  for (auto &node : one->graph.nodes) {
    std::vector<WorkId> after = node.after.empty() ? begin : std::vector<WorkId>();
    for (size_t other : node.after) {
      after.push_back(made[other]);
      isLast[other] = false;
    }
    made.push_back(d.queue.add(node.task, std::move(after)));
  }
  if (made.empty())
    return CUDA_SUCCESS;
  one->last.clear();
  for (size_t i = 0; i < made.size(); ++i)
    if (isLast[i])
      one->last.push_back(made[i]);
  in->tail = one->last;
  return CUDA_SUCCESS;
}

TCC_ENTRY cuGraphExecDestroy(CUgraphExec executable) {
  TCC_BEGIN;
  GraphExec *one = d.lookup(d.executables, executable, "cuGraphExecDestroy", "executable graph");
  if (!one)
    return CUDA_ERROR_INVALID_VALUE;
  one->graph.nodes.clear(); // removed handles are kept, so that their contents are freed here
  d.executables.remove(executable);
  return CUDA_SUCCESS;
}

TCC_ENTRY cuGraphDestroy(CUgraph graph) {
  TCC_BEGIN;
  Graph *one = d.lookup(d.graphs, graph, "cuGraphDestroy", "graph");
  if (!one)
    return CUDA_ERROR_INVALID_VALUE;
  one->nodes.clear();
  d.graphs.remove(graph);
  return CUDA_SUCCESS;
}
