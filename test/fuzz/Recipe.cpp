//===- Recipe.cpp - fuzz target: recipes and --set -----------------------===//
//
// Lines that begin with "#set " are settings of the command line, the whole input is the file.
//
//===----------------------------------------------------------------------===//
#include "compiler/recipe/Recipe.h"
#include "test/fuzz/InputFolder.h"

#include <sstream>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tcc::fuzz::InputFolder folder;
  const std::string path = folder.write("recipe.toml", {data, size});
  std::vector<std::string> settings;
  std::istringstream text(std::string(reinterpret_cast<const char *>(data), size));
  for (std::string line; std::getline(text, line) && settings.size() < 4;)
    if (line.starts_with("#set "))
      settings.push_back(line.substr(5));
  (void)tcc::readRecipe(path, settings);
  return 0;
}
