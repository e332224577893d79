//===- CodeObjectTest.cpp - machine code is unloaded ---------------------===//
#include "TestReader.h"

#include "runtime/cpu/CodeObject.h"
#include "test/support/ProcessResources.h"

using namespace tcc;
using namespace tcc::test;
using runtime::CodeObject;

namespace {
CodeObject loaded(const char *path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  auto object = CodeObject::load(std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(object.ok()) << object.message();
  return object.take();
}
} // namespace

TEST(CodeObject, LeavesNothing) {
  (void)loaded(TEST_KERNELS);
  const ProcessResources before = ProcessResources::now();
  for (int i = 0; i < 20; ++i) {
    CodeObject one = loaded(TEST_KERNELS), other = loaded(TEST_KERNELS);
    EXPECT_NE(one.find("twice"), nullptr);
    EXPECT_NE(one.find("twice"), other.find("twice")) << "each has memory of its own";
    one = std::move(other);
    EXPECT_NE(one.find("add"), nullptr);
  }
  const ProcessResources after = ProcessResources::now();
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.mappings, before.mappings);
}

/// The loader would return the library that it still knows for the path of a later one.
TEST(CodeObject, ALibraryThatForbidsUnloadingKeepsItsPath) {
  EXPECT_NE(loaded(PINNED_KERNELS).find("pinned"), nullptr);
  CodeObject next = loaded(TEST_KERNELS);
  EXPECT_EQ(next.find("pinned"), nullptr);
  EXPECT_NE(next.find("twice"), nullptr);
}
