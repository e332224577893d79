//===- FactsFile.cpp - a run's columns.json --------------------------------===//
#include "runtime/train/FactsFile.h"
#include "support/Json.h"

#include <cmath>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
constexpr const char *kCategories = "categories", *kMissing = "missing", *kStandardise = "standardise", *kMean = "mean",
                     *kDeviation = "std";

/// False: `list` is not a list of finite numbers.
bool readNumbers(const json &list, std::vector<double> &numbers) {
  if (!list.is_array())
    return false;
  for (const json &number : list) {
    if (!number.is_number() || !std::isfinite(number.get<double>()))
      return false;
    numbers.push_back(number.get<double>());
  }
  return true;
}

bool readNames(const json &list, std::vector<std::string> &names) {
  if (!list.is_array())
    return false;
  for (const json &name : list) {
    if (!name.is_string())
      return false;
    names.push_back(name.get<std::string>());
  }
  return true;
}
} // namespace

std::string tcc::runtime::factsText(const ColumnFacts &facts) {
  json whole = json::object();
  if (!facts.categories.empty())
    whole[kCategories] = facts.categories;
  if (!facts.fills.empty())
    whole[kMissing] = facts.fills;
  for (const auto &[name, standard] : facts.standards)
    whole[kStandardise][name] = {{kMean, standard.mean}, {kDeviation, standard.deviation}};
  return jsonText(whole, 1) + "\n";
}

Expected<ColumnFacts> tcc::runtime::parseFacts(const std::string &text) {
  const json whole = parseJsonOrNull(text);
  bool good = whole.is_object();
  ColumnFacts facts;
  auto tableOf = [&](const char *name) {
    auto found = good ? whole.find(name) : whole.end();
    if (!good || found == whole.end())
      return json::object();
    good = found->is_object();
    return good ? *found : json::object();
  };
  const json categories = tableOf(kCategories), missing = tableOf(kMissing), standards = tableOf(kStandardise);
  for (const auto &[name, list] : categories.items())
    good = good && readNames(list, facts.categories[name]);
  for (const auto &[name, list] : missing.items())
    good = good && readNumbers(list, facts.fills[name]);
  for (const auto &[name, one] : standards.items()) {
    ColumnFacts::Standard &standard = facts.standards[name];
    good = good && one.is_object() && one.contains(kMean) && one.contains(kDeviation) &&
           readNumbers(one[kMean], standard.mean) && readNumbers(one[kDeviation], standard.deviation) &&
           standard.mean.size() == standard.deviation.size();
    for (double deviation : standard.deviation)
      good = good && deviation > 0;
  }
  if (!good)
    return error("damaged: no facts of columns");
  return facts;
}
