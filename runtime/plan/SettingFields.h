//===- SettingFields.h - where a plan keeps the values of recipe keys -----===//
//
// A key's record (support/recipe/Keys.h) names the fields that keep its value. `tcc` fills a plan by these functions,
// `trun --set` changes it by them, and a resumed run compares by them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_SETTINGFIELDS_H
#define TCC_RUNTIME_PLAN_SETTINGFIELDS_H

#include "runtime/plan/plan.pb.h"
#include "support/recipe/Keys.h"

#include <functional>
#include <map>
#include <string>

namespace tcc::plan {

/// Returns the prefix of a message about a node of a value: "recipe.toml:3:1: ", or an empty text.
using PlaceOf = std::function<std::string(const toml::node &)>;

/// Stores a value that recipe::check accepted. A choice is stored in a number or boolean as the index of its word; a
/// word that a number may be is stored as the largest number. Errors: a malformed rule of a column or transform; a key
/// that the compiler alone keeps (an internal error).
Status storeSetting(const recipe::Key &key, const toml::node &value, Training &training, DataSettings &data,
                    const PlaceOf &placeOf = {});

/// Stores the default of each key of a section ("train.ema") that has one and whose field is empty. Optional fields and
/// map entries stay empty: their readers take the default from the key's record.
void storePresets(std::string_view section, Training &training);

/// True if the plan holds a value of the key.
bool hasSetting(const recipe::Key &key, const Training &training, const DataSettings &data);

/// The values of a key as JSON texts, each a single value (a list is a string that holds it). The name of a value is
/// that of the key, of the number's place if a list has a place for each number ("optimizer.beta1"), or of the entry if
/// the key is a table of columns ("data.map.x"). Empty if the plan has no value.
std::map<std::string, std::string> settingTexts(const recipe::Key &key, const Training &training,
                                                const DataSettings &data);

/// The value of a key that the plan keeps by name (Training.settings), or the key's default.
double numberSetting(const Training &training, std::string_view name);

/// The number `name` of schedule.numbers or optimizer.numbers, or the default of the key `section`.`name`.
double numberOr(const google::protobuf::Map<std::string, double> &numbers, std::string_view section,
                const std::string &name);

/// Messages are equal if their fields are.
bool operator==(const Training &a, const Training &b);
bool operator==(const DataSettings &a, const DataSettings &b);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_SETTINGFIELDS_H
