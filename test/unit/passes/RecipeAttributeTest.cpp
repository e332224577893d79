//===- RecipeAttributeTest.cpp - the recipe through the text of a module ----===//
#include "passes/RecipeAttribute.h"

#include "test/unit/passes/Program.h"

#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

namespace tcc::test {
namespace {

/// What the attribute carries: all but the importer's part and the settings of the compiler.
Recipe carried(const Recipe &recipe) {
  Recipe part;
  part.loss = recipe.loss;
  part.optimizer = recipe.optimizer;
  part.train = recipe.train;
  part.adapter = recipe.adapter;
  part.parallel = recipe.parallel;
  part.training = recipe.training;
  part.overlap = recipe.overlap;
  for (const Recipe &loss : recipe.losses)
    part.losses.push_back(carried(loss));
  part.lossName = recipe.lossName;
  part.lossScale = recipe.lossScale;
  for (const Recipe &phase : recipe.phases)
    part.phases.push_back(carried(phase));
  part.stages = recipe.stages;
  part.stage = recipe.stage;
  part.phase = recipe.phase;
  part.phaseParameters = recipe.phaseParameters;
  part.phaseEvery = recipe.phaseEvery;
  part.where = recipe.where;
  return part;
}

/// Prints a module with the recipe, parses the text and compares what it carries.
void expectCarried(const Recipe &recipe) {
  Program written("module {}");
  train::setRecipe(*written.module, recipe);
  std::string text;
  llvm::raw_string_ostream stream(text);
  written.module->print(stream);
  Program program(text);
  mlir::FailureOr<Recipe> read = train::recipeOf(*program.module);
  ASSERT_TRUE(succeeded(read)) << text;
  EXPECT_TRUE(*read == carried(recipe)) << text;
}

TEST(RecipeAttribute, CarriesEverySetting) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"loss.kind=cross_entropy", "loss.of=logits", "loss.target=labels", "loss.class_axis=-1", "loss.shift=true",
       "loss.ignore_index=3", "loss.label_smoothing=0.1", "loss.weight=[0.1, 1e-300, 3]", "loss.sample_weight=w"},
      {"loss.kind=ctc", "loss.target=t", "loss.input=logits", "loss.time_axis=1", "loss.blank=2",
       "loss.zero_infinity=true", "loss.input_lengths=il", "loss.target_lengths=tl", "loss.max_target_length=7"},
      {"loss.kind=triplet", "loss.of=['a', 'b', 'c']", "loss.margin=0.3", "loss.p=3", "loss.swap=true", "loss.eps=0.1"},
      {"loss=[{kind='mse', of='y', target='t', scale=0.3}, {kind='l1', of='z', target='u', name='second'}]"},
      {"optimizer.kind=adam", "optimizer.betas=[0.1, 0.7]", "optimizer.amsgrad=true", "optimizer.moments=8bit",
       "optimizer.moments_exempt=['e*']",
       "optimizer.decay_exempt=['@bias', 'a \"b\" \\\\ c']",
       "optimizer.group=[{match=['x*'], lr_scale=0.1, weight_decay=0.2}, {match=['y']}]",
       "optimizer.layer_decay={pattern='l.{}.', rate=0.9, before='on'}", "train.clip_norm=0.1", "train.clip_value=0.2",
       "train.accumulate=4", "train.seed=7", "train.ema.decay=0.99", "compiler.overlap=false"},
      {"adapter.targets=['q', 'v']", "adapter.rank=3", "adapter.alpha=5", "adapter.rank_stabilized=true",
       "adapter.dropout=0.1", "adapter.train=['n']", "adapter.base=nf4", "adapter.block=128", "adapter.nested=true",
       "train.precision=f16",
       "train.loss_scale.kind=fixed", "train.loss_scale.init_scale=8"},
      {"parallel.mode=full", "parallel.ranks=4", "parallel.prefetch=2", "parallel.bucket_bytes=5",
       "parallel.reduce_dtype=bf16", "parallel.accumulators=shards"},
      {"parallel.mode=ddp", "train.virtual_ranks=8", "parallel.least_ranks=2"},
      {"phase=[{name='d', loss='dl', parameters=['d.*'], optimizer={kind='sgd', lr=0.1}, clip_norm=0.5}, {name='g', "
       "loss={kind='mse', of='y', target='t'}, parameters=['g.*'], every=2}]"},
      {"stage=[{until=3, trainable=['a'], lr_scale=0.1}, {trainable=['*']}]"},
  };
  for (const std::vector<std::string> &settings : cases) {
    Expected<Recipe> recipe = readRecipe("", settings);
    ASSERT_TRUE(recipe) << recipe.message();
    expectCarried(*recipe);
    for (const Recipe &stage : stageRecipes(*recipe))
      expectCarried(stage);
  }
}

TEST(RecipeAttribute, CarriesTheRecipeOfAFileWithItsLines) {
  for (const char *name : {"mlp", "hf-llama-tiny", "gan-detached"}) {
    Expected<Recipe> recipe = readRecipe(std::string(ZOO "/") + name + "/recipe.toml", {});
    ASSERT_TRUE(recipe) << recipe.message();
    EXPECT_FALSE(recipe->where.empty());
    expectCarried(*recipe);
  }
}

TEST(RecipeAttribute, IsTheDefaultsWhereAModuleHasNone) {
  Program program("module {}");
  mlir::FailureOr<Recipe> read = train::recipeOf(*program.module);
  ASSERT_TRUE(succeeded(read));
  EXPECT_TRUE(*read == Recipe());
}

} // namespace
} // namespace tcc::test
