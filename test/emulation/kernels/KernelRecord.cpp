//===- KernelRecord.cpp - launches of kernels, to repeat on a card -------===//
#include "test/emulation/kernels/KernelRecord.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tcc::test {

namespace {
/// The text of one entry of PTX.
std::string_view bodyOf(std::string_view ptx, const std::string &symbol) {
  const size_t begin = ptx.find(".entry " + symbol + "(");
  if (begin == std::string_view::npos)
    return ptx;
  const size_t end = ptx.find(".entry ", begin + 1);
  return ptx.substr(begin, end == std::string_view::npos ? end : end - begin);
}

/// Whether PTX leaves the last bits of a result open: the order of sums in mma, and the last bits of ex2.
bool isOpen(std::string_view body) {
  return body.find("mma.sync") != std::string_view::npos || body.find(".approx") != std::string_view::npos;
}
} // namespace

KernelRecord *KernelRecord::wanted() {
  static const std::unique_ptr<KernelRecord> record = [] {
    const char *folder = std::getenv("TCC_KERNEL_RECORD");
    return std::unique_ptr<KernelRecord>(folder && *folder ? new KernelRecord(folder) : nullptr);
  }();
  return record.get();
}

std::string KernelRecord::architecture() {
  const char *name = std::getenv("TCC_KERNEL_ARCHITECTURE");
  return name && *name ? name : "sm_90";
}

KernelRecord::KernelRecord(const std::string &folder) {
  std::filesystem::create_directories(folder);
  launches.open(folder + "/launches.jsonl");
  data.open(folder + "/data.bin", std::ios::binary);
}

uint64_t KernelRecord::place(std::string_view bytes) {
  auto [found, added] = places.emplace(bytes, end);
  if (added) {
    data.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    end += bytes.size();
  }
  return found->second;
}

void KernelRecord::add(const std::string &what, const std::string &ptx, const std::string &symbol, uint64_t blocks,
                       uint64_t threads, uint64_t tiles, uint64_t scratchBytes,
                       const std::vector<RecordedOperand> &operands) {
  nlohmann::ordered_json line;
  line["case"] = what;
  line["code"] = {place(ptx), ptx.size()};
  line["kernel"] = symbol;
  line["blocks"] = blocks;
  line["threads"] = threads;
  line["tiles"] = tiles;
  line["scratch"] = scratchBytes;
  line["open"] = isOpen(bodyOf(ptx, symbol));
  line["operands"] = nlohmann::ordered_json::array();
  for (const RecordedOperand &one : operands) {
    line["operands"].push_back({{"type", one.type},
                                {"at", place({reinterpret_cast<const char *>(one.bytes.data()), one.bytes.size()})},
                                {"bytes", one.bytes.size()},
                                {"result", one.result}});
    if (one.shares)
      line["operands"].back()["shares"] = *one.shares;
    if (one.restOf)
      line["operands"].back()["rest_of"] = *one.restOf;
  }
  launches << line.dump() << "\n" << std::flush;
  data.flush();
}

} // namespace tcc::test
