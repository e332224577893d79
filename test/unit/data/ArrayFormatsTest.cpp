//===- ArrayFormatsTest.cpp - safetensors, npy, npz, CSV -----------------===//
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include "runtime/data/Dataset.h"
#include "runtime/plan/PlanFile.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class ArrayFormats : public FolderTest {
protected:
  std::string npz(const std::string &name, const std::vector<std::pair<std::string, std::string>> &members) {
    return write(name, archiveBytes(ArchiveKind::Zip, members));
  }
};
} // namespace

TEST_F(ArrayFormats, SafetensorsReadsBackWhatWasWritten) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> flags = {1, 0, 1};
  std::vector<int64_t> labels = {7, 8, 9};
  auto hash = writeSafetensors(at("d.safetensors"),
                               {tensorOf("x", plan::F32, {3, 2}, x), tensorOf("flag", plan::I1, {3}, flags),
                                tensorOf("label", plan::I64, {3}, labels)},
                               {{"note", "hello"}});
  ASSERT_TRUE(hash.ok()) << hash.message();
  auto file = SafetensorsFile::open(at("d.safetensors"));
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->metadata().at("note"), "hello");
  EXPECT_EQ(*hash, plan::hashBytes(file->file()->bytes().data(), file->file()->bytes().size()));
  auto data = openDataset(at("d.safetensors"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("flag")->type()), "i1[3]");
  EXPECT_EQ(readSample<float>(*data->find("x"), 1), (std::vector<float>{3, 4}));
  EXPECT_EQ(readSample<int64_t>(*data->find("label"), 2), std::vector<int64_t>{9});
}

TEST_F(ArrayFormats, SafetensorsFaults) {
  std::vector<float> x = {1, 2, 3, 4};
  ASSERT_TRUE(writeSafetensors(at("d.safetensors"), {tensorOf("x", plan::F32, {2, 2}, x)}).ok());
  auto whole = readFile(at("d.safetensors"));
  for (size_t length : {size_t(0), size_t(5), size_t(20), whole->size() - 1})
    expectError(openDataset(write("cut.safetensors", whole->substr(0, length)), {}), {"cut.safetensors", "truncated"});
  expectError(openDataset(write("long.safetensors", *whole + "1234"), {}), {"damaged"});
  expectError(openDataset(write("text.safetensors", "this is no tensor file at all"), {}), {"not a safetensors file"});
  auto withHeader = [&](std::string header, const std::string &data) {
    uint64_t length = header.size();
    return write("h.safetensors", std::string(reinterpret_cast<char *>(&length), 8) + header + data);
  };
  expectError(openDataset(withHeader(R"({"x":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", "1234"), {}),
              {"tensor 'x'", "F8_E4M3"});
  expectError(openDataset(withHeader(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"), {}),
              {"tensor 'x'", "data_offsets", "f32[2]"});
  expectError(openDataset(withHeader(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"), {}),
              {"tensor 'x'", "dimension"});
  expectError(openDataset(withHeader(R"({"x":{"shape":[1]}})", "1234"), {}), {"tensor 'x'", "lacks"});
  expectError(openDataset(withHeader("{oops}", ""), {}), {"JSON"});
  // The tensors' sizes add up to the file's size, but two tensors share bytes, and other bytes belong to none.
  expectError(openDataset(withHeader(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                     R"("y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12345678"), {}),
              {"share", "offset 0"});
  expectError(openDataset(withHeader(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"), {}),
              {"no tensor", "offset 0"});
  expectError(openDataset(withHeader(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                     R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"), {}),
              {"'x' occurs twice"});
}

TEST_F(ArrayFormats, NpyAndFolder) {
  write("f/x.npy", npy("<f4", "(2, 3)", bytesOf<float>({1, 2, 3, 4, 5, 6})));
  write("f/y.npy", npy("<i8", "(2,)", bytesOf<int64_t>({5, 6})));
  auto data = openDataset(at("f"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("x")->type()), "f32[2x3]");
  EXPECT_EQ(readSample<float>(*data->find("x"), 1), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(readSample<int64_t>(*data->find("y"), 0), std::vector<int64_t>{5});
  ASSERT_TRUE(openDataset(at("f/x.npy"), {}).ok());
}

TEST_F(ArrayFormats, NpyFaults) {
  expectError(openDataset(write("a.npy", "no numpy"), {}), {"a.npy", "not an .npy file"});
  expectError(openDataset(write("b.npy", npy("<f4", "(4,)", "1234")), {}), {"b.npy", "truncated", "f32[4]"});
  expectError(openDataset(write("c.npy", npy("<f4", "(1, 1)", "1234", "True")), {}), {"Fortran", "ascontiguousarray"});
  expectError(openDataset(write("d.npy", npy(">f4", "(1,)", "1234")), {}), {">f4", "big-endian", "newbyteorder"});
  expectError(openDataset(write("e.npy", npy("<U4", "(1,)", "1234")), {}), {"<U4", "texts", "return_inverse"});
  expectError(openDataset(write("f.npy", npy("|O", "(1,)", "1234")), {}), {"|O", "Python objects", "tolist"});
  expectError(openDataset(write("g.npy", npy("<c8", "(1,)", "12345678")), {}), {"<c8", "complex"});
}

TEST_F(ArrayFormats, Npz) {
  auto data = openDataset(npz("d.npz", {{"x.npy", npy("<f4", "(2,)", bytesOf<float>({1.5f, 2.5f}))},
                                        {"flag.npy", npy("|b1", "(2,)", std::string("\1\0", 2))}}),
                          {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<float>(*data->find("x"), 1), std::vector<float>{2.5f});
  EXPECT_EQ(data->find("flag")->type().dtype(), plan::I1);
  EXPECT_GT(data->hostBytes(), 0u);
  auto whole = readFile(at("d.npz"));
  expectError(openDataset(write("cut.npz", whole->substr(0, whole->size() / 2)), {}), {"cut.npz"});
  expectError(openDataset(write("text.npz", "no zip at all, just words"), {}), {"text.npz"});
}

namespace {
/// The bytes of every input of the first batches, as reads of two epochs fill them.
std::vector<std::string> batchesOf(const Dataset &data, const plan::Entry &entry) {
  std::vector<std::string> all;
  auto reader = BatchReader::bind(entry, data, {});
  EXPECT_TRUE(reader.ok()) << reader.message();
  if (!reader)
    return all;
  std::vector<std::string> batch;
  std::vector<std::span<std::byte>> given;
  for (uint64_t bytes : reader->inputBytes())
    batch.emplace_back(bytes, '\0');
  for (std::string &bytes : batch)
    given.push_back(std::as_writable_bytes(std::span(bytes)));
  for (uint64_t epoch : {0, 1})
    for (uint64_t first = 0; first < reader->samples(); ++first) {
      const std::vector<uint64_t> samples = {first, (first + 1) % reader->samples()};
      Status status = reader->fill(samples, false, given, {.draw = {7, epoch}});
      EXPECT_TRUE(status.ok()) << status.message();
      all.insert(all.end(), batch.begin(), batch.end());
    }
  return all;
}
} // namespace

TEST_F(ArrayFormats, ColumnsInMemoryAreReadAsTheSameArraysOfAFile) {
  std::vector<float> x(24), scale = {3, 4};
  std::vector<uint8_t> image(12 * 36);
  std::vector<int64_t> label(12);
  std::vector<double> weight(12);
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = static_cast<uint8_t>(i * 37);
  for (size_t i = 0; i < 24; ++i)
    x[i] = static_cast<float>(i % 7) - static_cast<float>(i) / 5;
  for (size_t i = 0; i < 12; ++i) {
    label[i] = static_cast<int64_t>(i * i % 5);
    weight[i] = static_cast<double>(i) / 3;
  }
  const std::string path = npz("d.npz", {{"x.npy", npy("<f4", "(12, 2)", bytesOf(x))},
                                         {"image.npy", npy("|u1", "(12, 1, 6, 6)", bytesOf(image))},
                                         {"label.npy", npy("<i8", "(12,)", bytesOf(label))},
                                         {"weight.npy", npy("<f8", "(12,)", bytesOf(weight))},
                                         {"scale.npy", npy("<f4", "(2,)", bytesOf(scale))}});
  const plan::Entry entry = entryOf(2, {{"x", plan::F32, {2, 2}, 0},
                                        {"image", plan::F32, {2, 1, 4, 4}, 0},
                                        {"label", plan::I64, {2}, 0},
                                        {"weight", plan::F32, {2}, 0},
                                        {"scale", plan::F32, {2}, -1}});
  auto columns = [&] {
    std::vector<std::unique_ptr<Column>> made;
    auto add = [&](const char *name, plan::DType dtype, std::vector<int64_t> dims, const auto &values) {
      auto owner = std::make_shared<std::decay_t<decltype(values)>>(values);
      auto column = memoryColumn(name, typeOf(dtype, std::move(dims)), std::as_bytes(std::span(*owner)), owner);
      ASSERT_TRUE(column.ok()) << column.message();
      made.push_back(column.take());
    };
    add("x", plan::F32, {12, 2}, x);
    add("image", plan::U8, {12, 1, 6, 6}, image);
    add("label", plan::I64, {12}, label);
    add("weight", plan::F64, {12}, weight);
    add("scale", plan::F32, {2}, scale);
    return made;
  };
  using Part = DatasetOptions::Part;
  for (bool training : {true, false})
    for (Part part : {Part::All, Part::Head, Part::Tail})
      for (uint64_t limit : {0, 2}) {
        DatasetOptions options;
        options.settings["cast"] = "'f32'";
        options.settings["transform"] = "tables = [ { kind = 'random_crop', size = 4 }, { kind = 'horizontal_flip' }, "
                                        "{ kind = 'center_crop', size = 4, on = 'eval' }, "
                                        "{ kind = 'to_float', column = 'image' }, "
                                        "{ kind = 'standardise', column = 'x' } ]";
        options.training = training;
        options.learnsFacts = true;
        options.part = part;
        options.evalSplit = part == Part::All ? 0 : 0.25;
        options.limit = limit;
        auto file = openDataset(path, options), memory = openDatasetColumns("arrays", columns(), options);
        ASSERT_TRUE(file.ok()) << file.message();
        ASSERT_TRUE(memory.ok()) << memory.message();
        EXPECT_EQ(memory->path, "arrays");
        EXPECT_EQ(memory->describeColumns(), file->describeColumns());
        EXPECT_EQ(memory->find("label")->samples(), limit ? limit : part == Part::All ? 12 : part == Part::Head ? 9 : 3);
        EXPECT_TRUE(memory->facts == file->facts);
        EXPECT_FALSE(memory->facts.standards.empty());
        const std::vector<std::string> batches = batchesOf(*memory, entry);
        EXPECT_FALSE(batches.empty());
        EXPECT_EQ(batches, batchesOf(*file, entry));
      }
}

TEST_F(ArrayFormats, FaultsOfColumnsInMemory) {
  const std::vector<float> x(6);
  const auto bytes = std::as_bytes(std::span(x));
  expectError(memoryColumn("x", typeOf(plan::F32, {4, 2}), bytes, nullptr), {"'x'", "f32[4x2]", "32 bytes", "has 24"});
  expectError(memoryColumn("x", typeOf(plan::F32, {-1}), bytes, nullptr), {"'x'", "f32[-1]"});
  expectError(memoryColumn("x", typeOf(plan::DTYPE_NONE, {24}), bytes, nullptr), {"'x'", "type"});
  std::vector<std::unique_ptr<Column>> two;
  for (int i = 0; i < 2; ++i)
    two.push_back(memoryColumn("x", typeOf(plan::F32, {3, 2}), bytes, nullptr).take());
  expectError(openDatasetColumns("arrays", std::move(two), {}), {"arrays", "'x'"});
  // As in a file, columns of different lengths are an error of the inputs that read them.
  std::vector<std::unique_ptr<Column>> uneven;
  uneven.push_back(memoryColumn("x", typeOf(plan::F32, {3, 2}), bytes, nullptr).take());
  uneven.push_back(memoryColumn("y", typeOf(plan::F32, {6}), bytes, nullptr).take());
  auto data = openDatasetColumns("arrays", std::move(uneven), {});
  ASSERT_TRUE(data.ok()) << data.message();
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::F32, {2, 2}, 0}, {"y", plan::F32, {2}, 0}}), *data, {}),
              {"arrays", "'x' has 3", "'y' has 6"});
}

TEST_F(ArrayFormats, Csv) {
  auto data = openDataset(write("d.csv", "x.0,x.1,\"label\"\n1.5,2,0\r\n -3,4e1,1\n\n"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("x")->type()), "f64[2x2]");
  EXPECT_EQ(readSample<double>(*data->find("x"), 1), (std::vector<double>{-3, 40}));
  EXPECT_EQ(plan::typeName(data->find("label")->type()), "i64[2]");
  EXPECT_TRUE(data->find("x")->isText());
}

TEST_F(ArrayFormats, CsvFaults) {
  expectError(openDataset(write("a.csv", "x,y\n1,2\n3\n"), {}), {"a.csv:3", "1 fields", "2"});
  auto texts = openDataset(write("b.csv", "x,y\n1,blue\n"), {});
  ASSERT_TRUE(texts.ok()) << "an input may not read 'y'";
  expectError(texts->find("y")->usable(), {"b.csv:2", "'y'", "'blue'"});
  expectError(openDataset(write("c.csv", "x,y\n"), {}), {"c.csv", "no rows"});
  expectError(openDataset(write("d.csv", "x.0,x.2\n1,2\n"), {}), {"d.csv", "gaps"});
}

TEST_F(ArrayFormats, UnknownPlaces) {
  expectError(openDataset(at("nowhere"), {}), {"nowhere", "no such file"});
  expectError(openDataset(write("d.xyz", "1"), {}), {"d.xyz", ".safetensors"});
  std::filesystem::create_directory(at("empty"));
  expectError(openDataset(at("empty"), {}), {"empty", "no known kind of data"});
}

TEST_F(ArrayFormats, EvalSplitTakesTheTail) {
  std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  ASSERT_TRUE(writeSafetensors(at("d.safetensors"), {tensorOf("x", plan::F32, {10}, x)}).ok());
  DatasetOptions head, tail;
  head.evalSplit = tail.evalSplit = 0.3;
  head.part = DatasetOptions::Part::Head;
  tail.part = DatasetOptions::Part::Tail;
  auto first = openDataset(at("d.safetensors"), head), second = openDataset(at("d.safetensors"), tail);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->find("x")->samples(), 7u);
  EXPECT_EQ(second->find("x")->samples(), 3u);
  EXPECT_EQ(readSample<float>(*second->find("x"), 0), std::vector<float>{7});
  tail.evalSplit = 0.99;
  expectError(openDataset(at("d.safetensors"), tail), {"eval_split", "no sample"});
}
