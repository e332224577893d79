//===- TablesTest.cpp - CSV, JSON lines, categories, missing values ---------===//
#include "test/unit/data/DataFixture.h"

#include "runtime/data/Dataset.h"
#include "runtime/data/Table.h"
#include "runtime/plan/PlanFile.h"

#include <cmath>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Tables : public FolderTest {
protected:
  static DatasetOptions with(DataMap settings) {
    DatasetOptions options;
    options.settings = std::move(settings);
    options.learnsFacts = options.training = true;
    return options;
  }
  Expected<Dataset> csv(const std::string &text, DataMap settings = {}) {
    return openDataset(write("d.csv", text), with(std::move(settings)));
  }
  Expected<Dataset> lines(const std::string &text, DataMap settings = {}) {
    return openDataset(write("d.jsonl", text), with(std::move(settings)));
  }
  /// All values of a scalar column.
  template <typename T> static std::vector<T> valuesOf(const Dataset &data, const std::string &name) {
    std::vector<T> values;
    const Column *column = data.find(name);
    EXPECT_NE(column, nullptr) << name;
    for (uint64_t i = 0; column && i < column->samples(); ++i)
      values.push_back(readSample<T>(*column, i).front());
    return values;
  }
  static std::string textsOf(const Dataset &data, const std::string &name) {
    std::string all;
    const Column *column = data.find(name);
    EXPECT_TRUE(column && column->holdsTexts()) << name;
    for (uint64_t i = 0; column && i < column->samples(); ++i)
      all += (i ? "/" : "") + std::string(column->textOf(i));
    return all;
  }
  /// Gives the column `x` to an input of that type.
  Status bind(Expected<Dataset> &data, plan::DType dtype, std::vector<int64_t> dims, uint64_t maxBad = 0) {
    entry = entryOf(dims[0], {{"x", dtype, dims, 0}});
    BindOptions options;
    options.maxBad = maxBad;
    return BatchReader::bind(entry, *data, options).status();
  }
  plan::Entry entry;
};
} // namespace

TEST_F(Tables, Separators) {
  for (auto [separator, format] : {std::pair(',', "CSV"), std::pair(';', "CSV separated by semicolons"),
                                   std::pair('\t', "CSV separated by tabs"), std::pair('|', "CSV separated by |")}) {
    std::string text = "a#b#name\n1#2.5#\"x, y; z|\t!\"\n3#4#w\n";
    std::replace(text.begin(), text.end(), '#', separator);
    auto data = csv(text);
    ASSERT_TRUE(data.ok()) << data.message();
    EXPECT_EQ(data->format, format);
    EXPECT_EQ(valuesOf<int64_t>(*data, "a"), (std::vector<int64_t>{1, 3}));
    EXPECT_EQ(valuesOf<double>(*data, "b"), (std::vector<double>{2.5, 4}));
    EXPECT_EQ(textsOf(*data, "name"), "x, y; z|\t!/w");
  }
  auto one = csv("x\n1\n2\n");
  ASSERT_TRUE(one.ok()) << one.message();
  EXPECT_EQ(one->columns.size(), 1u);
  auto tabs = openDataset(write("d.tsv", "x\ty\n1\t2\n"), {});
  ASSERT_TRUE(tabs.ok()) << tabs.message();
  EXPECT_EQ(tabs->columns.size(), 2u);
}

TEST_F(Tables, QuotesLineEndsAndByteOrderMark) {
  auto data = csv("\xef\xbb\xbf\"x\",\"a \"\"name\"\"\"\r\n1,\"two\nlines\"\r\n\r\n 2 ,\" kept \"\r\n3,5\" disk");
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(valuesOf<int64_t>(*data, "x"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(textsOf(*data, "a \"name\""), "two\nlines/ kept /5\" disk");
  EXPECT_EQ(data->find("x")->place(0), "line 2");
  EXPECT_EQ(data->find("x")->place(1), "line 5") << "the quoted field and the empty line take lines of their own";
  EXPECT_EQ(data->find("x")->place(2), "line 6");
  expectError(csv("x,y\n1,\"open\n2,3\n"), {"d.csv:2", "no end"});
  expectError(csv("x,y\n1,\"a\"b\n"), {"d.csv:2", "'b'", "follows a quoted field"});
  expectError(csv("\xff\xfex"), {"UTF-16", "UTF-8"});
}

TEST_F(Tables, NamesAreNotNumbers) {
  expectError(csv("5.1,3.5,0\n4.9,3.0,0\n"), {"d.csv:1", "'5.1'", "line of names"});
  EXPECT_TRUE(csv("0,1,2\n4.9,3.0,0\n").ok()) << "names that pandas gives";
  EXPECT_TRUE(csv("0,one\n4.9,3.0\n").ok());
}

TEST_F(Tables, GapsAreNamedAndFilled) {
  const std::string text = "x,n,y\n1.5,7,0\n,NA,1\nnan,8,2\n4.5,9,null\n";
  auto data = csv(text);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->find("n")->type().dtype(), plan::I64) << "gaps make no floats";
  expectError(bind(data, plan::F32, {2}),
              {"d.csv:3", "'x'", "value is missing", "data.missing.x", "2 of 4 samples", "max_bad=2"});
  EXPECT_TRUE(bind(data, plan::F32, {2}, 2).ok());

  data = csv(text, {{"missing.x", "mean"}, {"missing.n", "0"}, {"missing.y", "-1"}});
  expectError(data, {"not a rule"}); // values are TOML, so that a string needs quotes
  data = csv(text, {{"missing.x", "\"mean\""}, {"missing.n", "0"}, {"missing.*", "-1"}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(valuesOf<double>(*data, "x"), (std::vector<double>{1.5, 3, 3, 4.5}));
  EXPECT_EQ(valuesOf<int64_t>(*data, "n"), (std::vector<int64_t>{7, 0, 8, 9}));
  EXPECT_EQ(valuesOf<int64_t>(*data, "y"), (std::vector<int64_t>{0, 1, 2, -1}));
  EXPECT_EQ(data->facts.fills.at("x"), std::vector<double>{3});
  EXPECT_TRUE(bind(data, plan::F32, {2}).ok());

  // Gaps in other data are filled with the mean of the training data.
  DatasetOptions later = with({{"missing.x", "\"mean\""}});
  later.learnsFacts = later.training = false;
  expectError(openDataset(write("e.csv", "x\n100\n\n \"\"\n"), later), {"data.missing.x", "--from"});
  later.facts = data->facts;
  auto held = openDataset(at("e.csv"), later);
  ASSERT_TRUE(held.ok()) << held.message();
  EXPECT_EQ(valuesOf<double>(*held, "x"), (std::vector<double>{100, 3}));
  // An integer column becomes floating-point, since the mean is not an integer.
  auto mean = csv("n\n1\nNA\n2\n", {{"missing.n", "\"mean\""}});
  ASSERT_TRUE(mean.ok());
  EXPECT_EQ(valuesOf<double>(*mean, "n"), (std::vector<double>{1, 1.5, 2}));
  expectError(csv(text, {{"missing.z", "0"}}), {"data.missing.z", "no such column"});
  expectError(csv(text, {{"missing.x", "\"blue\""}}), {"data.missing.x", "numbers"});
  expectError(csv("x,y\n,1\n,2\n", {{"missing.x", "\"mean\""}}), {"data.missing.x", "no value"});
}

TEST_F(Tables, VectorsHaveGapsByElement) {
  auto data = csv("x.0,x.1\n1,2\n3,\n5,6\n", {{"missing.x", "\"mean\""}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<double>(*data->find("x"), 1), (std::vector<double>{3, 4}));
  auto gaps = csv("x.0,x.1\n1,2\n3,\n5,6\n");
  expectError(bind(gaps, plan::F32, {2, 2}), {"d.csv:3", "'x'", "element 1"});
  auto text = csv("x.0,x.1\n1,2\n3,blue\n");
  expectError(bind(text, plan::F32, {2, 2}), {"d.csv:3", "'x.1'", "'blue'"});
}

TEST_F(Tables, ColumnsSideBySide) {
  auto data =
      csv("age,kind,v.0,v.1\n31,a,1,2\n,b,3,4\n",
          {{"columns.x", "[\"v\", \"age\", \"kind\"]"}, {"categories.kind", "[\"b\", \"a\"]"}, {"missing.age", "0.5"}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(columnTypeName(*data->find("x")), "f64[2x4]");
  EXPECT_EQ(readSample<double>(*data->find("x"), 0), (std::vector<double>{1, 2, 31, 1}));
  EXPECT_EQ(readSample<double>(*data->find("x"), 1), (std::vector<double>{3, 4, 0.5, 0}));
  EXPECT_TRUE(bind(data, plan::F32, {2, 4}).ok());
  data = csv("a,b\n1,2\n3,\n", {{"columns.x", "[\"a\", \"b\"]"},
                                {"transform", "tables = [ { kind = 'normalise', column = 'a', mean = 1, std = 1 } ]"}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(columnTypeName(*data->find("x")), "i64[2x2]");
  EXPECT_EQ(readSample<int64_t>(*data->find("x"), 0), (std::vector<int64_t>{1, 2})) << "the column, not its transform";
  expectError(bind(data, plan::F32, {1, 2}), {"d.csv:3", "'b'", "missing"});
  expectError(csv("a,b\n1,2\n", {{"columns.x", "[\"a\", \"c\"]"}}), {"data.columns.x", "'c'"});
  expectError(csv("a,b\n1,2\n", {{"columns.b", "[\"a\"]"}}), {"data.columns.b", "such a column already"});
  expectError(csv("a,b\n1,red\n", {{"columns.x", "[\"a\", \"b\"]"}}), {"data.columns.x", "'red'"});
}

TEST_F(Tables, StandardiseBetweenOtherTransforms) {
  auto data =
      csv("x.0,x.1\n1,2\n3,6\n",
          {{"transform", "tables = [ { kind = 'scale', column = 'x', factor = 2 }, { kind = 'standardise', column = "
                         "'x' }, { kind = 'scale', column = 'x', offset = 10 } ]"}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<float>(*data->find("x"), 0), (std::vector<float>{9, 9}));
  EXPECT_EQ(readSample<float>(*data->find("x"), 1), (std::vector<float>{11, 11}));
}

/// A random transform before `standardise` draws anew in each epoch, even if other transforms follow.
TEST_F(Tables, StandardiseKeepsWhatIsDrawn) {
  std::vector<float> pixels(2 * 1 * 8 * 8);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<float>(i);
  ASSERT_TRUE(writeSafetensors(at("d.safetensors"), {tensorOf("image", plan::F32, {2, 1, 8, 8}, pixels)}).ok());
  const std::string crop = "{ kind = 'random_crop', size = 2 }",
                    standard = "{ kind = 'standardise', column = 'image' }", flip = "{ kind = 'vertical_flip', p = 1 }";
  auto drawn = [&](const std::string &tables, uint64_t epoch) {
    auto data = openDataset(at("d.safetensors"), with({{"transform", "tables = [" + tables + "]"}}));
    EXPECT_TRUE(data.ok()) << data.message();
    std::vector<float> values(4);
    Draw draw;
    draw.seed = 7;
    draw.epoch = epoch;
    EXPECT_TRUE(data->find("image")->draw(1, draw, reinterpret_cast<std::byte *>(values.data())).ok());
    return values;
  };
  int different = 0;
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    std::vector<float> alone = drawn(crop + "," + standard, epoch),
                       turned = drawn(crop + "," + standard + "," + flip, epoch);
    EXPECT_EQ(turned, (std::vector<float>{alone[2], alone[3], alone[0], alone[1]})) << "epoch " << epoch;
    different += turned != drawn(crop + "," + standard + "," + flip, 0);
  }
  EXPECT_GT(different, 0);
}

/// Combined columns may contain combined columns; each reads into memory of its own.
TEST_F(Tables, ColumnsOfColumns) {
  auto data =
      csv("a,b,c\n1,2.5,NA\n3,4.5,7\n", {{"columns.x", "[\"a\", \"b\"]"},
                                         {"columns.y", "[\"x\", \"c\", \"x\"]"},
                                         {"missing.c", "\"mean\""},
                                         {"transform", "tables = [ { kind = 'scale', column = 'c', factor = 2 } ]"}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<double>(*data->find("y"), 0), (std::vector<double>{1, 2.5, 7, 1, 2.5}));
  EXPECT_EQ(readSample<double>(*data->find("y"), 1), (std::vector<double>{3, 4.5, 7, 3, 4.5}));
  EXPECT_EQ(readSample<float>(*data->find("c"), 0), std::vector<float>{14});
}

TEST_F(Tables, ColumnsThatNobodyReadsMayHoldAnything) {
  auto data = csv("x,when,name\n1,2026-11-27,Ann\n2,,\n");
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_TRUE(bind(data, plan::F32, {2}).ok());
  auto texts = csv("x\n1\n2\nblue\n");
  expectError(bind(texts, plan::F32, {2}), {"d.csv:4", "'x'", "'blue'", "data.categories.x"});
  auto commas = csv("x;y\n1,5;2\n");
  expectError(bind(commas, plan::F32, {1}), {"d.csv:2", "'1,5'", "comma", "decimal=','"});
}

TEST_F(Tables, Categories) {
  const std::string text = "species,y\nvirginica,1\nsetosa,2\nversicolor,3\nsetosa,4\n";
  auto sorted = csv(text, {{"categories.species", "\"sorted\""}});
  ASSERT_TRUE(sorted.ok()) << sorted.message();
  EXPECT_EQ(valuesOf<int64_t>(*sorted, "species"), (std::vector<int64_t>{2, 0, 1, 0}));
  EXPECT_EQ(sorted->facts.categories.at("species"), (std::vector<std::string>{"setosa", "versicolor", "virginica"}));
  auto listed = csv(text, {{"categories.species", "[\"virginica\", \"setosa\", \"versicolor\"]"}});
  ASSERT_TRUE(listed.ok()) << listed.message();
  EXPECT_EQ(valuesOf<int64_t>(*listed, "species"), (std::vector<int64_t>{0, 1, 2, 1}));

  // Other data uses the training data's numbering, even if it lacks some categories.
  DatasetOptions later = with({{"categories.species", "\"sorted\""}});
  later.learnsFacts = later.training = false;
  expectError(openDataset(write("e.csv", "species\nvirginica\n"), later), {"data.categories.species", "--from"});
  later.facts = sorted->facts;
  auto held = openDataset(at("e.csv"), later);
  ASSERT_TRUE(held.ok()) << held.message();
  EXPECT_EQ(valuesOf<int64_t>(*held, "species"), std::vector<int64_t>{2});
  expectError(openDataset(write("e.csv", "species\nsetosa\nalba\n"), later),
              {"e.csv", "'species'", "line 3", "'alba'", "setosa, versicolor, virginica"});
  EXPECT_TRUE(openDataset(write("e.csv", "y\n1\n"), later).ok()) << "predictions need no targets";
  later.settings["categories.species"] = "[\"virginica\", \"setosa\", \"versicolor\"]";
  expectError(openDataset(write("e.csv", "species\nsetosa\n"), later), {"data.categories.species", "differs"});

  // Texts that look like numbers are read as texts if the recipe declares the column as categories.
  auto grades = csv("grade\n10\n9\nA\n", {{"categories.grade", "\"sorted\""}});
  ASSERT_TRUE(grades.ok());
  EXPECT_EQ(valuesOf<int64_t>(*grades, "grade"), (std::vector<int64_t>{0, 1, 2}));
  auto numbers = csv("grade\n10\n9\n", {{"categories.grade", "[\"9\", \"10\"]"}});
  ASSERT_TRUE(numbers.ok()) << numbers.message();
  EXPECT_EQ(valuesOf<int64_t>(*numbers, "grade"), (std::vector<int64_t>{1, 0}));
  expectError(csv(text, {{"categories.colour", "\"sorted\""}}), {"data.categories.colour", "no such column"});
  expectError(csv("c\n\xe9\n", {{"categories.c", "\"sorted\""}}), {"'c'", "UTF-8"});
}

TEST_F(Tables, CategoriesWithGaps) {
  const std::string text = "c,y\nred,1\nNA,2\n,3\n";
  auto gaps = csv(text, {{"categories.c", "\"sorted\""}});
  ASSERT_TRUE(gaps.ok()) << gaps.message();
  entry = entryOf(1, {{"c", plan::I64, {1}, 0}});
  expectError(BatchReader::bind(entry, *gaps, {}), {"line 3", "'c'", "missing", "'NA'", "data.missing.c", "2 of 3"});
  auto filled = csv(text, {{"categories.c", "\"sorted\""}, {"missing.c", "\"unknown\""}});
  ASSERT_TRUE(filled.ok()) << filled.message();
  EXPECT_EQ(valuesOf<int64_t>(*filled, "c"), (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ(filled->facts.categories.at("c"), (std::vector<std::string>{"red", "unknown"}));
  // NA, Namibia's code, is a category and not a missing value if the list contains it.
  auto listed = csv("c\nNA\nDE\n", {{"categories.c", "[\"DE\", \"NA\"]"}});
  ASSERT_TRUE(listed.ok()) << listed.message();
  EXPECT_EQ(valuesOf<int64_t>(*listed, "c"), (std::vector<int64_t>{1, 0}));
}

TEST_F(Tables, SeveralFilesAreOneTable) {
  write("p-0.csv", "x,c\n1,red\n2,blue\n");
  write("p-1.csv", "x,c\n2.5,green\n,red\n");
  auto data = openDataset(at("p-*.csv"), with({{"categories.c", "\"sorted\""}, {"missing.x", "\"mean\""}}));
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(valuesOf<int64_t>(*data, "c"), (std::vector<int64_t>{2, 0, 1, 2})) << "of all files' texts";
  EXPECT_EQ(valuesOf<double>(*data, "x"), (std::vector<double>{1, 2, 2.5, 5.5 / 3}));
}

TEST_F(Tables, HeldOutRowsDecideNothing) {
  write("d.csv", "x,c\n1,a\n3,b\n100,a\n,b\n");
  DatasetOptions head = with({{"categories.c", "\"sorted\""}, {"missing.x", "\"mean\""}}), tail = head;
  head.evalSplit = tail.evalSplit = 0.5;
  head.part = DatasetOptions::Part::Head;
  auto training = openDataset(at("d.csv"), head);
  ASSERT_TRUE(training.ok()) << training.message();
  EXPECT_EQ(training->facts.fills.at("x"), std::vector<double>{2});
  tail.part = DatasetOptions::Part::Tail;
  tail.learnsFacts = tail.training = false;
  tail.facts = training->facts;
  auto held = openDataset(at("d.csv"), tail);
  ASSERT_TRUE(held.ok()) << held.message();
  EXPECT_EQ(valuesOf<double>(*held, "x"), (std::vector<double>{100, 2}));
}

TEST_F(Tables, JsonLines) {
  auto data =
      lines("{\"x\": [1.5, 2], \"label\": 0, \"c\": \"red\", \"flag\": true, \"deep\": [[1, 2], [3, 4]]}\r\n\n"
            "{\"label\": 1, \"x\": [-3, 4e1], \"flag\": false, \"c\": \"a \\u00e9\", \"deep\": [[5, 6], [7, 8]]}\n");
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->format, "JSON lines");
  EXPECT_EQ(plan::typeName(data->find("x")->type()), "f64[2x2]");
  EXPECT_EQ(readSample<double>(*data->find("x"), 1), (std::vector<double>{-3, 40}));
  EXPECT_TRUE(data->find("x")->isText());
  EXPECT_EQ(valuesOf<int64_t>(*data, "label"), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(valuesOf<int64_t>(*data, "flag"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(plan::typeName(data->find("deep")->type()), "i64[2x2x2]");
  EXPECT_EQ(readSample<int64_t>(*data->find("deep"), 1), (std::vector<int64_t>{5, 6, 7, 8}));
  EXPECT_EQ(textsOf(*data, "c"), "red/a \u00e9");
  EXPECT_EQ(data->find("x")->place(1), "line 3");
  // A file with one list of objects is read like lines of objects.
  auto list = openDataset(write("d.json", " [{\"x\": 1},\n {\"x\": 2.5, \"y\": 3}]"), {});
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_EQ(list->format, "JSON");
  EXPECT_EQ(valuesOf<double>(*list, "x"), (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(list->find("y")->lacks(0));
}

TEST_F(Tables, JsonGaps) {
  auto data = lines("{\"x\": null, \"v\": [1, null]}\n{\"x\": 2, \"late\": 7}\n{\"x\": 4, \"v\": [3, 4]}\n",
                    {{"missing.x", "\"mean\""}, {"missing.v", "9"}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(valuesOf<double>(*data, "x"), (std::vector<double>{3, 2, 4}));
  EXPECT_EQ(readSample<int64_t>(*data->find("v"), 0), (std::vector<int64_t>{1, 9}));
  EXPECT_EQ(readSample<int64_t>(*data->find("v"), 1), (std::vector<int64_t>{9, 9}));
  EXPECT_EQ(readSample<int64_t>(*data->find("v"), 2), (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(data->find("late")->lacks(2));
}

TEST_F(Tables, JsonFaults) {
  expectError(lines("{\"x\": 1}\n{\"x\": }\n"), {"d.jsonl:2", "no JSON"});
  expectError(lines("{\"x\": 1} {\"x\": 2}\n"), {"d.jsonl:1"});
  expectError(lines("[1, 2]\n"), {"d.jsonl"});
  expectError(lines("{\"x\": 1}\n5\n"), {"d.jsonl:2", "object"});
  expectError(lines("{\"x\": 1, \"x\": 2}\n"), {"d.jsonl:1", "'x'", "twice"});
  expectError(lines("\n \n"), {"d.jsonl", "empty"});
  expectError(lines("{}\n"), {"d.jsonl", "no keys"});
  expectError(lines("{\"x\": " + std::string(100000, '[')), {"d.jsonl:1", "nested"});
  // A value that its column cannot hold is refused when it is read, not when the file is opened.
  for (auto [text, word] :
       {std::pair("{\"x\": 1}\n{\"x\": \"a\"}\n", "text"), std::pair("{\"x\": [[1]]}\n{\"x\": [[1, 2]]}\n", "one length"),
        std::pair("{\"x\": 1}\n{\"x\": {\"y\": [2, {}]}}\n", "object"),
        std::pair("{\"x\": [1]}\n{\"x\": [[1]]}\n", "nested otherwise")}) {
    auto data = lines(text);
    ASSERT_TRUE(data.ok()) << data.message();
    expectError(bind(data, plan::F32, {2}), {"d.jsonl:2", "'x'", word});
  }
}

TEST_F(Tables, CastsWhenTold) {
  std::vector<double> x = {0.1, 1e300};
  ASSERT_TRUE(writeSafetensors(at("d.safetensors"), {tensorOf("x", plan::F64, {2}, x)}).ok());
  auto data = openDataset(at("d.safetensors"), {});
  expectError(bind(data, plan::F32, {2}), {"f64 does not become f32 silently", "data.cast=f32"});
  auto cast = openDataset(at("d.safetensors"), with({{"cast", "f32"}}));
  expectError(bind(cast, plan::F32, {2}), {"'x'", "1e+300", "sample 1", "does not fit"});
  EXPECT_TRUE(bind(cast, plan::F64, {2}).ok()) << "an f64 input gets what the file holds";
  x[1] = 2;
  ASSERT_TRUE(writeSafetensors(at("d.safetensors"), {tensorOf("x", plan::F64, {2}, x)}).ok());
  cast = openDataset(at("d.safetensors"), with({{"cast", "f32"}}));
  ASSERT_TRUE(bind(cast, plan::F32, {2}).ok());
  auto reader = BatchReader::bind(entry, *cast, {});
  float values[2];
  std::span<std::byte> input = std::as_writable_bytes(std::span(values));
  ASSERT_TRUE(reader->fill(std::vector<uint64_t>{0, 1}, false, {&input, 1}).ok());
  EXPECT_EQ(values[0], 0.1f) << "rounded to the nearest";
}

TEST_F(Tables, NumbersOfTextsMustFit) {
  auto data = csv("x\n1\n1e39\n");
  ASSERT_TRUE(data.ok());
  expectError(bind(data, plan::F32, {2}), {"'x'", "1e+39", "does not fit the f32"});
  auto whole = csv("x\n1\n70000\n");
  expectError(bind(whole, plan::F16, {2}), {"'x'", "70000", "does not fit the f16"});
}

TEST_F(Tables, Standardise) {
  const std::string transform = "tables = [ { kind = 'standardise', column = 'x' } ]";
  auto data = csv("x.0,x.1,x.2,y\n1,10,5,0\n3,10,5,1\n5,10,8,2\n", {{"transform", transform}});
  ASSERT_TRUE(data.ok()) << data.message();
  const ColumnFacts::Standard &facts = data->facts.standards.at("x");
  EXPECT_EQ(facts.mean, (std::vector<double>{3, 10, 6}));
  EXPECT_EQ(facts.deviation, (std::vector<double>{std::sqrt(8.0 / 3), 1, std::sqrt(2.0)}))
      << "of the population; a constant is divided by 1";
  EXPECT_EQ(readSample<float>(*data->find("x"), 2),
            (std::vector<float>{float(2 / std::sqrt(8.0 / 3)), 0, float(2 / std::sqrt(2.0))}));

  DatasetOptions later = with({{"transform", transform}});
  later.learnsFacts = later.training = false;
  expectError(openDataset(write("e.csv", "x.0,x.1,x.2\n3,11,6\n"), later),
              {"standardise", "'x'", "--from", "normalise"});
  later.facts = data->facts;
  auto held = openDataset(at("e.csv"), later);
  ASSERT_TRUE(held.ok()) << held.message();
  EXPECT_EQ(readSample<float>(*held->find("x"), 0), (std::vector<float>{0, 1, 0}));
  expectError(openDataset(write("e.csv", "x.0\n3\n"), later), {"standardise", "'x'", "3 means"});
}

TEST_F(Tables, StandardiseTakesEveryColumnOfNumbers) {
  std::vector<uint8_t> bytes = {0, 2, 4, 4, 2, 0, 0, 0};
  std::vector<double> wide = {1, 3};
  ASSERT_TRUE(writeSafetensors(at("d.safetensors"),
                               {tensorOf("u", plan::U8, {2, 2, 1, 2}, bytes), tensorOf("w", plan::F64, {2}, wide)})
                  .ok());
  auto data =
      openDataset(at("d.safetensors"),
                  with({{"transform", "tables = [ { kind = 'standardise', column = 'u' }, { kind = 'standardise', "
                                      "column = 'w' }, { kind = 'standardise', column = 'w', per = 'column' } ]"}}));
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->facts.standards.at("u").mean, (std::vector<double>{1, 2})) << "images: by channel";
  EXPECT_EQ(data->facts.standards.at("w").mean, std::vector<double>{2});
  EXPECT_EQ(data->facts.standards.at("w#2").mean, std::vector<double>{0});
  EXPECT_EQ(readSample<float>(*data->find("w"), 0), std::vector<float>{-1});
  auto gaps = csv("x\n1\n\"\"\n", {{"transform", "tables = [ { kind = 'standardise', column = 'x' } ]"}});
  expectError(gaps, {"d.csv:3", "'x'", "missing"});
  auto filled = csv("x\n1\n\"\"\n3\n",
                    {{"transform", "tables = [ { kind = 'standardise', column = 'x' } ]"}, {"missing.x", "\"mean\""}});
  ASSERT_TRUE(filled.ok()) << filled.message();
  EXPECT_EQ(readSample<float>(*filled->find("x"), 1), std::vector<float>{0});
  expectError(csv("x\nred\n", {{"transform", "tables = [ { kind = 'standardise', column = 'x' } ]"}}),
              {"standardise", "'red'"});
}

TEST_F(Tables, ArithmeticOfNumbers) {
  auto data =
      csv("x.0,x.1,n\n1,2.5,7\n3,4,8\n",
          {{"transform", "tables = [ { kind = 'normalise', column = 'x', mean = [1, 2], std = [2, 4] }, { kind = "
                         "'scale', column = 'n', factor = 2, offset = 1 } ]"}});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<float>(*data->find("x"), 0), (std::vector<float>{0, 0.125f}));
  EXPECT_EQ(readSample<float>(*data->find("n"), 1), std::vector<float>{17});
}
