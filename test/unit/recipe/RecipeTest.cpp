//===- RecipeTest.cpp - recipes: values, defaults, and every kind of mistake -===//
#include "compiler/recipe/Recipe.h"
#include "compiler/recipe/RecipeStores.h"
#include "test/support/Shown.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tcc;
using testing::AllOf;
using testing::HasSubstr;

namespace {

class RecipeFile : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "recipe-XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  Expected<Recipe> read(const std::string &text, const std::vector<std::string> &settings = {}) {
    std::ofstream(path()) << text;
    return readRecipe(path(), settings);
  }
  /// The message without the folder in front of the file's name.
  std::string problem(const std::string &text, const std::vector<std::string> &settings = {}) {
    Expected<Recipe> recipe = read(text, settings);
    if (recipe)
      return "accepted";
    std::string message = test::shown(recipe);
    for (size_t at; (at = message.find(folder + "/")) != message.npos;)
      message.erase(at, folder.size() + 1);
    return message;
  }
  std::string path() const { return folder + "/recipe.toml"; }
  std::string folder;
};

static std::map<std::string, double> numbersOf(const Expected<Recipe> &recipe) {
  const auto &numbers = recipe->training.optimizer().numbers();
  return {numbers.begin(), numbers.end()};
}

TEST_F(RecipeFile, ReadsEverySection) {
  auto recipe = read(R"([model]
dims = { batch = 8 }
frozen = "embed.*"
[loss]
kind = "cross_entropy"
of = "logits"
target = "labels"
class_axis = -1
[optimizer]
lr = 3e-4
betas = [0.9, 0.95]
decay_exempt = ["@bias", "@norm"]
[[optimizer.group]]
match = ["head.*"]
lr_scale = 0.1
weight_decay = 0
[schedule]
kind = "cosine"
warmup_steps = 100
[train]
accumulate = 4
clip_norm = 1
[data.map]
ids = "tokens"
[checkpoint]
every_minutes = 0.5
keep = 2
keep_best = false
)");
  ASSERT_TRUE(recipe) << recipe.message();
  EXPECT_EQ(recipe->model.dims.at("batch"), 8);
  EXPECT_EQ(recipe->model.frozen, std::vector<std::string>{"embed.*"});
  EXPECT_EQ(recipe->loss.kind, "cross_entropy");
  EXPECT_EQ(recipe->loss.classAxis, -1);
  EXPECT_EQ(recipe->training.optimizer().kind(), "adamw");
  EXPECT_EQ(numbersOf(recipe).at("lr"), 3e-4);
  EXPECT_EQ(numbersOf(recipe).at("beta2"), 0.95);
  ASSERT_EQ(recipe->optimizer.groups.size(), 1u);
  EXPECT_EQ(recipe->optimizer.groups[0].lrScale, 0.1);
  EXPECT_EQ(recipe->optimizer.groups[0].weightDecay, 0);
  EXPECT_EQ(recipe->optimizer.groups[0].where, path() + ":13:1");
  EXPECT_EQ(recipe->training.schedule().numbers().at("warmup_steps"), 100);
  EXPECT_EQ(recipe->training.accumulate(), 4);
  EXPECT_EQ(recipe->training.clip_norm(), 1.0);
  EXPECT_EQ(recipe->data.map().at("ids"), "tokens");
  EXPECT_EQ(recipe->training.checkpoints().every_minutes(), 0.5);
  EXPECT_EQ(recipe->training.checkpoints().keep(), 2u);
  EXPECT_EQ(recipe->training.checkpoints().keep_best(), false);
  EXPECT_EQ(recipe->at("train.accumulate"), path() + ":21:1: ");
  EXPECT_EQ(recipe->at("train.seed"), "");
}

TEST(Recipe, DefaultsArePyTorchs) {
  auto adamw = readRecipe("", {});
  ASSERT_TRUE(adamw) << adamw.message();
  using Numbers = std::map<std::string, double>;
  EXPECT_EQ(numbersOf(adamw),
            (Numbers{{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 1e-2}}));
  auto adam = readRecipe("", {"optimizer.kind=adam"});
  EXPECT_EQ(numbersOf(adam).at("weight_decay"), 0);
  auto sgd = readRecipe("", {"optimizer.kind=sgd"});
  EXPECT_EQ(numbersOf(sgd), (Numbers{{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}}));
}

TEST_F(RecipeFile, EveryOptimizerHasItsNumbers) {
  auto muon = readRecipe("", {"optimizer.kind=muon"});
  ASSERT_TRUE(muon) << muon.message();
  EXPECT_TRUE(muon->training.optimizer().nesterov());
  EXPECT_EQ(numbersOf(muon).at("momentum"), 0.95);
  EXPECT_EQ(numbersOf(muon).at("weight_decay"), 0.1);
  EXPECT_EQ(numbersOf(readRecipe("", {"optimizer.kind=rmsprop"})).at("lr"), 1e-2);
  EXPECT_EQ(numbersOf(readRecipe("", {"optimizer.kind=adagrad"})).at("eps"), 1e-10);
  EXPECT_EQ(numbersOf(readRecipe("", {"optimizer.kind=lion"})).at("beta2"), 0.99);
  EXPECT_EQ(numbersOf(readRecipe("", {"optimizer.kind=lamb"})).at("eps"), 1e-6);
  auto given = read("[optimizer]\nkind = \"muon\"\nns_coefficients = [2, -1.5, 0.5]\nns_steps = 3\nnesterov = false\n"
                    "adjust_lr_fn = \"match_rms_adamw\"\n");
  ASSERT_TRUE(given) << given.message();
  EXPECT_EQ(numbersOf(given).at("ns_b"), -1.5);
  EXPECT_FALSE(given->training.optimizer().nesterov());
  EXPECT_EQ(given->optimizer.adjustLr, "match_rms_adamw");
  auto centered = read("[optimizer]\nkind = \"rmsprop\"\ncentered = true\nalpha = 0.9\n");
  ASSERT_TRUE(centered) << centered.message();
  EXPECT_TRUE(centered->optimizer.flags.count("centered"));
  EXPECT_EQ(problem("[optimizer]\nkind = \"sgd\"\ncentered = true\n"),
            "recipe.toml:3:1: optimizer.centered does not apply to sgd: remove it or choose another optimizer.kind");
  EXPECT_THAT(problem("[optimizer]\nkind = \"adagrad\"\n[schedule]\nkind = \"one_cycle\"\n"),
              HasSubstr("cycle_momentum = false"));
  EXPECT_EQ(numbersOf(read("[optimizer]\nkind = \"sgd\"\n[schedule]\nkind = \"one_cycle\"\n")).at("momentum"), 0.95)
      << "PyTorch's one_cycle turns momentum on";
}

TEST_F(RecipeFile, LayerDecayAndClipping) {
  auto recipe = read("[optimizer]\nlayer_decay = { pattern = \"blocks.{}.\", rate = 0.75, before = \"on\" }\n"
                     "[train]\nclip_value = 0.5\n[model]\ntie = true\nmerged = \"keep\"\n");
  ASSERT_TRUE(recipe) << recipe.message();
  ASSERT_TRUE(recipe->optimizer.layerDecay);
  EXPECT_EQ(recipe->optimizer.layerDecay->rate, 0.75);
  EXPECT_TRUE(recipe->optimizer.layerDecay->beforeFirst);
  EXPECT_EQ(recipe->train.clipValue, 0.5);
  EXPECT_TRUE(recipe->model.tie);
  EXPECT_EQ(recipe->model.merged, "keep");
  EXPECT_THAT(problem("[optimizer]\nlayer_decay = { rate = 0.9 }\n"), HasSubstr("a pattern with one {}"));
  EXPECT_THAT(problem("[optimizer]\nlayer_decay = { pattern = \"a.{}.\", rate = 0.9, after = 1 }\n"),
              HasSubstr("layer_decay has pattern, rate and before"));
}

TEST_F(RecipeFile, SettingsWinAndAreTomlOrBareWords) {
  auto recipe = read("[optimizer]\nlr = 1\n", {"optimizer.lr=0.5", "optimizer.kind=sgd", "model.frozen=[\"a\", \"b.*\"]",
                                                "data.map.x = col", "optimizer.decay_exempt=*.bias"});
  ASSERT_TRUE(recipe) << recipe.message();
  EXPECT_EQ(numbersOf(recipe).at("lr"), 0.5);
  EXPECT_EQ(recipe->training.optimizer().kind(), "sgd");
  EXPECT_EQ(recipe->model.frozen, (std::vector<std::string>{"a", "b.*"}));
  EXPECT_EQ(recipe->optimizer.decayExempt, std::vector<std::string>{"*.bias"});
  EXPECT_EQ(recipe->at("optimizer.lr"), "--set: ");
  EXPECT_THAT(recipe->text, HasSubstr("0.5"));
  // Reading the text again gives the same recipe.
  auto again = read(recipe->text);
  ASSERT_TRUE(again) << again.message();
  EXPECT_EQ(numbersOf(again), numbersOf(recipe));
  EXPECT_EQ(again->data.map().at("x"), "col");
}

TEST_F(RecipeFile, AnotherKindBySettingDropsTheFilesNumbersOfTheOldOne) {
  auto recipe = read("[optimizer]\nkind = \"adamw\"\nbetas = [0.9, 0.95]\n", {"optimizer.kind=sgd"});
  ASSERT_TRUE(recipe) << recipe.message();
  EXPECT_EQ(numbersOf(recipe).count("beta1"), 0u);
}

TEST_F(RecipeFile, UnknownKeysNameTheNearest) {
  EXPECT_EQ(problem("[optimizer]\nweight_decya = 0.1\n"),
            "recipe.toml:2:1: unknown key optimizer.weight_decya; the nearest known one is optimizer.weight_decay");
  EXPECT_EQ(
      problem("a = 1\n[optimizer]\n"),
      "recipe.toml:1:1: unknown key a; a recipe has the tables adapter, checkpoint, compiler, data, evaluate, loss, "
      "model, offload, optimizer, parallel, phase, predict, schedule, stage, train");
  EXPECT_EQ(problem("[train]\n  lr = 1\n"), "recipe.toml:2:3: unknown key train.lr; the nearest known one is optimizer.lr");
  EXPECT_THAT(problem("[optimiser]\nlr = 1\n"), HasSubstr("recipe.toml:1:2: unknown key optimiser; the nearest known one is [optimizer]"));
  EXPECT_EQ(problem("", {"train.sed=1"}), "--set: unknown key train.sed; the nearest known one is train.seed");
  EXPECT_EQ(problem("[optimizer]\nWeightDecay = 0.1\n"),
            "recipe.toml:2:1: unknown key optimizer.WeightDecay; the nearest known one is optimizer.weight_decay");
}

TEST_F(RecipeFile, UnknownKeysThatAreNearNoneNameWhatIsThere) {
  EXPECT_EQ(problem("[train]\nflavour = 1\n"),
            "recipe.toml:2:1: unknown key train.flavour; [train] takes accumulate, virtual_ranks, "
            "clip_norm, clip_value, outputs, seed, precision, loss_scale.kind, "
            "loss_scale.init_scale, loss_scale.growth_factor, "
            "loss_scale.backoff_factor, loss_scale.growth_interval, ema.decay, "
            "ema.every, ema.warmup, ema.on");
  EXPECT_THAT(problem("[optimizer]\nkind = \"adamW\"\n"), HasSubstr("the nearest is \"adamw\""));
  EXPECT_THAT(problem("[optimizer]\nkind = \"shampoo\"\n"),
              AllOf(HasSubstr("\"shampoo\" is unknown; known: sgd, "), Not(HasSubstr("nearest"))));
}

TEST_F(RecipeFile, UnknownKeysOfOtherTrainersNameOurs) {
  EXPECT_EQ(problem("[optimizer]\nlearning_rate = 0.1\n"),
            "recipe.toml:2:1: unknown key optimizer.learning_rate; the nearest known one is optimizer.lr");
  EXPECT_EQ(problem("[train]\nmax_grad_norm = 1\n"),
            "recipe.toml:2:1: unknown key train.max_grad_norm; the nearest known one is train.clip_norm");
  EXPECT_EQ(problem("gradient_accumulation_steps = 4\n"),
            "recipe.toml:1:1: unknown key gradient_accumulation_steps; the nearest known one is train.accumulate");
  EXPECT_EQ(problem("[optimizer]\ntype = \"sgd\"\n"),
            "recipe.toml:2:1: unknown key optimizer.type; the nearest known one is optimizer.kind");
}

TEST_F(RecipeFile, NothingBeginsInsideAValue) {
  // When the TOML library looks for the end of such a value, it fails an assertion at characters like U+FDF7.
  EXPECT_THAT(problem("[optimizer]\nlr = 0.0zen=['as\xef\xb7\xb7']\n"), HasSubstr("recipe.toml:2:12: '=' inside a value"));
  EXPECT_THAT(problem("[optimizer]\nlr = 1 '\xef\xb7\xb7'\n"), HasSubstr("recipe.toml:2:8: a string begins inside a value"));
  EXPECT_THAT(problem("[optimizer]\nlr = 2000-01-01 '\xef\xb7\xb7'\n"), HasSubstr("a string begins inside a value"));
  EXPECT_THAT(problem("[optimizer]\nlr = 1[2]\n"), HasSubstr("recipe.toml:2:7: a bracket begins inside a value"));
  EXPECT_THAT(problem("[model]\nfrozen = ['a'\n 'b']\n"), HasSubstr("recipe.toml:3:2: a string begins inside a value"));
  EXPECT_TRUE(read("[model]\nfrozen = ['a', \"b\", # c = d ['\n '''c = \xef\xb7\xb7''']\ndims = { batch = 4, \"t.x\" = 5 }\n"));
}

TEST_F(RecipeFile, ValuesAreThereAndBracketsMatch) {
  // The TOML library would fail an assertion in both cases.
  EXPECT_THAT(problem("[model]\ndims = { a=[} }\n"), HasSubstr("recipe.toml:2:13: '}' where a '[' is open"));
  EXPECT_THAT(problem("[model]\nfrozen = [,]\n"), HasSubstr("recipe.toml:2:11: a value is missing before ','"));
  EXPECT_THAT(problem("[model]\ndims = { a = }\n"), HasSubstr("a value is missing before '}'"));
  EXPECT_THAT(problem("[model]\nfrozen = ]\n"), HasSubstr("a value is missing before ']'"));
  EXPECT_TRUE(read("[model]\nfrozen = [\n 'a', # one\n]\ndims = { }\ntrainable = []\n"));
}

TEST_F(RecipeFile, AsciiFollowsABackslash) {
  EXPECT_THAT(problem("[loss]\nof = \"\"\"a\\\xef\xb8\xbf\"\"\"\n"), HasSubstr("recipe.toml:2:11: a backslash before a character"));
  EXPECT_THAT(problem("[loss]\nof = \"\"\"a\\\n  \xef\xb8\xbf\"\"\"\n"), HasSubstr("recipe.toml:2:11: a backslash before a character"));
  EXPECT_EQ(read("[model]\nfrozen = \"\"\"a\\\n  b \xef\xb8\xbf\"\"\"\n")->model.frozen.at(0), "ab \xef\xb8\xbf");
}

TEST_F(RecipeFile, TypesAndRangesAreChecked) {
  EXPECT_EQ(problem("[optimizer]\nlr = \"fast\"\n"),
            "recipe.toml:2:1: optimizer.lr: expected a number, found a string");
  EXPECT_EQ(problem("[optimizer]\nlr = -1\n"), "recipe.toml:2:1: optimizer.lr: -1 is out of range: a number at least 0");
  EXPECT_THAT(problem("[optimizer]\nlr = nan\n"), HasSubstr("out of range"));
  EXPECT_THAT(problem("[optimizer]\nbetas = [0.9]\n"), HasSubstr("expected two numbers, found 1"));
  EXPECT_THAT(problem("[optimizer]\nbetas = [0.9, 1.0]\n"), HasSubstr("1 is out of range"));
  EXPECT_EQ(problem("[train]\naccumulate = 0\n"),
            "recipe.toml:2:1: train.accumulate: 0 is out of range: an integer from 1 to 2147483648");
  EXPECT_EQ(problem("[train]\naccumulate = 1.5\n"),
            "recipe.toml:2:1: train.accumulate: expected an integer, found a number with a fraction");
  EXPECT_EQ(problem("train = 3\n"), "recipe.toml:1:1: train: expected a table, found an integer");
  EXPECT_THAT(problem("[model]\ndims = { batch = 0 }\n"), AllOf(HasSubstr("model.dims"), HasSubstr("batch")));
  EXPECT_THAT(problem("[loss]\nkind = \"cross_entrpy\"\ntarget = \"y\"\n"), HasSubstr("the nearest is \"cross_entropy\""));
  EXPECT_THAT(problem("[[optimizer.group]]\nlr_scale = 2\n"), AllOf(HasSubstr("recipe.toml:1:1"), HasSubstr("no `match`")));
  EXPECT_THAT(problem("[[optimizer.group]]\nmatch = \"a\"\nlr = 2\n"), HasSubstr("a group has match, lr_scale"));
}

TEST_F(RecipeFile, ShapesAreDimsWithAListOrBuckets) {
  auto recipe = read("[model]\ndims = { batch = 8, s = [4, 16] }\n[evaluate]\ndims = { batch = 2 }\n");
  ASSERT_TRUE(recipe.ok()) << recipe.message();
  EXPECT_EQ(recipe->model.dims, (DimValues{{"batch", 8}}));
  EXPECT_EQ(recipe->model.buckets, (std::vector<DimValues>{{{"s", 4}}, {{"s", 16}}}));
  EXPECT_EQ(recipe->evaluateDims, (DimValues{{"batch", 2}}));
  recipe = read("[model]\nbuckets = [{ batch = 8, s = 4 }, { batch = 2, s = 16 }]\n[predict]\ndims = { batch = 1 }\n");
  ASSERT_TRUE(recipe.ok()) << recipe.message();
  EXPECT_EQ(recipe->model.buckets, (std::vector<DimValues>{{{"batch", 8}, {"s", 4}}, {{"batch", 2}, {"s", 16}}}));
  EXPECT_EQ(recipe->predictDims, (DimValues{{"batch", 1}}));
  EXPECT_THAT(problem("[model]\ndims = { a = [1, 2], b = [3, 4] }\n"),
              AllOf(HasSubstr("recipe.toml:2:1: model.dims: b: a list, beside that of a"), HasSubstr("model.buckets")));
  EXPECT_THAT(problem("[model]\nbuckets = [{ s = 4 }]\ndims = { s = [8] }\n"),
              HasSubstr("model.dims: s: a list, beside model.buckets"));
  EXPECT_THAT(problem("[model]\ndims = { s = [] }\n"), HasSubstr("s: the list is empty"));
  EXPECT_THAT(problem("[model]\ndims = { s = [4, 0] }\n"), HasSubstr("model.dims: s: "));
  EXPECT_THAT(problem("[model]\nbuckets = []\n"), HasSubstr("the list is empty"));
  EXPECT_THAT(problem("[model]\nbuckets = [{ s = 4 }, { s = 0 }]\n"), HasSubstr("bucket 2"));
}

TEST_F(RecipeFile, KeysThatDoNotGoTogether) {
  EXPECT_EQ(problem("[optimizer]\nkind = \"adam\"\nmomentum = 0.9\n"),
            "recipe.toml:3:1: optimizer.momentum does not apply to adam: remove it or choose another optimizer.kind");
  EXPECT_THAT(problem("[optimizer]\nkind = \"sgd\"\nnesterov = true\n"), HasSubstr("momentum above 0"));
  EXPECT_THAT(problem("[loss]\noutput = \"loss\"\nkind = \"mse\"\ntarget = \"y\"\n"), HasSubstr("exclude each other"));
  EXPECT_THAT(problem("[loss]\nkind = \"mse\"\n"), HasSubstr("needs loss.target"));
  EXPECT_THAT(problem("[loss]\nkind = \"mse\"\ntarget = \"y\"\nshift = true\n"),
              HasSubstr("recipe.toml:4:1: loss.shift does not apply to mse"));
  EXPECT_THAT(problem("[schedule]\nkind = \"step\"\n"), HasSubstr("needs schedule.step_size"));
}

TEST_F(RecipeFile, SeveralLossesAreRecipesOfTheirOwn) {
  auto recipe = read("[[loss]]\nkind = \"mse\"\ntarget = \"y\"\n[[loss]]\noutput = \"aux\"\nscale = 0.25\n"
                     "[[loss]]\nname = \"tokens\"\nkind = \"nll\"\ntarget = \"t\"\nignore_index = 0\n");
  ASSERT_TRUE(recipe) << recipe.message();
  ASSERT_EQ(recipe->losses.size(), 3u);
  EXPECT_EQ(recipe->loss.kind, "mse") << "metrics are the first one's";
  EXPECT_EQ(recipe->losses[0].lossName, "mse");
  EXPECT_EQ(recipe->losses[0].lossScale, 1);
  EXPECT_EQ(recipe->losses[1].lossName, "aux");
  EXPECT_EQ(recipe->losses[1].lossScale, 0.25);
  EXPECT_EQ(recipe->losses[2].lossName, "tokens");
  EXPECT_EQ(recipe->losses[2].loss.ignoreIndex, 0);
  EXPECT_EQ(problem("[[loss]]\nkind = \"mse\"\ntarget = \"y\"\nshift = true\n"),
            "recipe.toml:4:1: loss.shift does not apply to mse; it belongs to cross_entropy, nll");
  EXPECT_EQ(problem("loss = []\n"), "recipe.toml:1:1: loss: expected tables, each begun by [[loss]]");
  EXPECT_THAT(problem("[loss]\noutput = \"a\"\nscale = 2\n"),
              HasSubstr("recipe.toml:3:1: loss.scale belongs to one of"));
  EXPECT_THAT(problem("[[phase]]\nname = \"p\"\nparameters = \"*\"\nloss = { output = \"a\", scale = 2 }\n"),
              HasSubstr("loss.scale belongs to one of several losses"));
  EXPECT_THAT(problem("[[loss]]\noutput = \"a\"\n", {"loss.output=b"}), HasSubstr("replace all of them with --set"));
  auto replaced = read("[[loss]]\noutput = \"a\"\n", {"loss=[{output=\"b\"}, {output=\"c\", scale=2}]"});
  ASSERT_TRUE(replaced) << replaced.message();
  EXPECT_EQ(replaced->losses.at(1).lossScale, 2);
}

TEST_F(RecipeFile, StagesAreRecipesOfTheirOwn) {
  auto recipe = read("[optimizer]\nlr = 0.1\n[[stage]]\nuntil = 5\ntrainable = \"head.*\"\n"
                     "[[stage]]\ntrainable = [\"*\"]\nlr_scale = 0.5\n");
  ASSERT_TRUE(recipe) << recipe.message();
  std::vector<Recipe> stages = stageRecipes(*recipe);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(recipe->stages[0].until, 5u);
  EXPECT_EQ(recipe->stages[1].lrScale, 0.5);
  EXPECT_EQ(stages[1].phase, "stage2");
  EXPECT_EQ(stages[1].phaseParameters, std::vector<std::string>{"*"});
  EXPECT_EQ(stages[1].at("parameters"), path() + ":6:1: ");
  EXPECT_EQ(stages[1].training.optimizer().numbers().at("lr"), 0.1);
  EXPECT_EQ(problem("[[stage]]\nuntil = 0\ntrainable = \"*\"\n"),
            "recipe.toml:1:1: stage 1: until: 0 is out of range: an integer from 1 to 9007199254740992");
}

TEST_F(RecipeFile, EachLossTakesItsKeysAlone) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> table = {
      {"margin = 0.5", {"cosine_embedding", "triplet", "margin_ranking", "hinge", "hinge_embedding"}},
      {"eps = 1e-3", {"triplet", "poisson_nll", "gaussian_nll"}},
      {"p = 1", {"triplet"}},
      {"swap = true", {"triplet"}},
      {"full = true", {"poisson_nll", "gaussian_nll"}},
      {"log_input = false", {"poisson_nll"}},
      {"alpha = -1", {"focal"}},
      {"gamma = 0", {"focal"}},
      {"smooth = 0", {"dice"}},
      {"input = \"logits\"", {"ctc", "dice"}},
      {"time_axis = -2", {"ctc"}},
      {"blank = 3", {"ctc"}},
      {"zero_infinity = true", {"ctc"}},
      {"input_lengths = \"n\"", {"ctc"}},
      {"target_lengths = \"n\"", {"ctc"}},
      {"max_target_length = 9", {"ctc"}},
      {"ignore_index = 0", {"cross_entropy", "nll", "ctc"}},
      {"class_axis = -1", {"cross_entropy", "nll", "ctc", "dice"}},
  };
  for (const auto &[setting, kinds] : table)
    for (const std::string &kind : lossKindNames()) {
      const std::string target = kind == "triplet" ? "" : "target = \"y\"\n";
      auto recipe = read("[loss]\nkind = \"" + kind + "\"\n" + setting + "\n" + target);
      if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end())
        EXPECT_TRUE(recipe) << kind << ": " << recipe.message();
      else
        EXPECT_THAT(problem("[loss]\nkind = \"" + kind + "\"\n" + setting + "\n" + target),
                    AllOf(HasSubstr("recipe.toml:3:1: loss."), HasSubstr("does not apply to " + kind)));
    }
  for (const char *wrong : {"p = 0.5", "alpha = 2", "gamma = -1", "eps = 0", "blank = -1", "max_target_length = 0"})
    EXPECT_THAT(problem(std::string("[loss]\n") + wrong + "\n"), HasSubstr("is out of range")) << wrong;
  EXPECT_THAT(problem("[loss]\nkind = \"dice\"\ntarget = \"y\"\ninput = \"log_probs\"\n"), HasSubstr("belongs to ctc"));
  EXPECT_THAT(problem("[loss]\nkind = \"triplet\"\ntarget = \"y\"\n"), HasSubstr("loss.target does not apply to triplet"));
  auto lists = read("[loss]\nkind = \"triplet\"\nof = [\"a\", \"b\", \"c\"]\n");
  ASSERT_TRUE(lists) << lists.message();
  EXPECT_EQ(lists->loss.of, (std::vector<std::string>{"a", "b", "c"}));
}

/// A value has one home: fields of the plan, or a member of Recipe.
TEST(RecipeKeys, EveryKeyIsStoredOnce) {
  std::vector<std::string> compiled, stored;
  for (const recipe::Key &key : recipe::allKeys())
    if (key.places.empty())
      compiled.push_back(key.name);
  for (const auto &[name, store] : recipe::allStores())
    stored.push_back(name);
  EXPECT_THAT(stored, testing::UnorderedElementsAreArray(compiled));
}

/// A TOML value that the key takes.
static std::string valueOf(const recipe::Key &key) {
  using Type = recipe::Values::Type;
  const recipe::Values &values = key.values;
  switch (values.type) {
  case Type::Flag:
    return key.preset == "true" ? "false" : "true";
  case Type::Integer:
    return std::to_string(std::clamp<int64_t>(7, values.least, values.most));
  case Type::Number:
    return values.range.holds(0.625) ? "0.625" : "1.5";
  case Type::Text:
    return "\"text\"";
  case Type::Choice:
    return "\"" + values.words.back() + "\"";
  case Type::Texts:
    return "[\"a\", \"b\"]";
  case Type::Numbers:
    return values.count == 3 ? "[0.25, 0.5, 0.75]" : "[0.25, 0.5]";
  case Type::Integers:
    return "[2, 5]";
  case Type::TextTable:
    return "{ x = \"column\" }";
  case Type::ColumnRules:
    return key.name == "data.missing" || key.name == "data.pad" ? "{ x = 0.5 }" : "{ x = [\"a\", \"b\"] }";
  case Type::Transforms:
    return "[{ kind = \"horizontal_flip\" }]";
  default:
    return "";
  }
}

/// What a recipe sets in a plan is there, in the recipe's words, and stands in no other key's place.
TEST(RecipeKeys, EveryPlaceHoldsItsKeyAlone) {
  std::map<std::string, std::string> all;
  Recipe recipe;
  size_t tried = 0;
  for (const recipe::Key &key : recipe::allKeys()) {
    if (key.places.empty())
      continue;
    const std::string value = valueOf(key);
    ASSERT_NE(value, "") << key.name << ": give this test a value of its type";
    Status status = applySettings(recipe, {key.name + "=" + value});
    ASSERT_TRUE(status.ok()) << key.name << " = " << value << ": " << status.message();
    EXPECT_TRUE(plan::hasSetting(key, recipe.training, recipe.data)) << key.name;
    const auto texts = plan::settingTexts(key, recipe.training, recipe.data);
    EXPECT_FALSE(texts.empty()) << key.name;
    if (key.values.type == recipe::Values::Type::Choice) {
      EXPECT_EQ(texts.at(key.name), value);
    }
    for (const auto &[name, text] : texts) {
      EXPECT_TRUE(all.emplace(name, text).second) << key.name << " is stored where another key is: " << name;
      EXPECT_FALSE(text.starts_with('[') || text.starts_with('{')) << name << ": manifests hold single values";
    }
    ++tried;
  }
  EXPECT_GT(tried, 80u);
  // Nothing that was stored later has changed an earlier value.
  for (const recipe::Key &key : recipe::allKeys())
    for (const auto &[name, text] : plan::settingTexts(key, recipe.training, recipe.data))
      EXPECT_EQ(all.at(name), text) << name;
}

/// The defaults in the table are those of Recipe. ScalarsTest.cpp tests the runtime's defaults.
TEST(RecipeKeys, PresetsAreTheDefaults) {
  size_t tried = 0;
  for (const recipe::Key &key : recipe::allKeys()) {
    const bool byName = !key.places.empty() && key.places.front().starts_with("settings."); // absent: the record's default
    bool ofRuntime =
        key.name.starts_with("schedule.") || key.name.starts_with("checkpoint.") || key.name.starts_with("data.");
    if (byName || ofRuntime || key.preset.empty() || !parseToml("v = " + key.preset).ok())
      continue;
    Recipe fresh;
    Status status = applySettings(fresh, {key.name + "=" + key.preset});
    EXPECT_TRUE(status.ok()) << key.name << ": " << status.message();
    EXPECT_TRUE(fresh == Recipe()) << key.name << " = " << key.preset << " is not the default";
    ++tried;
  }
  EXPECT_GT(tried, 40u);
}

/// docs/guide/recipe.md holds the table of keys. To write it anew: TCC_WRITE_DOCS=1 build/bin/RecipeTest
/// --gtest_filter='*Page*'
TEST(RecipeKeys, ThePageHoldsTheTable) {
  const std::string page = RECIPE_PAGE, begin = "<!-- keys: from support/recipe/Keys.cpp -->\n", end = "<!-- end -->\n";
  std::ifstream file(page);
  std::string text(std::istreambuf_iterator<char>(file), {});
  size_t from = text.find(begin), to = text.find(end);
  ASSERT_TRUE(from != text.npos && to != text.npos && from < to) << page << " has no place for the table of keys";
  from += begin.size();
  if (std::getenv("TCC_WRITE_DOCS"))
    std::ofstream(page) << text.substr(0, from) << recipe::keysTable() << text.substr(to);
  else
    EXPECT_EQ(text.substr(from, to - from), recipe::keysTable()) << "write it anew with TCC_WRITE_DOCS=1";
}

TEST_F(RecipeFile, SyntaxAndFilesAreLocated) {
  EXPECT_THAT(problem("[optimizer\nlr = 1\n"), HasSubstr("recipe.toml:1:"));
  EXPECT_THAT(readRecipe(folder + "/none.toml", {}).message(), AllOf(HasSubstr("none.toml"), HasSubstr("No such file")));
  EXPECT_THAT(readRecipe(folder, {}).message(), HasSubstr("not a regular file but a folder"));
  auto usage = readRecipe("", {"optimizer.lr"});
  EXPECT_THAT(usage.message(), HasSubstr("expected KEY=VALUE"));
  EXPECT_EQ(usage.status().code(), StatusCode::Usage);
  EXPECT_THAT(test::shown(readRecipe("", {"optimizer.betas=[0.9,"})), HasSubstr("--set optimizer.betas=[0.9,: "));
}

TEST(Globs, MatchAsTheShellDoes) {
  EXPECT_TRUE(matchesGlob("h.*.weight", "h.0.attn.weight"));
  EXPECT_TRUE(matchesGlob("h.[01].b?as", "h.1.bias"));
  EXPECT_FALSE(matchesGlob("h.[01].bias", "h.2.bias"));
  EXPECT_FALSE(matchesGlob("H.*", "h.0"));
  EXPECT_TRUE(matchesGlob("*", "/0/Gemm.weight"));
}

/// Texts on which the TOML library fails an assertion or reads past its buffer.
TEST_F(RecipeFile, TextThatIsNoTomlIsRefusedBeforeItIsParsed) {
  EXPECT_THAT(problem(std::string("[\0]\nk", 5)), AllOf(HasSubstr("recipe.toml:1:2: "), HasSubstr("\\u0000")));
  EXPECT_THAT(problem("[loss]\nsh\xc8\x96ift = true\n"), AllOf(HasSubstr("recipe.toml:2:3: "), HasSubstr("is outside a string")));
  EXPECT_THAT(problem("[loss]\nof = \"\xff\"\n"), AllOf(HasSubstr("recipe.toml:2:7: "), HasSubstr("is not UTF-8")));
  EXPECT_THAT(problem("[loss]\nof = \"\x1b[31m\"\n"), HasSubstr("control character, \\u001b"));
  EXPECT_THAT(problem("\"\"\"\n\xc3\xbc\"\"\" = 1"), HasSubstr("recipe.toml:1:"));
  EXPECT_THAT(problem("", {"optimizer.l\xc3\xbc=1"}), HasSubstr("--set optimizer.l\xc3\xbc"));
}

TEST_F(RecipeFile, StringsAndCommentsHoldAnyCharacter) {
  EXPECT_EQ(problem("# \xc3\xbc\n[loss]\nof = \"\xc3\xbc \\\" # \" # \xc3\xbc\nkind = 'mse'\ntarget = \"\"\"\xe2\x82\xac\"\"\"\r\n"), "accepted");
}

TEST_F(RecipeFile, DepthAndSizeHaveLimits) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i)
    key += ".a";
  EXPECT_THAT(problem(key + " = 1"), HasSubstr("more than 16 parts"));
  EXPECT_THAT(problem(std::string(2 << 20, '#')), HasSubstr("1.0 MiB"));
  EXPECT_NE(problem("a = " + std::string(100'000, '[')), "accepted");
}

} // namespace
