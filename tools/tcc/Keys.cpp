//===- Keys.cpp - tcc keys ------------------------------------------------===//
//
// The keys of a recipe, from their table: for people in lines, for programs in JSON.
//
//===----------------------------------------------------------------------===//
#include "support/recipe/Keys.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <fmt/ranges.h>

namespace tcc::tools {

namespace {

/// The keys of that name, or of sections of that name; all if it is empty.
std::vector<const recipe::Key *> keysIn(const std::string &name) {
  std::vector<const recipe::Key *> found;
  for (const recipe::Key &key : recipe::allKeys())
    if (name.empty() || key.name == name || key.name.starts_with(name + "."))
      found.push_back(&key);
  return found;
}

/// Markdown without its marks of code.
std::string plain(std::string text) {
  std::erase(text, '`');
  return text;
}

std::string linesOf(const recipe::Key &key) {
  std::string text = fmt::format("{}{}\n    {}\n    values: {}\n", key.name,
                                 key.change == recipe::Change::RunTime ? "  (also trun --set)" : "",
                                 plain(key.meaning), plain(recipe::describe(key.values)));
  if (!key.preset.empty())
    text += fmt::format("    default: {}\n", plain(key.preset));
  if (const auto kinds = recipe::kindsOf(key); !kinds.empty())
    text += fmt::format("    of: {}\n", fmt::join(kinds, ", "));
  if (!key.with.empty())
    text += fmt::format("    needs: {}\n", key.with);
  return text;
}

} // namespace

int keysCommand(int argc, char **argv) {
  CLI::App app("Lists the keys of a recipe: values, default, meaning, and whether trun --set changes them.",
               "tcc keys");
  bool json = false;
  std::string name;
  app.add_option("KEY", name, "a key, or a section such as `schedule` or `train.ema`; all keys by default");
  app.add_flag("--json", json, "print JSON for programs: a list of objects with key, schema, default, trun, meaning …");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  const std::vector<const recipe::Key *> keys = keysIn(name);
  if (keys.empty())
    return printError(Status(fmt::format("unknown key {}; {}", name, recipe::hintFor(name)), StatusCode::Usage));
  std::string text;
  for (const recipe::Key *key : keys)
    text += linesOf(*key);
  printText(json ? recipe::keysJson(keys) + "\n" : text);
  return kExitDone;
}

} // namespace tcc::tools
