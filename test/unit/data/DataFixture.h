//===- DataFixture.h - folders, files and plans for tests of data and state -===//
#ifndef TCC_TEST_UNIT_DATA_DATAFIXTURE_H
#define TCC_TEST_UNIT_DATA_DATAFIXTURE_H

#include "runtime/data/BatchReader.h"
#include "runtime/tensors/Safetensors.h"
#include "test/support/Shown.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tcc::test {

/// A test with a folder of its own.
class FolderTest : public ::testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tcc-unit-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string at(const std::string &name) const { return folder + "/" + name; }
  std::string write(const std::string &name, const std::string &content) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary) << content;
    return at(name);
  }
  std::string folder;
};

inline plan::TensorType typeOf(plan::DType dtype, std::vector<int64_t> dims) {
  plan::TensorType type;
  type.set_dtype(dtype);
  for (int64_t dim : dims)
    type.add_dims(dim);
  return type;
}

/// A tensor that refers to `values`, which must outlive it.
template <typename T>
runtime::Tensor tensorOf(const std::string &name, plan::DType dtype, std::vector<int64_t> dims,
                         const std::vector<T> &values) {
  return {name, typeOf(dtype, dims), std::as_bytes(std::span<const T>(values))};
}

template <typename T> std::vector<T> readSample(const runtime::Column &column, uint64_t index) {
  std::vector<T> values(column.sampleBytes() / sizeof(T));
  Status status = column.read(index, reinterpret_cast<std::byte *>(values.data()));
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

/// Fails unless `result` is an error whose message, as it is shown, contains all the texts.
template <typename Result> void expectError(const Result &result, std::initializer_list<std::string> texts) {
  ASSERT_FALSE(result.ok()) << "no error";
  const std::string message = shown(result);
  for (const std::string &text : texts)
    EXPECT_NE(message.find(text), std::string::npos) << "no '" << text << "' in: " << message;
}

/// An entry that only has inputs: name, type, sample axis.
struct InputSpec {
  std::string name;
  plan::DType dtype;
  std::vector<int64_t> dims;
  int axis;
};
inline plan::Entry entryOf(int64_t batch, const std::vector<InputSpec> &inputs) {
  plan::Entry entry;
  entry.set_name("step");
  entry.set_batch(batch);
  for (const InputSpec &input : inputs) {
    plan::Port *port = entry.add_inputs();
    port->set_name(input.name);
    port->set_buffer(static_cast<uint32_t>(entry.buffers_size()));
    port->set_sample_axis(input.axis);
    *entry.add_buffers()->mutable_type() = typeOf(input.dtype, input.dims);
  }
  return entry;
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_DATA_DATAFIXTURE_H
