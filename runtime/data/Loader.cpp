//===- Loader.cpp - threads that read batches ahead ------------------------===//
#include "runtime/data/Loader.h"
#include "runtime/state/HostMemory.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

static constexpr uint64_t kBatches = kLoaderBatches;
/// Samples that a worker claims at once.
static constexpr uint64_t kClaim = 4;

/// For each input, its bytes in the shape that needs most.
static std::vector<uint64_t> largestInputs(std::span<BatchReader *const> readers) {
  std::vector<uint64_t> largest;
  for (const BatchReader *reader : readers) {
    const std::vector<uint64_t> bytes = reader->inputBytes();
    largest.resize(bytes.size());
    std::ranges::transform(bytes, largest, largest.begin(), [](uint64_t a, uint64_t b) { return std::max(a, b); });
  }
  return largest;
}

Loader::Loader(std::vector<BatchReader *> all, const Sampler &sampler, uint64_t seed, uint64_t epoch, uint64_t number,
               unsigned workers, Trace *trace)
    : readers(std::move(all)), sampler(sampler), seed(seed), nextEpoch(epoch), nextNumber(number), openEpoch(epoch),
      openNumber(number), ring(kBatches) {
  for (const BatchReader *reader : readers)
    inputBytes.push_back(reader->inputBytes());
  for (Batch &batch : ring) {
    batch.given.reserve(inputBytes.front().size());
    for (uint64_t bytes : largestInputs(readers))
      batch.memory.emplace_back(bytes);
    for (const BatchReader *reader : readers)
      batch.indices.reserve(reader->batch());
  }
  bad = readers.front()->damagedSamples();
  anyBad = !bad.empty();
  try {
    for (unsigned i = 0; i < workers; ++i)
      threads.emplace_back(
          [this, track = trace ? &trace->track(fmt::format("loader {}", i + 1)) : nullptr] { work(track); });
  } catch (...) {
    stop(); // ends the threads that were started
    throw;
  }
}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  mayRead.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

uint64_t Loader::hostBytes(std::span<BatchReader *const> readers) {
  uint64_t batch = 0;
  for (uint64_t bytes : largestInputs(readers))
    batch += bytes;
  return kBatches * batch;
}

void Loader::moveOn(uint64_t &epoch, uint64_t &number) const {
  if (++number >= sampler.readsPerEpoch()) {
    number = 0;
    ++epoch;
  }
}

Loader::Batch *Loader::unclaimed() {
  for (uint64_t i = taken; i < opened; ++i)
    if (Batch &batch = ring[i % kBatches]; batch.claimed < batch.indices.size())
      return &batch;
  if (opened - taken == kBatches)
    return nullptr;
  Batch &batch = ring[opened % kBatches];
  sampler.batchOf(openEpoch, openNumber, batch.indices);
  batch.reader = readers[sampler.shapeOf(openEpoch, openNumber)];
  const std::vector<uint64_t> &bytes = inputBytes[sampler.shapeOf(openEpoch, openNumber)];
  batch.given.clear();
  for (size_t i = 0; i < bytes.size(); ++i)
    batch.given.push_back(std::span(batch.memory[i]).first(bytes[i]));
  batch.draw = {{seed, openEpoch, 0}, sampler.drawNumber(openEpoch, openNumber), sampler.repeats()};
  batch.findings.clear();
  batch.claimed = batch.done = 0;
  batch.ready = false;
  ++opened;
  moveOn(openEpoch, openNumber);
  return &batch;
}

void Loader::work(Trace::Track *track) {
  std::vector<BatchReader::Scratch> scratches; // by shape
  for (const BatchReader *reader : readers)
    scratches.push_back(reader->makeScratch());
  std::unique_lock lock(mutex);
  for (;;) {
    Batch *batch = nullptr;
    mayRead.wait(lock, [&] { return stopping || (batch = unclaimed()); });
    if (stopping)
      return;
    const uint64_t begin = batch->claimed, end = std::min<uint64_t>(begin + kClaim, batch->indices.size());
    batch->claimed = end;
    BatchReader::Scratch &scratch =
        scratches[static_cast<size_t>(std::ranges::find(readers, batch->reader) - readers.begin())];
    lock.unlock();
    {
      TraceScope span(track, "read samples", "batch", batch->draw.number);
      for (uint64_t slot = begin; slot < end; ++slot)
        readSlot(*batch, slot, scratch);
    }
    lock.lock();
    batch->done += end - begin;
    if (batch->done < batch->indices.size())
      continue;
    lock.unlock();
    {
      TraceScope span(track, "finish batch", "batch", batch->draw.number);
      batch->status = batch->reader->finish(batch->given, batch->indices.size(), batch->reader->maskable(),
                                            batch->draw, scratch);
    }
    lock.lock();
    batch->ready = true;
    mayTake.notify_one();
  }
}

bool Loader::noteBad(Batch &batch, uint64_t slot, uint64_t sample) {
  if (!anyBad)
    return false;
  std::lock_guard lock(mutex);
  auto found = bad.find(sample);
  if (found == bad.end())
    return false;
  // A later batch may have found it first, but it is counted with the first batch that would have read it.
  batch.findings.push_back({slot, sample, found->second});
  return true;
}

void Loader::readSlot(Batch &batch, uint64_t slot, BatchReader::Scratch &scratch) {
  const BatchReader &reader = *batch.reader;
  const uint64_t samples = reader.samples();
  uint64_t &sample = batch.indices[slot];
  // The next sample that is no longer than the shape; the next one of all if they all are, and are cut.
  auto nextOf = [&](uint64_t at) {
    uint64_t next = (at + 1) % samples;
    while (next != at && !reader.holds(next))
      next = (next + 1) % samples;
    return next == at ? (at + 1) % samples : next;
  };
  // If more samples are damaged than may be left out, take() ends the run.
  const uint64_t most = std::min(reader.mostDamaged() + 1, samples);
  for (uint64_t found = 0; found < most; ++found, sample = nextOf(sample)) {
    if (noteBad(batch, slot, sample))
      continue;
    Status status = reader.readSlot(sample, slot, batch.given, batch.draw.of(slot, reader.batch()), scratch);
    if (status.ok())
      return;
    std::lock_guard lock(mutex);
    bad.emplace(sample, status.message());
    anyBad = true;
    batch.findings.push_back({slot, sample, status.message()});
  }
}

Status Loader::take(std::vector<uint64_t> &indices, std::span<const std::span<std::byte>> given) {
  std::unique_lock lock(mutex);
  Batch &batch = ring[taken % kBatches];
  auto isReady = [&] { return taken < opened && batch.ready; };
  if (!isReady()) {
    const auto begin = std::chrono::steady_clock::now();
    mayTake.wait(lock, isReady);
    waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  lock.unlock();
  std::stable_sort(batch.findings.begin(), batch.findings.end(),
                   [](const Finding &a, const Finding &b) { return a.slot < b.slot; });
  for (const Finding &finding : batch.findings)
    if (Status status = batch.reader->noteDamaged(finding.sample, Status(finding.problem)); !status.ok())
      return status;
  if (!batch.status.ok())
    return batch.status;
  indices = batch.indices;
  batch.reader->rememberDraw(batch.draw);
  for (size_t i = 0; i < given.size(); ++i)
    if (!given[i].empty())
      std::memcpy(given[i].data(), batch.given[i].data(), given[i].size());
  lock.lock();
  ++taken;
  moveOn(nextEpoch, nextNumber);
  lock.unlock();
  mayRead.notify_all();
  return Status();
}
