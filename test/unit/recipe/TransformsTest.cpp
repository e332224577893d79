//===- TransformsTest.cpp - the tables [[data.transform]] of a recipe ------===//
#include "compiler/recipe/Recipe.h"
#include "support/recipe/Transforms.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tcc;
using testing::AllOf;
using testing::HasSubstr;

namespace {
class TransformTables : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "transforms-XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  Expected<Recipe> read(const std::string &text, const std::vector<std::string> &settings = {}) {
    std::ofstream(folder + "/r.toml") << text;
    return readRecipe(folder + "/r.toml", settings);
  }
  /// What a plan keeps of the recipe, read again.
  std::vector<recipe::TransformSpec> kept(const Expected<Recipe> &recipe) {
    EXPECT_TRUE(recipe) << recipe.message();
    auto specs = recipe::parseTransforms(recipe->data.settings().at("transform"));
    EXPECT_TRUE(specs) << specs.message();
    return specs.take();
  }
  std::string folder;
};

TEST_F(TransformTables, KeepTheirOrderAndGetDefaults) {
  const auto specs = kept(read(R"([[data.transform]]
kind = "random_crop"
size = 32
padding = [4, 2]
[[data.transform]]
kind = "normalize"
column = "picture"
mean = [0.1, 0.2, 0.3]
std = 0.25
[[data.transform]]
kind = "horizontal_flip"
on = "both"
)"));
  ASSERT_EQ(specs.size(), 3u);
  EXPECT_EQ(specs[0].kind->name, "random_crop");
  EXPECT_EQ(specs[0].column, "image");
  EXPECT_EQ(specs[0].integers("padding"), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(specs[0].word("padding_mode"), "constant");
  EXPECT_TRUE(specs[0].inTraining && !specs[0].inEvaluation) << "random kinds train";
  EXPECT_EQ(specs[1].kind->name, "normalise");
  EXPECT_EQ(specs[1].column, "picture");
  EXPECT_EQ(specs[1].numbers("mean"), (std::vector<double>{0.1, 0.2, 0.3}));
  EXPECT_TRUE(specs[1].inTraining && specs[1].inEvaluation);
  EXPECT_TRUE(specs[2].inTraining && specs[2].inEvaluation);
  EXPECT_EQ(specs[2].real("p"), 0.5);
  EXPECT_EQ(specs[2].place(), "data.transform 3 (horizontal_flip)");
}

TEST_F(TransformTables, SettingsReplaceThem) {
  const auto specs = kept(read("[[data.transform]]\nkind = \"vertical_flip\"\n",
                               {"data.transform=[{ kind = \"rotation\", degrees = 10 }, { kind = \"grayscale\" }]"}));
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].kind->name, "rotation");
  EXPECT_TRUE(kept(read("[[data.transform]]\nkind = \"vertical_flip\"\n", {"data.transform=[]"})).empty());
}

TEST_F(TransformTables, MistakesAreLocated) {
  auto refuse = [&](const std::string &table, std::initializer_list<const char *> says) {
    const auto recipe = read("[train]\nseed = 1\n[[data.transform]]\nkind = \"vertical_flip\"\n\n[[data.transform]]\n" + table + "\n");
    ASSERT_FALSE(recipe) << table;
    EXPECT_THAT(recipe.message(), AllOf(HasSubstr("r.toml:6:1"), HasSubstr("data.transform 2"))) << table;
    for (const char *text : says)
      EXPECT_THAT(recipe.message(), HasSubstr(text)) << table;
  };
  refuse("kind = \"random_corp\"", {"\"random_corp\" is unknown", "the nearest is \"random_crop\""});
  refuse("size = 3", {"no `kind`"});
  refuse("kind = \"random_crop\"", {"needs size"});
  refuse("kind = \"random_crop\"\nsise = 4", {"no argument sise", "the nearest is size"});
  refuse("kind = \"random_crop\"\nsize = 0", {"(random_crop): size: 0 is out of range", "from 1 to"});
  refuse("kind = \"random_crop\"\nsize = [1, 2, 3]", {"a list of 2 of them, found 3"});
  refuse("kind = \"horizontal_flip\"\np = 1.5", {"p: 1.5 is out of range: a number from 0 to 1"});
  refuse("kind = \"random_resized_crop\"\nsize = 4\nscale = [0.9, 0.1]", {"scale: [0.9, 0.1] is empty"});
  refuse("kind = \"affine\"\ndegrees = [1, 2, 3, 4]", {"degrees: expected a number or [least, greatest]", "found 4"});
  refuse("kind = \"resize\"\nsize = 4\nmax_size = 4", {"max_size = 4 must be above size = 4"});
  refuse("kind = \"resize\"\nsize = 4\ninterpolation = \"cubic\"", {"interpolation", "\"bicubic\""});
  refuse("kind = \"rand_augment\"\nmagnitude = 31", {"magnitude = 31 is no bin"});
  refuse("kind = \"random_erasing\"\nvalue = \"noise\"", {"value", "\"random\""});
  refuse("kind = \"normalise\"\nmean = [1, 2]\nstd = [1, 2, 3]", {"mean has 2 numbers, std 3"});
  refuse("kind = \"color_jitter\"\nhue = -0.1", {"hue: -0.1 is out of range"});
  refuse("kind = \"mixup\"\non = \"both\"", {"batches are mixed in training alone"});
  EXPECT_THAT(read("[data]\ntransform = 3\n").message(), HasSubstr("r.toml:2:1: data.transform: expected tables"));
}

TEST(Transforms, EveryKindIsWhole) {
  for (const recipe::TransformKind &kind : recipe::transformKinds()) {
    EXPECT_FALSE(kind.meaning.empty()) << kind.name;
    for (const recipe::TransformArgument &argument : kind.arguments) {
      EXPECT_FALSE(argument.required && !argument.preset.empty()) << kind.name << "." << argument.name;
      if (argument.preset.empty())
        continue;
      const auto parsed = parseToml("v = " + argument.preset);
      ASSERT_TRUE(parsed) << kind.name << "." << argument.name;
      EXPECT_TRUE(recipe::check(argument.values, *parsed->get("v")).ok()) << kind.name << "." << argument.name;
    }
  }
}

/// docs/guide/transforms.md holds the tables. To write them anew: TCC_WRITE_DOCS=1 build/bin/RecipeTest
/// --gtest_filter='*Page*'
TEST(Transforms, ThePageHoldsTheTables) {
  const std::string page = TRANSFORMS_PAGE, begin = "<!-- transforms: from support/recipe/Transforms.cpp -->\n",
                    end = "<!-- end -->\n";
  std::ifstream file(page);
  std::string text(std::istreambuf_iterator<char>(file), {});
  size_t from = text.find(begin), to = text.find(end);
  ASSERT_TRUE(from != text.npos && to != text.npos && from < to) << page << " has no place for the tables";
  from += begin.size();
  if (std::getenv("TCC_WRITE_DOCS"))
    std::ofstream(page) << text.substr(0, from) << recipe::transformsTable() << text.substr(to);
  else
    EXPECT_EQ(text.substr(from, to - from), recipe::transformsTable()) << "write them anew with TCC_WRITE_DOCS=1";
}
} // namespace
