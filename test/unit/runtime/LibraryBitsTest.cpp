//===- LibraryBitsTest.cpp - no environment and no thread count in results ===//
#include <algorithm>
#include <array>
#include <cstdio>
#include <gtest/gtest.h>
#include <string>

namespace {
std::string output(const std::string &environment, int threads) {
  std::string command = environment + " " LIBRARY_BITS " " + std::to_string(threads) + " 2>&1";
  FILE *pipe = ::popen(command.c_str(), "r");
  if (!pipe)
    return "cannot run " + command;
  std::string text;
  std::array<char, 4096> part;
  for (size_t got; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), got);
  if (::pclose(pipe) != 0)
    text += "(failed: " + command + ")";
  return text;
}
const std::string &reference() {
  static const std::string text = output("env", 1);
  return text;
}
} // namespace

TEST(LibraryBits, Runs) {
  EXPECT_EQ(reference().find("failed"), std::string::npos) << reference();
  EXPECT_EQ(std::count(reference().begin(), reference().end(), '\n'), 14) << reference();
}
TEST(LibraryBits, AnyNumberOfThreads) {
  for (int threads : {2, 3, 8})
    EXPECT_EQ(output("env", threads), reference()) << threads << " threads";
}
TEST(LibraryBits, OpenMpEnvironment) {
  for (const char *environment : {"OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true", "OMP_NUM_THREADS=7 OMP_NESTED=true",
                                  "OMP_PROC_BIND=true OMP_SCHEDULE=dynamic"})
    EXPECT_EQ(output(environment, 2), reference()) << environment;
}
TEST(LibraryBits, LibraryEnvironment) {
  for (const char *environment : {"ONEDNN_MAX_CPU_ISA=SSE41", "DNNL_MAX_CPU_ISA=AVX2", "ONEDNN_DEFAULT_FPMATH_MODE=ANY",
                                  "ONEDNN_CPU_ISA_HINTS=PREFER_YMM", "ONEDNN_PRIMITIVE_CACHE_CAPACITY=0"})
    EXPECT_EQ(output(environment, 2), reference()) << environment;
}
TEST(LibraryBits, OneProcessor) { EXPECT_EQ(output("taskset -c 0", 3), reference()); }
