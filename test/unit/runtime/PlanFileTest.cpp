//===- PlanFileTest.cpp - plan files that are whole, cut or damaged ------===//
#include "TestPlan.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::plan;

namespace {
/// A temporary folder, removed at the end.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "plan-file-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// Two payloads, 5 and 130 bytes: padding on both sides of the first.
std::string smallPlan(Plan *out = nullptr) {
  PlanWriter writer;
  EXPECT_EQ(writer.addPayload("hello"), 0u);
  EXPECT_EQ(writer.addPayload(std::string(130, 'x')), 1u);
  Plan plan;
  plan.set_producer("test");
  plan.set_recipe("seed = 1");
  (*plan.mutable_data()->mutable_settings())["tokens"] = "bytes";
  auto bytes = writer.toBuffer(plan);
  EXPECT_TRUE(bytes.ok()) << bytes.message();
  if (out)
    *out = plan;
  return bytes.take();
}

std::string messageOf(std::string bytes) {
  auto reader = PlanReader::fromBuffer(std::move(bytes), "folder/p.tplan");
  return reader ? "" : reader.message();
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}
} // namespace

TEST(PlanFile, IsReadWhereItIs) {
  std::string bytes = smallPlan();
  auto reader = PlanReader::over(bytes, "p.tplan");
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(text(reader->payload(0)), "hello");
  const auto *payload = reinterpret_cast<const char *>(reader->payload(1).data());
  EXPECT_TRUE(payload > bytes.data() && payload < bytes.data() + bytes.size()) << "a copy";
  bytes.back() = 'y';
  EXPECT_NE(PlanReader::over(bytes, "p.tplan").message().find("payload 1: the checksum"), std::string::npos);
}

TEST(PlanFile, RoundTripThroughAFile) {
  Folder folder;
  std::string path = folder.path / "m.tplan";
  PlanWriter writer;
  std::string large(100000, 'w');
  uint32_t a = writer.addPayload("hello"), b = writer.addPayloadView(large.data(), large.size());
  Plan plan;
  plan.set_model("m.onnx");
  ASSERT_TRUE(writer.write(plan, path).ok());
  auto reader = PlanReader::open(path);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(reader->plan().model(), "m.onnx");
  EXPECT_EQ(reader->plan().format_version(), kPlanFormatVersion);
  EXPECT_EQ(text(reader->payload(a)), "hello");
  EXPECT_EQ(text(reader->payload(b)), large);
  EXPECT_TRUE(reader->payload(2).empty());
  for (uint32_t i : {a, b}) {
    EXPECT_EQ(reader->plan().payloads(static_cast<int>(i)).offset() % kAlignmentBytes, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(reader->payload(i).data()) % kAlignmentBytes, 0u);
  }
  EXPECT_EQ(reader->folder(), folder.path.string());
  // The file and the buffer are the same bytes, and nothing else is left in the folder.
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(bytes, *writer.toBuffer(plan));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

TEST(PlanFile, EqualPayloadsAreStoredOnce) {
  PlanWriter writer;
  EXPECT_EQ(writer.addPayload("same"), 0u);
  EXPECT_EQ(writer.addPayload("other"), 1u);
  EXPECT_EQ(writer.addPayload("same"), 0u);
  EXPECT_EQ(writer.payloadCount(), 2u);
}

TEST(PlanFile, SamePlanSameBytes) { EXPECT_EQ(smallPlan(), smallPlan()); }

TEST(PlanFile, ManyPayloadsWhoseOffsetsLengthenTheHeader) {
  PlanWriter writer;
  for (int i = 0; i < 3000; ++i)
    writer.addPayload(std::to_string(i) + std::string(i % 200, ' '));
  auto bytes = writer.toBuffer(Plan());
  ASSERT_TRUE(bytes.ok());
  auto reader = PlanReader::fromBuffer(bytes.take());
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(text(reader->payload(2999)).substr(0, 4), "2999");
}

TEST(PlanFile, CutAnywhere) {
  std::string whole = smallPlan();
  for (size_t length = 0; length < whole.size(); ++length) {
    std::string message = messageOf(whole.substr(0, length));
    EXPECT_NE(message, "") << "cut to " << length << " bytes";
    EXPECT_EQ(message.rfind("folder/p.tplan: ", 0), 0u) << message;
  }
  EXPECT_NE(messageOf(whole + "x").find("after its last payload"), std::string::npos);
}

TEST(PlanFile, FlippedByteAnywhere) {
  std::string whole = smallPlan();
  auto reader = PlanReader::fromBuffer(whole);
  ASSERT_TRUE(reader.ok());
  const Payload first = reader->plan().payloads(0), second = reader->plan().payloads(1);
  for (size_t at = 0; at < whole.size(); ++at)
    for (unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      std::string message = messageOf(damaged);
      ASSERT_NE(message, "") << "byte " << at << " flipped";
      const char *place = at >= second.offset()                                         ? "payload 1:"
                          : at >= first.offset() && at < first.offset() + first.bytes() ? "payload 0:"
                          : at >= 16 && at < first.offset() - 64                        ? "header:"
                                                                                        : "";
      EXPECT_NE(message.find(place), std::string::npos) << message << " for byte " << at;
    }
}

TEST(PlanFile, NewerVersion) {
  std::string bytes = smallPlan();
  uint32_t newer = kPlanFormatVersion + 6;
  std::memcpy(bytes.data() + 8, &newer, 4);
  std::string message = messageOf(bytes);
  std::string versions = "version " + std::to_string(newer) + ", newer than " + std::to_string(kPlanFormatVersion);
  EXPECT_NE(message.find(versions), std::string::npos) << message;
  EXPECT_NE(message.find("recompile"), std::string::npos);
  EXPECT_NE(message.find("update trun"), std::string::npos);
}

TEST(PlanFile, NoPlanAtAll) {
  EXPECT_NE(messageOf("PK\x03\x04 something else entirely").find("not a plan"), std::string::npos);
  EXPECT_NE(messageOf("").find("not a plan"), std::string::npos);
  Folder folder;
  EXPECT_NE(PlanReader::open(folder.path / "none").message().find("none: cannot open the plan: No such file"),
            std::string::npos);
  EXPECT_NE(PlanReader::open(folder.path).message().find("not a regular file but a folder"), std::string::npos);
}

TEST(PlanFile, FolderThatCannotBeWritten) {
  PlanWriter writer;
  Status missing = writer.write(Plan(), "/nonexistent-folder/m.tplan");
  EXPECT_NE(missing.message().find("/nonexistent-folder/m.tplan: cannot write: No such file"),
            std::string::npos)
      << missing.message();
  EXPECT_EQ(missing.code(), StatusCode::Fault);
  // In /proc not even root can make files.
  EXPECT_NE(writer.write(Plan(), "/proc/m.tplan").message().find("/proc/m.tplan: cannot write"),
            std::string::npos);
}

TEST(PlanFile, WriteThatIsCutOffLeavesNothingBehind) {
  Folder folder;
  PlanWriter writer;
  writer.addPayload(std::string(1 << 20, 'x'));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 64 << 10; // like a full disk: part of the file can be written, the rest cannot
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status = writer.write(Plan(), folder.path / "m.tplan");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(status.message().find("m.tplan: cannot write: File too large"), std::string::npos)
      << status.message();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(PlanFile, TargetThatCannotBeReplacedLeavesNothingBehind) {
  Folder folder;
  std::filesystem::create_directories(folder.path / "m.tplan" / "inside");
  PlanWriter writer;
  EXPECT_NE(writer.write(Plan(), folder.path / "m.tplan").message().find("it is a folder"),
            std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}
