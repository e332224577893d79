// Which limit of memory holds for this process: groups of both versions, their ancestors, mounts, cached files, swap.
#include "support/MachineMemory.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

using namespace tcc;
namespace fs = std::filesystem;

namespace {
constexpr uint64_t kMiB = 1 << 20;

/// A /proc and /sys of 1000 MiB, 800 of them available, 100 MiB of swap.
class MachineMemory : public testing::Test {
protected:
  void SetUp() override {
    root = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root);
    write("proc/meminfo", "MemTotal: 1024000 kB\nMemFree: 1 kB\nMemAvailable: 819200 kB\nSwapFree: 102400 kB\n");
    write("proc/self/statm", "1000 500 100 1 0 300 0\n");
  }
  void TearDown() override { fs::remove_all(root); }
  void write(const std::string &path, const std::string &text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  void version2(const std::string &group, const std::string &mountRoot = "/") {
    write("proc/self/cgroup", "1:name=systemd:/x\n0::" + group + "\n");
    write("proc/self/mountinfo", "31 23 0:28 / /proc rw - proc proc rw\n41 31 0:38 " + mountRoot +
                                     " /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n");
  }
  void limit(const std::string &folder, uint64_t most, uint64_t used, uint64_t cached = 0) {
    write(folder + "/memory.max", std::to_string(most));
    write(folder + "/memory.current", std::to_string(used));
    write(folder + "/memory.stat", "anon 1\ninactive_file " + std::to_string(cached) + "\nactive_file 0\n");
  }
  MemoryLimit free(bool swap = false) { return freeMemory(swap, root.string()); }
  fs::path root;
};

TEST_F(MachineMemory, MachineAlone) {
  EXPECT_EQ(memoryLimit(root.string()).bytes, 1000 * kMiB);
  EXPECT_EQ(free().bytes, 800 * kMiB);
  EXPECT_EQ(free(/*swap=*/true).bytes, 900 * kMiB);
  EXPECT_EQ(free().what, "the machine's memory");
}

TEST_F(MachineMemory, OwnGroupOfVersion2) {
  version2("/user/job");
  write("sys/fs/cgroup/user/memory.max", "max\n");
  limit("sys/fs/cgroup/user/job", 200 * kMiB, 150 * kMiB);
  EXPECT_EQ(memoryLimit(root.string()).bytes, 200 * kMiB);
  EXPECT_EQ(free().bytes, 50 * kMiB);
  EXPECT_NE(free().what.find("/sys/fs/cgroup/user/job"), std::string::npos);
}

TEST_F(MachineMemory, EnclosingGroupThatHasLessLeft) {
  version2("/user/job");
  limit("sys/fs/cgroup/user/job", 400 * kMiB, 10 * kMiB);
  limit("sys/fs/cgroup/user", 500 * kMiB, 480 * kMiB);
  EXPECT_EQ(free().bytes, 20 * kMiB);
  EXPECT_NE(free().what.find("/sys/fs/cgroup/user"), std::string::npos);
}

TEST_F(MachineMemory, CachedFilesCountAsFree) {
  version2("/job");
  limit("sys/fs/cgroup/job", 200 * kMiB, 190 * kMiB, /*cached=*/100 * kMiB);
  EXPECT_EQ(free().bytes, 110 * kMiB);
}

TEST_F(MachineMemory, SwapOfAGroup) {
  version2("/job");
  limit("sys/fs/cgroup/job", 200 * kMiB, 150 * kMiB);
  write("sys/fs/cgroup/job/memory.swap.max", std::to_string(30 * kMiB));
  write("sys/fs/cgroup/job/memory.swap.current", std::to_string(10 * kMiB));
  EXPECT_EQ(free(/*swap=*/true).bytes, 70 * kMiB);
  EXPECT_EQ(free(/*swap=*/false).bytes, 50 * kMiB);
}

TEST_F(MachineMemory, ContainerThatSeesItsGroupAsTheRoot) {
  version2("/docker/abc", "/docker/abc");
  limit("sys/fs/cgroup", 300 * kMiB, 100 * kMiB);
  EXPECT_EQ(free().bytes, 200 * kMiB);
  version2("/../../outside");
  EXPECT_EQ(free().bytes, 200 * kMiB);
}

TEST_F(MachineMemory, OwnGroupOfVersion1) {
  write("proc/self/cgroup", "4:cpu,memory:/job\n0::/\n");
  write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/with\\040space rw - cgroup cgroup rw,cpu,memory\n");
  write("sys/fs/cgroup/with space/job/memory.limit_in_bytes", std::to_string(130 * kMiB));
  write("sys/fs/cgroup/with space/job/memory.usage_in_bytes", std::to_string(20 * kMiB));
  write("sys/fs/cgroup/with space/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(free().bytes, 110 * kMiB);
}

TEST_F(MachineMemory, MessageHasBothNumbers) {
  version2("/job");
  limit("sys/fs/cgroup/job", 130 * kMiB, 0);
  EXPECT_TRUE(checkMemory(100 * kMiB, free(), 2).ok());
  tcc::Status status = checkMemory(142 * kMiB, free(), 2);
  ASSERT_FALSE(status.ok());
  for (const char *part : {"142.0 MiB", "130.0 MiB", "/sys/fs/cgroup/job", "157286400 bytes", "136314880 bytes"})
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.message();
  EXPECT_FALSE(checkMemory(~uint64_t(0), free(), 2).ok());
}

TEST_F(MachineMemory, StacksCountWhereAddressesAreLimited) {
  const uint64_t stack = uint64_t(8) << 20; // unless ulimit -s says otherwise
  MemoryLimit memory{100 * kMiB, false, "memory"}, addresses{100 * kMiB, true, "addresses"};
  EXPECT_TRUE(checkMemory(80 * kMiB, memory, 16).ok());
  EXPECT_TRUE(checkMemory(80 * kMiB, addresses, 1).ok());
  EXPECT_FALSE(checkMemory(80 * kMiB, addresses, 2 + unsigned(100 * kMiB / stack)).ok());
}
} // namespace
