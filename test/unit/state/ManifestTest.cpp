//===- ManifestTest.cpp - valid and invalid manifests --------------------===//
//
// The sweep replaces each member of a manifest by values of every JSON type. Each change is refused, unless the lists
// below name it as valid.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/Manifest.h"
#include "runtime/state/SealedJson.h"

#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
plan::TensorType type(plan::DType dtype, std::vector<int64_t> dims) {
  plan::TensorType result;
  result.set_dtype(dtype);
  for (int64_t dim : dims)
    result.add_dims(dim);
  return result;
}

/// A manifest with two shards, a tensor in two slices, and every optional member.
Manifest example() {
  Manifest manifest;
  manifest.run.producer = "trun 0.1.0";
  manifest.run.model = "m.onnx";
  manifest.run.plan = 0x1234;
  manifest.run.files = {{"classes.json", 7}};
  manifest.run.training = {{"optimizer.kind", "\"adamw\""}, {"optimizer.lr", "0.001"}};
  manifest.run.frozen = {{"mask", 9}};
  manifest.run.data = DataRecord{40, 40, 4, 10, {{"x", "f32[40x3]"}}, 11, 4, "x f32[4x3]; x f32[2x6]"};
  manifest.position = {12, 1, 2, UINT64_MAX, true, 20, {"optimizer.lr=0.001"}, 10, 0.5};
  manifest.position.lossScale = LossScaleState{1024, 5, 3, 1};
  manifest.position.plateau = PlateauState{"eval_loss", 0.25, 1, 2, 4, 10};
  manifest.shards = {{"a.safetensors", 100, 1}, {"b.safetensors", 200, 2}};
  manifest.tensors = {
      {"w", type(plan::F32, {4, 6}), TensorRole::Parameter, {{0, "w", {0, 0}, {4, 2}}, {1, "w", {0, 2}, {4, 4}}}},
      {"w/exp_avg", type(plan::F32, {3}), TensorRole::Optimizer, {{0, "w/exp_avg", {0}, {3}}}},
      {"scale", type(plan::F32, {}), TensorRole::LossScale, {{1, "scale", {}, {}}}},
      {"none", type(plan::I64, {0, 3}), TensorRole::Buffer, {}}};
  return manifest;
}

json body() { return *parseObject(manifestText(example()), "m"); }
Expected<Manifest> parse(const json &value) { return parseManifestBody(value.dump(), "manifest.json"); }

void visit(const json &value, const json::json_pointer &at,
           const std::function<void(const json::json_pointer &)> &call) {
  if (!at.empty())
    call(at);
  if (value.is_object())
    for (const auto &[key, inner] : value.items())
      visit(inner, at / key, call);
  else if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i)
      visit(value[i], at / i, call);
}

bool isUnder(const std::string &path, std::initializer_list<const char *> folders) {
  for (const char *folder : folders)
    if (path.starts_with(folder))
      return true;
  return false;
}
} // namespace

TEST(Manifest, ReadsWhatItWrites) {
  std::string text = manifestText(example());
  auto read = parseManifest(text, "m");
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(manifestText(*read), text);
  EXPECT_EQ(read->position.seed, UINT64_MAX);
  EXPECT_EQ(read->position.bestValue, 0.5);
  EXPECT_EQ(read->run.training.at("optimizer.lr"), "0.001");
  EXPECT_EQ(read->tensors[0].slices[1].start, (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(read->position.lossScale->scale, 1024);
  EXPECT_EQ(read->position.lossScale->growthTracker, 5u);
  EXPECT_EQ(read->position.lossScale->skipped, 3u);
  EXPECT_EQ(read->position.lossScale->hopeless, 1u);
  EXPECT_EQ(read->position.plateau->metric, "eval_loss");
  EXPECT_EQ(read->position.plateau->best, 0.25);
  EXPECT_EQ(read->position.plateau->waited, 1u);
  EXPECT_EQ(read->position.plateau->cooldown, 2u);
  EXPECT_EQ(read->position.plateau->reductions, 4u);
  EXPECT_EQ(read->position.plateau->heard, 10u);
  EXPECT_EQ(*read->tensors[2].role, TensorRole::LossScale);
}

TEST(Manifest, EveryChangedByteIsRefused) {
  std::string text = manifestText(example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_FALSE(parseManifest(changed, "m").ok()) << "byte " << i << ": " << changed.substr(i, 20);
    EXPECT_FALSE(parseManifest(text.substr(0, i), "m").ok()) << "cut after " << i;
  }
  EXPECT_FALSE(parseManifest(text + "\n", "m").ok());
  json unsealed = *parseObject(text, "m");
  unsealed.erase("xxh3");
  EXPECT_NE(parseManifest(unsealed.dump(), "m").message().find("checksum"), std::string::npos);
  unsealed["version"] = 1;
  EXPECT_FALSE(parseManifest(unsealed.dump(), "m").ok()) << "a seal is not taken off by an older version number";
}

TEST(Manifest, EveryMemberHasItsType) {
  json good = body();
  const std::vector<json> values = {nullptr,           true,      -1,   1.5,           1e300,
                                    uint64_t(1) << 63, "",        "zz", json::array(), json::object(),
                                    json::array({1}),  {{"a", 1}}};
  size_t refused = 0, accepted = 0;
  visit(good, json::json_pointer(), [&](const json::json_pointer &at) {
    std::string path = at.to_string();
    for (const json &value : values) {
      json changed = good;
      if (changed[at] == value)
        continue;
      changed[at] = value;
      auto read = parse(changed);
      (read ? accepted : refused) += 1;
      if (!read) {
        EXPECT_TRUE(read.message().starts_with("manifest.json: ")) << read.message();
        continue;
      }
      // An accepted value has the member's type and is in its range.
      bool text = good[at].is_string() && value.is_string() &&
                  isUnder(path, {"/producer", "/model", "/target", "/settings/", "/position/plateau/metric", "/data/columns/", "/data/shapes", "/tensors/0/slices/0/key",
                                 "/tensors/0/slices/1/key", "/tensors/1/slices/0/key", "/tensors/2/slices/0/key",
                                 "/tensors/0/name", "/tensors/1/name", "/tensors/2/name", "/tensors/3/name",
                                 "/shards/0/file", "/shards/1/file"});
      if (value == "" &&
          isUnder(path, {"/tensors/0/name", "/tensors/1/name", "/tensors/2/name", "/tensors/3/name", "/shards"}))
        text = false;
      bool absent = value.is_null() && (path == "/plan" || path == "/best" || path == "/data");
      bool any = isUnder(path, {"/training/"}) && !value.is_structured();
      bool number = (path == "/best/eval_loss" && value.is_number()) ||
                    (path == "/position/plateau/best" && value.is_number()) ||
                    (path == "/position/schedule_total" && value == 1.5) ||
                    (path == "/position/loss_scale/scale" && (value == 1.5 || value == uint64_t(1) << 63)) ||
                    (path == "/position/seed" && value == uint64_t(1) << 63);
      bool flag = path == "/position/shuffle" && value.is_boolean();
      bool empty = value.is_structured() && value.empty() && value.type() == good[at].type() &&
                   (path == "/settings" || path == "/requires" || path == "/run_files" || path == "/training" ||
                    path == "/frozen" || path == "/data/columns" || path == "/tensors");
      bool open = value == json({{"a", 1}}) && path == "/training";
      EXPECT_TRUE(text || absent || any || number || flag || empty || open || path == "/xxh3")
          << path << " = " << value.dump();
    }
  });
  EXPECT_GT(refused, 800u);
  EXPECT_GT(accepted, 20u);
}

TEST(Manifest, EveryMemberIsNeeded) {
  json good = body();
  visit(good, json::json_pointer(), [&](const json::json_pointer &at) {
    json changed = good;
    json &parent = changed[at.parent_pointer()];
    if (parent.is_array())
      parent.erase(std::stoul(at.back()));
    else
      parent.erase(at.back());
    // Optional members: earlier versions wrote no target, one rank writes no ranks, one shape no shapes, and only one
    // schedule writes a plateau.
    bool open = at.to_string() == "/position/plateau" || at.to_string() == "/position/plateau/best" ||
                isUnder(at.to_string(), {"/target", "/data/ranks", "/data/shapes", "/run_files/", "/training/", "/frozen/", "/data/columns/", "/settings/",
                                         "/xxh3"});
    // A missing tensor, or another shape of an empty one, is only found when the checkpoint is loaded into the plan.
    bool tensor = at.parent_pointer().to_string() == "/tensors" || at.to_string() == "/tensors/3/shape/1";
    EXPECT_EQ(parse(changed).ok(), open || tensor) << at.to_string();
  });
}

TEST(Manifest, NamesAreUnique) {
  json good = body();
  for (const char *path : {"/tensors", "/shards", "/tensors/0/slices", "/tensors/1/slices"}) {
    json changed = good;
    json &list = changed[json::json_pointer(path)];
    list.push_back(list[0]);
    EXPECT_FALSE(parse(changed).ok()) << path;
  }
  std::string text = good.dump();
  std::string twice = text.substr(0, text.size() - 1) + ",\"position\":{\"step\":3}}";
  EXPECT_NE(parseManifestBody(twice, "m").message().find("'position' occurs twice"), std::string::npos);
}

TEST(Manifest, ShardsStayInTheFolder) {
  for (const char *file : {"../other/state.safetensors", "/etc/passwd", "..", ".", "a/b", "manifest.json", ""}) {
    json changed = body();
    changed["shards"][0]["file"] = file;
    EXPECT_FALSE(parse(changed).ok()) << file;
  }
  json changed = body();
  changed["shards"][0]["file"] = std::string("a\0b", 3);
  EXPECT_FALSE(parse(changed).ok());
}

TEST(Manifest, VersionsAndFeaturesAreNamed) {
  json newer = body();
  newer["version"] = 7;
  auto read = parse(newer);
  EXPECT_NE(read.message().find("7 is newer than 2"), std::string::npos) << read.message();
  json more = body();
  more["requires"] = {"compressed shards"};
  read = parse(more);
  EXPECT_NE(read.message().find("'compressed shards'"), std::string::npos) << read.message();
  json other = body();
  other["a later version's note"] = {{"x", 1}};
  EXPECT_TRUE(parse(other).ok()) << "what a reader need not know is passed over";
}

TEST(Manifest, DeepAndLargeTextsEnd) {
  std::string deep = "{\"a\":" + std::string(1 << 20, '[');
  EXPECT_NE(parseManifestBody(deep, "m").message().find("nested deeper"), std::string::npos);
  EXPECT_FALSE(parseManifestBody(std::string(1 << 20, '{'), "m").ok());
  json many = body();
  many["tensors"][0]["slices"] = json::array();
  for (int i = 0; i < 20000; ++i)
    many["tensors"][0]["slices"].push_back(
        {{"shard", 0}, {"key", std::to_string(i)}, {"start", {0, 0}}, {"shape", {1, 1}}});
  EXPECT_NE(parse(many).message().find("exactly once"), std::string::npos);
  json wraps = body();
  wraps["tensors"][3]["shape"] = {1ull << 40, 1ull << 40};
  EXPECT_FALSE(parse(wraps).ok());
}

TEST(Manifest, SlicesCoverATensorExactlyOnce) {
  auto covers = [](std::vector<uint64_t> shape,
                   std::vector<std::pair<std::vector<uint64_t>, std::vector<uint64_t>>> boxes) {
    std::vector<TensorSlice> slices;
    for (auto &[start, extent] : boxes)
      slices.push_back({0, "", start, extent});
    return checkCoverage(shape, slices).ok();
  };
  EXPECT_TRUE(covers({}, {{{}, {}}}));
  EXPECT_FALSE(covers({}, {}));
  EXPECT_FALSE(covers({}, {{{}, {}}, {{}, {}}}));
  EXPECT_TRUE(covers({5}, {{{3}, {2}}, {{0}, {3}}}));
  EXPECT_FALSE(covers({5}, {{{3}, {1}}, {{0}, {3}}})) << "a hole at the end";
  EXPECT_FALSE(covers({5}, {{{2}, {3}}, {{0}, {3}}})) << "an overlap";
  EXPECT_FALSE(covers({5}, {{{2}, {3}}, {{0}, {1}}})) << "a hole";
  EXPECT_FALSE(covers({6}, {{{0}, {3}}, {{0}, {3}}})) << "the volume is right";
  // Ranges of elements, by which ranks divide a tensor.
  EXPECT_TRUE(covers({2, 3}, {{{4}, {2}}, {{0}, {4}}}));
  EXPECT_TRUE(covers({}, {{{0}, {1}}}));
  EXPECT_FALSE(covers({2, 3}, {{{0}, {4}}})) << "a hole at the end";
  EXPECT_FALSE(covers({2, 3}, {{{0}, {4}}, {{3}, {3}}})) << "an overlap";
  EXPECT_FALSE(covers({2, 3}, {{{0}, {4}}, {{4}, {3}}})) << "beyond the end";
  EXPECT_FALSE(covers({2, 3}, {{{0}, {3}}, {{1, 0}, {1, 3}}})) << "a range and a box";
  EXPECT_FALSE(covers({2, 3}, {{{0, 0}, {1, 3}}, {{3}, {3}}})) << "a box and a range";
  // A pinwheel, which no straight cut divides.
  EXPECT_TRUE(
      covers({3, 3}, {{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}}));
  EXPECT_FALSE(
      covers({3, 3}, {{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{0, 0}, {1, 1}}}));
  EXPECT_TRUE(covers({2, 2}, {{{0, 0}, {1, 1}}, {{0, 1}, {1, 1}}, {{1, 0}, {1, 2}}, {{1, 1}, {0, 1}}}))
      << "an empty slice is nothing";
  EXPECT_FALSE(covers({2, 2}, {{{0, 0}, {2, 2}}, {{0, 0}, {1, 1}}}));
  EXPECT_FALSE(covers({4}, {{{1}, {UINT64_MAX}}, {{0}, {4}}}));
  EXPECT_TRUE(covers({0, 4}, {}));
}

TEST(Manifest, FirstVersionIsReadAsFarAsItGoes) {
  json old = {
      {"version", 1},      {"step", 4},           {"epoch", 1},
      {"batch", 0},        {"seed", 3},           {"shuffle", true},
      {"best_step", 2},    {"best_loss", 0.25},   {"settings", {"optimizer.lr=1"}},
      {"model", "m.onnx"}, {"schedule_total", 4}, {"files", {{"state.safetensors", {{"xxh3", std::string(16, 'a')}}}}}};
  auto read = parseManifest(old.dump(), "m");
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(read->position.step, 4u);
  EXPECT_EQ(read->shards[0].hash, 0xaaaaaaaaaaaaaaaau);
  for (const char *key : {"step", "epoch", "batch", "seed"})
    for (const json &value : {json(-1), json("x"), json(1.5), json()}) {
      json changed = old;
      changed[key] = value;
      EXPECT_FALSE(parseManifest(changed.dump(), "m").ok()) << key << value;
    }
  old.erase("files");
  EXPECT_FALSE(parseManifest(old.dump(), "m").ok());
}

TEST(SealedJson, SealsAndOpens) {
  std::string text = sealObject({{"a", 1}, {"list", {1, 2}}}, {"list"});
  EXPECT_TRUE(openSealed(text, "f").ok());
  EXPECT_FALSE(openSealed("{\"a\":1}", "f").ok());
  EXPECT_TRUE(openSealed("{\"a\":1}", "f", true).ok());
  EXPECT_FALSE(openSealed("[]", "f", true).ok());
  EXPECT_FALSE(openSealed("{\"xxh3\": \"" + std::string(16, '0') + "\"\n}\n", "f", true).ok());
}
