//===- InitialValues.cpp - what the variables hold before training -------===//
//
// Variables are independent, so the pool's workers share them. External weights are hashed piece by piece while they
// are read into the arena: each byte passes through the cache once.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/InitialValues.h"

#include "runtime/plan/DType.h"
#include "runtime/state/RegularFile.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace tcc::runtime {

namespace {
/// Files of external weights, opened once each.
class Files {
public:
  ~Files() {
    for (auto &[path, file] : open)
      ::close(file);
  }
  plan::Expected<int> get(const std::string &path) {
    if (auto it = open.find(path); it != open.end())
      return it->second;
    auto file = RegularFile::open(path);
    if (!file)
      return plan::error("external weights: {}; the plan refers to the model's own file, keep it there or compile with "
                         "--embed-weights",
                         file.message());
    return open[path] = file->release();
  }

private:
  std::map<std::string, int> open;
};

std::string resolve(const plan::PlanReader &reader, const std::string &path) {
  return !path.empty() && path[0] == '/' ? path : reader.folder() + "/" + path;
}

plan::Status readHashed(int file, const std::string &path, const plan::ExternalBytes &source, char *destination) {
  constexpr uint64_t piece = uint64_t(1) << 20;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (uint64_t done = 0; done < source.bytes();) {
    uint64_t want = std::min(piece, source.bytes() - done);
    ssize_t got = ::pread(file, destination + done, want, static_cast<off_t>(source.offset() + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return plan::error("cannot read {} bytes at offset {} of '{}': {}", source.bytes(), source.offset(), path,
                         got == 0 ? "the file ends before" : std::strerror(errno));
    XXH3_64bits_update(&state, destination + done, static_cast<size_t>(got));
    done += static_cast<uint64_t>(got);
  }
  if (XXH3_64bits_digest(&state) != source.xxh3())
    return plan::error(
        "'{}' has other content than when the plan was compiled ({} bytes at offset {}); compile again, or "
        "bring the file back",
        path, source.bytes(), source.offset());
  return plan::Status::success();
}

/// Copies weights out of the mapped plan, giving its pages back on the way: they would lie in memory twice at the end.
void copyReleasing(const plan::PlanReader &reader, std::span<const std::byte> source, char *destination) {
  constexpr size_t piece = size_t(1) << 20, small = size_t(1) << 16;
  for (size_t done = 0; done < source.size();) {
    size_t count = std::min(piece, source.size() - done);
    std::memcpy(destination + done, source.data() + done, count);
    done += count;
    if (count >= small)
      reader.releasePages();
  }
}
} // namespace

plan::Status loadInitialValues(const plan::PlanReader &reader, char *resident, ThreadPool &pool) {
  const plan::Plan &plan = reader.plan();
  int count = plan.variables_size();
  Files files;
  std::vector<int> descriptors(static_cast<size_t>(count), -1);
  for (int i = 0; i < count; ++i) {
    const plan::Variable &variable = plan.variables(i);
    if (!variable.has_external())
      continue;
    std::string path = resolve(reader, variable.external().path());
    plan::Expected<int> file = files.get(path);
    if (!file)
      return file.status().withContext("variable '" + variable.name() + "'");
    struct stat information {};
    const plan::ExternalBytes &source = variable.external();
    uint64_t length = ::fstat(*file, &information) == 0 ? static_cast<uint64_t>(information.st_size) : 0;
    if (source.offset() > length || source.bytes() > length - source.offset())
      return plan::error(
          "variable '{}': {} bytes at offset {} do not lie inside '{}' of {} bytes; the file is cut short or "
          "not the one the plan was compiled with",
          variable.name(), source.bytes(), source.offset(), path, length);
    descriptors[static_cast<size_t>(i)] = *file;
  }
  std::vector<plan::Status> results(static_cast<size_t>(count));
  pool.run(count, [&](unsigned, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const plan::Variable &variable = plan.variables(static_cast<int>(i));
      char *destination = resident + variable.offset();
      if (variable.has_payload()) {
        auto bytes = reader.payload(variable.payload());
        copyReleasing(reader, bytes, destination);
      } else if (variable.has_external()) {
        results[i] =
            readHashed(descriptors[i], resolve(reader, variable.external().path()), variable.external(), destination);
      } else if (variable.fill() != 0) { // the arena starts as zeros
        plan::fillElements(destination, variable.type().dtype(), plan::elementCount(variable.type()).value_or(0),
                           variable.fill());
      }
    }
  });
  for (int i = 0; i < count; ++i)
    if (!results[static_cast<size_t>(i)].ok())
      return results[static_cast<size_t>(i)].withContext("variable '" + plan.variables(i).name() + "'");
  return plan::Status::success();
}

} // namespace tcc::runtime
