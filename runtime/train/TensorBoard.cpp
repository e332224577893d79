//===- TensorBoard.cpp - scalars for TensorBoard -------------------------===//
#include "runtime/train/TensorBoard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::array<uint32_t, 256> makeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = makeTable();

uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

/// A protobuf message in a fixed buffer.
class ProtoMessage {
public:
  void varint(uint64_t value) {
    while (value >= 0x80) {
      put(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    put(static_cast<char>(value));
  }
  void tag(uint32_t field, uint32_t wire) { varint(field << 3 | wire); }
  template <typename T> void fixed(T value) { bytes(reinterpret_cast<const char *>(&value), sizeof(T)); }
  void text(uint32_t field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes(value.data(), value.size());
  }
  void bytes(const char *data, size_t count) {
    count = std::min(count, sizeof(buffer) - length);
    std::memcpy(buffer + length, data, count);
    length += count;
  }
  std::string_view view() const { return {buffer, length}; }

private:
  void put(char byte) { bytes(&byte, 1); }
  char buffer[384];
  size_t length = 0;
};

double wallSeconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
} // namespace

uint32_t tcc::runtime::crc32c(const void *data, size_t length) {
  const auto *bytes = static_cast<const unsigned char *>(data);
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < length; ++i)
    crc = crc >> 8 ^ kTable[(crc ^ bytes[i]) & 0xff];
  return ~crc;
}

Expected<TensorBoardFile> TensorBoardFile::create(const std::string &folder) {
  auto second = static_cast<uint64_t>(wallSeconds());
  std::string path;
  do
    path = fmt::format("{}/events.out.tfevents.{}.tcc", folder, second++);
  while (std::filesystem::exists(path));
  auto records = RecordFile::open(path, /*append=*/false);
  if (!records)
    return records.status();
  TensorBoardFile result(records.take());
  ProtoMessage event;
  event.tag(1, 1); // Event.wall_time
  event.fixed(wallSeconds());
  event.text(3, "brain.Event:2"); // Event.file_version
  result.record(event.view());
  return result;
}

void TensorBoardFile::record(std::string_view bytes) {
  uint64_t size = bytes.size();
  ProtoMessage whole;
  whole.fixed(size);
  whole.fixed(masked(crc32c(&size, 8)));
  whole.bytes(bytes.data(), bytes.size());
  whole.fixed(masked(crc32c(bytes.data(), bytes.size())));
  records.add(whole.view());
}

void TensorBoardFile::scalar(std::string_view tag, uint64_t step, double value) {
  ProtoMessage point, summary, event;
  point.text(1, tag); // Summary.Value.tag
  point.tag(2, 5);    // Summary.Value.simple_value
  point.fixed(static_cast<float>(value));
  summary.text(1, point.view()); // Summary.value
  event.tag(1, 1);
  event.fixed(wallSeconds());
  event.tag(2, 0); // Event.step
  event.varint(step);
  event.text(5, summary.view()); // Event.summary
  record(event.view());
}
