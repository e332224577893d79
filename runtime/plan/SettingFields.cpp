//===- SettingFields.cpp - where a plan keeps the values of recipe keys ---===//
#include "runtime/plan/SettingFields.h"
#include "support/Json.h"
#include "support/recipe/ColumnRules.h"
#include "support/recipe/Transforms.h"

#include <algorithm>
#include <charconv>
#include <google/protobuf/util/message_differencer.h>
#include <optional>

namespace tcc::plan {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;
using recipe::Key;
using Type = recipe::Values::Type;

/// A field of a message, or an entry of a map.
struct Field {
  Message *owner;
  const FieldDescriptor *descriptor;
  std::string entry; ///< of a map; empty: the whole map

  const Reflection &reflection() const { return *owner->GetReflection(); }
};

/// The field at the end of a path. With `make`, messages on the way that are absent are created; without it, the result
/// is then empty. Paths come from the table of keys, so a path without a field is a bug of the table.
std::optional<Field> follow(std::string_view path, Training &training, DataSettings &data, bool make) {
  Message *message = &training;
  if (constexpr std::string_view kData = "data."; path.starts_with(kData)) {
    message = &data;
    path.remove_prefix(kData.size());
  }
  for (;;) {
    const size_t dot = path.find('.');
    const FieldDescriptor *field = message->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
    assert(field && "a path of the table of keys leads to no field");
    if (dot == path.npos || field->is_map())
      return Field{message, field, dot == path.npos ? std::string() : std::string(path.substr(dot + 1))};
    if (!make && !message->GetReflection()->HasField(*message, field))
      return std::nullopt;
    message = message->GetReflection()->MutableMessage(message, field);
    path.remove_prefix(dot + 1);
  }
}

/// The field or entry at a place, for writing. Creates the messages around it.
Field placeIn(Training &training, DataSettings &data, const std::string &place) {
  return *follow(place, training, data, /*make=*/true);
}

/// The same for reading; nothing if a message around it is absent. The cast is safe: follow changes nothing without
/// `make`.
std::optional<Field> placeIn(const Training &training, const DataSettings &data, const std::string &place) {
  return follow(place, const_cast<Training &>(training), const_cast<DataSettings &>(data), /*make=*/false);
}

const FieldDescriptor *valueOf(const FieldDescriptor *map) { return map->message_type()->map_value(); }

/// The number of the map's entry of that name, or −1.
int entryOf(const Field &field, const std::string &name) {
  const FieldDescriptor *key = field.descriptor->message_type()->map_key();
  for (int i = 0, count = field.reflection().FieldSize(*field.owner, field.descriptor); i < count; ++i) {
    const Message &entry = field.reflection().GetRepeatedMessage(*field.owner, field.descriptor, i);
    if (entry.GetReflection()->GetString(entry, key) == name)
      return i;
  }
  return -1;
}

/// A value as a number: an index for a choice's word, 1 for true.
double numberOf(const Key &key, const toml::node &value) {
  if (value.is_boolean())
    return *value.value<bool>();
  if (!value.is_string())
    return *value.value<double>();
  const auto &words = key.values.words;
  return double(std::find(words.begin(), words.end(), *value.value<std::string>()) - words.begin());
}

/// Stores one value that is no list.
void store(Message &owner, const FieldDescriptor *field, const Key &key, const toml::node &value) {
  const Reflection &reflection = *owner.GetReflection();
  switch (field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_STRING:
    return reflection.SetString(&owner, field, recipe::plainText(value));
  case FieldDescriptor::CPPTYPE_BOOL:
    return reflection.SetBool(&owner, field, numberOf(key, value) != 0);
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return reflection.SetDouble(&owner, field, numberOf(key, value));
  case FieldDescriptor::CPPTYPE_INT64:
    return reflection.SetInt64(&owner, field, *value.value<int64_t>());
  case FieldDescriptor::CPPTYPE_UINT64:
    return reflection.SetUInt64(&owner, field,
                                value.is_string()    ? ~uint64_t(0)
                                : value.is_integer() ? uint64_t(*value.value<int64_t>())
                                : *value.value<double>() >= 0x1p64 ? ~uint64_t(0)
                                                                   : uint64_t(*value.value<double>()));
  default:
    assert(false && "the table of keys names a field of a type that no key has");
  }
}

/// Stores one value as an entry of a map.
void storeEntry(const Field &map, const std::string &name, const Key &key, const toml::node &value) {
  const int known = entryOf(map, name);
  Message &entry = known < 0 ? *map.reflection().AddMessage(map.owner, map.descriptor)
                             : *map.reflection().MutableRepeatedMessage(map.owner, map.descriptor, known);
  entry.GetReflection()->SetString(&entry, map.descriptor->message_type()->map_key(), name);
  store(entry, valueOf(map.descriptor), key, value);
}

void removeEntry(const Field &map, int number) {
  const int last = map.reflection().FieldSize(*map.owner, map.descriptor) - 1;
  map.reflection().SwapElements(map.owner, map.descriptor, number, last);
  map.reflection().RemoveLast(map.owner, map.descriptor);
}

std::string indexed(const std::string &pattern, size_t index) {
  return pattern.substr(0, pattern.size() - 2) + std::to_string(index);
}

/// Replaces a list of entries, each of whose names ends in its index.
void storeIndexed(const Field &map, const Key &key, const toml::array &list) {
  for (size_t i = 0; entryOf(map, indexed(map.entry, i)) >= 0; ++i)
    removeEntry(map, entryOf(map, indexed(map.entry, i)));
  for (size_t i = 0; i < list.size(); ++i)
    storeEntry(map, indexed(map.entry, i), key, list[i]);
}

/// A TOML value as the text of a setting.
Status storeRules(const Field &map, const Key &key, const toml::table &columns) {
  for (const auto &[column, rule] : columns) {
    Expected<std::string> text = recipe::columnRuleText(map.entry, rule);
    if (!text)
      return text.status().withContext(std::string(column.str()));
    storeEntry(map, fmt::format("{}.{}", map.entry, column.str()), key, toml::value<std::string>(*text));
  }
  return Status();
}

Status storeAt(const Field &field, const Key &key, const toml::node &value, const PlaceOf &placeOf) {
  const toml::array *list = value.as_array();
  if (key.values.type == Type::ColumnRules)
    return storeRules(field, key, *value.as_table());
  if (key.values.type == Type::Transforms) {
    if (auto transforms = recipe::readTransforms(value, placeOf); !transforms)
      return transforms.status();
    storeEntry(field, field.entry, key, toml::value<std::string>(recipe::transformsText(value)));
  } else if (key.values.type == Type::TextTable) {
    for (const auto &[name, text] : *value.as_table())
      storeEntry(field, std::string(name.str()), key, text);
  } else if (field.descriptor->is_map() && field.entry.ends_with("{}")) {
    storeIndexed(field, key, *list);
  } else if (field.descriptor->is_map()) {
    storeEntry(field, field.entry, key, value);
  } else if (field.descriptor->is_repeated()) {
    field.reflection().ClearField(field.owner, field.descriptor);
    if (list)
      for (const toml::node &element : *list)
        field.reflection().AddString(field.owner, field.descriptor, *element.value<std::string>());
    else
      field.reflection().AddString(field.owner, field.descriptor, *value.value<std::string>());
  } else {
    store(*field.owner, field.descriptor, key, value);
  }
  return Status();
}

/// A stored number as a recipe writes it: a boolean, a choice's word, or the number itself.
json inWords(const Key &key, double number) {
  if (key.values.type == Type::Flag)
    return number != 0;
  if (key.values.type == Type::Choice)
    return key.values.words.at(std::min(size_t(number), key.values.words.size() - 1));
  return number;
}

json valueOf(const Message &owner, const FieldDescriptor *field, const Key &key) {
  const Reflection &reflection = *owner.GetReflection();
  switch (field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_STRING:
    return reflection.GetString(owner, field);
  case FieldDescriptor::CPPTYPE_BOOL:
    return inWords(key, reflection.GetBool(owner, field));
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return inWords(key, reflection.GetDouble(owner, field));
  case FieldDescriptor::CPPTYPE_INT64:
    return reflection.GetInt64(owner, field);
  default:
    return reflection.GetUInt64(owner, field);
  }
}

json entryValue(const Field &map, int number, const Key &key) {
  const Message &entry = map.reflection().GetRepeatedMessage(*map.owner, map.descriptor, number);
  return valueOf(entry, valueOf(map.descriptor), key);
}

/// The value of a field or entry; null if it is not set.
json valueAt(const Field &field, const Key &key) {
  if (field.descriptor->is_map() && field.entry.ends_with("{}")) {
    json list;
    for (size_t i = 0; entryOf(field, indexed(field.entry, i)) >= 0; ++i)
      list.push_back(entryValue(field, entryOf(field, indexed(field.entry, i)), key));
    return list;
  }
  if (field.descriptor->is_map()) {
    const int number = entryOf(field, field.entry);
    return number < 0 ? json() : entryValue(field, number, key);
  }
  if (field.descriptor->is_repeated()) {
    json list;
    for (int i = 0; i < field.reflection().FieldSize(*field.owner, field.descriptor); ++i)
      list.push_back(field.reflection().GetRepeatedString(*field.owner, field.descriptor, i));
    return list;
  }
  return field.reflection().HasField(*field.owner, field.descriptor) || !field.descriptor->has_presence()
             ? valueOf(*field.owner, field.descriptor, key)
             : json();
}

/// Adds the entries of a map whose names begin with `prefix`, under `section` and their names.
void addEntries(const Field &map, const std::string &prefix, const std::string &section, const Key &key,
                std::map<std::string, std::string> &out) {
  for (int i = 0; i < map.reflection().FieldSize(*map.owner, map.descriptor); ++i) {
    const Message &entry = map.reflection().GetRepeatedMessage(*map.owner, map.descriptor, i);
    const std::string name = entry.GetReflection()->GetString(entry, map.descriptor->message_type()->map_key());
    if (name.starts_with(prefix))
      out[section + name] = jsonText(entryValue(map, i, key));
  }
}

} // namespace

Status storeSetting(const Key &key, const toml::node &value, Training &training, DataSettings &data,
                    const PlaceOf &placeOf) {
  if (key.places.empty())
    return error("internal error: the plan has no place for {}", key.name);
  for (size_t i = 0; i < key.places.size(); ++i) {
    const toml::node &one = key.places.size() == 1 ? value : *value.as_array()->get(i);
    if (Status status = storeAt(placeIn(training, data, key.places[i]), key, one, placeOf); !status.ok())
      return status;
  }
  return Status();
}

void storePresets(std::string_view section, Training &training) {
  DataSettings data;
  for (const Key &key : recipe::allKeys()) {
    if (!key.name.starts_with(section) || key.name.size() <= section.size() || key.name[section.size()] != '.' ||
        key.places.size() != 1 || key.preset.empty())
      continue;
    const Field field = placeIn(training, data, key.places.front());
    if (field.descriptor->is_repeated() || field.descriptor->has_presence() ||
        field.reflection().HasField(*field.owner, field.descriptor))
      continue;
    if (const auto parsed = parseToml("v = " + key.preset))
      (void)storeSetting(key, *parsed->get("v"), training, data);
  }
}

std::map<std::string, std::string> settingTexts(const Key &key, const Training &training, const DataSettings &data) {
  std::map<std::string, std::string> texts;
  const std::string section = key.name.substr(0, key.name.find('.') + 1);
  for (const std::string &place : key.places) {
    const std::optional<Field> field = placeIn(training, data, place);
    if (!field)
      continue;
    if (key.values.type == Type::ColumnRules)
      addEntries(*field, field->entry + ".", section, key, texts);
    else if (key.values.type == Type::TextTable)
      addEntries(*field, "", key.name + ".", key, texts);
    else if (const json value = valueAt(*field, key); !value.is_null())
      texts[key.places.size() == 1 ? key.name : section + field->entry] =
          jsonText(value.is_array() ? json(jsonText(value)) : value);
  }
  return texts;
}

bool hasSetting(const Key &key, const Training &training, const DataSettings &data) {
  return !settingTexts(key, training, data).empty();
}

double numberSetting(const Training &training, std::string_view name) {
  const auto found = training.settings().find(std::string(name));
  const Key &key = recipe::keyOf(name);
  if (found == training.settings().end())
    return key.presetNumber();
  double number = found->second == "true";
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), number);
  return number;
}

double numberOr(const google::protobuf::Map<std::string, double> &numbers, std::string_view section,
                const std::string &name) {
  const auto found = numbers.find(name);
  return found != numbers.end() ? found->second : recipe::keyOf(fmt::format("{}.{}", section, name)).presetNumber();
}

bool operator==(const Training &a, const Training &b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}
bool operator==(const DataSettings &a, const DataSettings &b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

} // namespace tcc::plan
