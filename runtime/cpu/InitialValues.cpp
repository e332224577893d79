//===- InitialValues.cpp - initial values in the host's memory -----------===//
#include "runtime/cpu/InitialValues.h"

#include "runtime/InitialValues.h"

#include <vector>

namespace tcc::runtime {

Status loadInitialValues(const plan::PlanReader &reader, char *resident, ThreadPool &pool, uint32_t rank) {
  constexpr uint64_t kPieceBytes = uint64_t(1) << 20;
  Expected<InitialValues> values = InitialValues::open(reader, rank);
  if (!values)
    return values.status();
  const plan::Plan &plan = reader.plan();
  std::vector<Status> results(static_cast<size_t>(plan.variables_size()));
  pool.run(plan.variables_size(), [&](unsigned, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto *destination = reinterpret_cast<std::byte *>(resident + plan.variables(static_cast<int>(i)).offset());
      results[static_cast<size_t>(i)] =
          values->read(static_cast<int>(i), kPieceBytes,
                       [&](uint64_t offset, uint64_t) { return Expected<std::byte *>(destination + offset); });
    }
  });
  for (const Status &result : results)
    if (!result.ok())
      return result;
  return Status();
}

} // namespace tcc::runtime
