//===- RecipeLosses.cpp - [[loss]]: several losses in one recipe ----------===//
//
// Each loss is a recipe of its own: the whole recipe, with the table in place of [loss]. So every key means the same as
// in [loss], and messages name the table's lines.
//
//===----------------------------------------------------------------------===//
#include "compiler/recipe/RecipeStores.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc::recipe {
namespace {

constexpr size_t kMostLosses = 16;

Expected<Recipe> readLoss(const Recipe &recipe, const toml::table &whole, const toml::table &table,
                          const std::string &place) {
  toml::table tables = whole;
  tables.insert_or_assign("loss", table);
  Recipe term;
  term.file = recipe.file;
  term.where = recipe.where;
  term.where["loss"] = place;
  for (const auto &[key, value] : table) {
    const toml::source_position begin = key.source().begin;
    term.where["loss." + std::string(key.str())] =
        begin.line && place != "--set" ? fmt::format("{}:{}:{}", recipe.file, begin.line, begin.column) : place;
  }
  if (Status status = applyTable(term, tables); !status.ok())
    return status;
  if (term.loss.kind.empty() && term.loss.output.empty())
    return error("{}: one of several losses names neither a kind nor the output that it is", place);
  if (Status status = finishLoss(term); !status.ok())
    return status;
  const bool named = !term.lossName.empty();
  if (!named)
    term.lossName = term.loss.kind.empty() ? term.loss.output : term.loss.kind;
  if (!isName(term.lossName))
    return error("{}\"{}\" is no name of a loss: give `name` 1 to {} letters, digits, `_` and `-`",
                 named ? term.at("loss.name") : place + ": ", term.lossName, kLongestName);
  return term;
}

} // namespace

Status finishLosses(Recipe &recipe, const toml::table &merged) {
  const toml::array *array = merged["loss"].as_array();
  if (!array) {
    for (const char *key : {"loss.name", "loss.scale"})
      if (recipe.where.count(key))
        return error("{}{} belongs to one of several losses: begin each of them with [[loss]]", recipe.at(key), key);
    return Status();
  }
  if (array->empty() || !std::all_of(array->begin(), array->end(), [](const toml::node &n) { return n.is_table(); }))
    return error("{}loss: expected tables, each begun by [[loss]]", recipe.at("loss"));
  if (array->size() > kMostLosses)
    return error("{}loss: {} losses, at most {} are supported", recipe.at("loss"), array->size(), kMostLosses);
  toml::table whole = merged;
  whole.erase("phase");
  for (const toml::node &element : *array) {
    const toml::source_position begin = element.source().begin;
    const std::string place = recipe.at("loss") == "--set: "
                                  ? std::string("--set")
                                  : fmt::format("{}:{}:{}", recipe.file, begin.line, begin.column);
    auto term = readLoss(recipe, whole, *element.as_table(), place);
    if (!term)
      return term.status();
    if (!recipe.losses.empty())
      term->training.mutable_evaluation()->clear_metrics(); // evaluate.metrics belong to the first loss
    for (const Recipe &other : recipe.losses)
      if (other.lossName == term->lossName)
        return error("{}: two losses are called \"{}\"; give each a `name` of its own", place, term->lossName);
    recipe.losses.push_back(term.take());
  }
  recipe.loss = recipe.losses.front().loss;
  return Status();
}

} // namespace tcc::recipe
