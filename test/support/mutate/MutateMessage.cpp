//===- MutateMessage.cpp --------------------------------------------------===//
//
// One walk lists the sites: every field that is set, and every field that could be. The name of a field is drawn first,
// and then one of its sites: otherwise some offset among a thousand buffers would be a thousand times as likely to
// change as the only version number.
//
//===----------------------------------------------------------------------===//
#include "test/support/mutate/MutateMessage.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <google/protobuf/descriptor.h>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace tcc::test {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {
constexpr int kMostDepth = 64;
constexpr size_t kMostTextBytes = 1 << 12; ///< a string does not grow beyond this

/// A field of a message of the tree.
struct Site {
  Message *parent;
  const FieldDescriptor *field;
  std::string path;
};

class Mutator {
public:
  Mutator(Message &root, std::mt19937_64 &random) : random(random) { collect(root, "", 0); }

  std::string run() {
    if (byField.empty())
      return "nothing: the message has no fields";
    // A field that is set is ten times as likely as one that is not.
    std::vector<const std::vector<Site> *> groups;
    for (const auto &[name, sites] : byField)
      groups.insert(groups.end(), name.first ? 10 : 1, &sites);
    const std::vector<Site> &sites = *groups[draw(groups.size())];
    const Site &site = sites[draw(sites.size())];
    return site.path + ": " + (site.field->is_repeated() ? changeRepeated(site) : changeSingular(site));
  }

private:
  using Name = std::pair<bool, std::string>; ///< is it set, and the field's full name

  /// A number below `count`, by remainder: distributions of the standard library differ between its implementations.
  uint64_t draw(uint64_t count) { return random() % count; }
  bool chance(uint64_t one) { return draw(one) == 0; }

  static bool isSet(const Message &message, const FieldDescriptor *field) {
    const Reflection *reflection = message.GetReflection();
    return field->is_repeated() ? reflection->FieldSize(message, field) > 0 : reflection->HasField(message, field);
  }

  void collect(Message &message, const std::string &path, int depth) {
    if (depth > kMostDepth)
      return;
    messages[message.GetDescriptor()].push_back(&message);
    const Reflection *reflection = message.GetReflection();
    const Descriptor *type = message.GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor *field = type->field(i);
      std::string name = path.empty() ? field->name() : path + "." + field->name();
      bool set = isSet(message, field);
      byField[{set, field->full_name()}].push_back({&message, field, name});
      if (!set || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
        continue;
      if (!field->is_repeated()) {
        collect(*reflection->MutableMessage(&message, field), name, depth + 1);
        continue;
      }
      for (int k = 0; k < reflection->FieldSize(message, field); ++k)
        collect(*reflection->MutableRepeatedMessage(&message, field, k), name + "[" + std::to_string(k) + "]",
                depth + 1);
    }
  }

  /// A random message of this type from the tree, or null.
  const Message *sample(const Descriptor *type) {
    auto it = messages.find(type);
    return it == messages.end() ? nullptr : it->second[draw(it->second.size())];
  }

  /// The value of a random integer field of the tree. Most are offsets, sizes and indices, so that one often fits in
  /// place of another.
  uint64_t anyNumber() {
    for (int attempt = 0; attempt < 8; ++attempt) {
      auto group = byField.begin();
      std::advance(group, static_cast<long>(draw(byField.size())));
      if (!group->first.first)
        continue;
      const Site &site = group->second[draw(group->second.size())];
      if (std::optional<uint64_t> value = numberAt(site))
        return *value;
    }
    return draw(1 << 20);
  }

  std::optional<uint64_t> numberAt(const Site &site) {
    const Reflection *reflection = site.parent->GetReflection();
    const Message &message = *site.parent;
    const FieldDescriptor *field = site.field;
    int at = field->is_repeated() ? static_cast<int>(draw(static_cast<uint64_t>(reflection->FieldSize(message, field))))
                                  : -1;
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return static_cast<uint64_t>(at < 0 ? reflection->GetInt32(message, field)
                                          : reflection->GetRepeatedInt32(message, field, at));
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<uint64_t>(at < 0 ? reflection->GetInt64(message, field)
                                          : reflection->GetRepeatedInt64(message, field, at));
    case FieldDescriptor::CPPTYPE_UINT32:
      return at < 0 ? reflection->GetUInt32(message, field) : reflection->GetRepeatedUInt32(message, field, at);
    case FieldDescriptor::CPPTYPE_UINT64:
      return at < 0 ? reflection->GetUInt64(message, field) : reflection->GetRepeatedUInt64(message, field, at);
    default:
      return std::nullopt;
    }
  }

  uint64_t alter(uint64_t old) {
    switch (draw(12)) {
    case 0:
      return old + 1;
    case 1:
      return old - 1;
    case 2:
      return old + 64 * (1 + draw(8));
    case 3:
      return old - 64 * (1 + draw(8));
    case 4:
      return old * 2;
    case 5:
      return old / 2;
    case 6:
      return draw(5) - 2; // -2 … 2
    case 7:
      return old ^ uint64_t(1) << draw(64);
    case 8:
      return uint64_t(1) << draw(64);
    case 9:
      return (uint64_t(1) << draw(64)) - 1;
    case 10:
      return draw(64);
    default:
      return anyNumber();
    }
  }

  double alterReal(double old) {
    static constexpr double kSpecial[] = {0.0, -0.0, 1.0, -1.0, 0.5, 1e308, -1e308, 5e-324, 1e-30, 4294967296.0};
    switch (draw(5)) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return chance(2) ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    case 2:
      return kSpecial[draw(std::size(kSpecial))];
    case 3:
      return std::bit_cast<double>(random());
    default:
      return old * 2;
    }
  }

  std::string alterText(std::string old, const FieldDescriptor *field) {
    bool text = field->type() == FieldDescriptor::TYPE_STRING;
    auto byte = [&] { return static_cast<char>(text ? draw(128) : draw(256)); };
    switch (draw(7)) {
    case 0:
      return "";
    case 1: // an ASCII byte becomes another one
      if (old.empty())
        return std::string(1, byte());
      if (size_t at = draw(old.size()); !text || (old[at] & 0x80) == 0)
        old[at] = byte();
      return old;
    case 2:
      if (old.empty() || (text && (old.back() & 0x80)))
        return old + "x";
      old.pop_back();
      return old;
    case 3:
      return "../" + old;
    case 4:
      return "\x1b[31m\n\t\x7f";
    case 5:
      return old.size() * 2 < kMostTextBytes ? old + old : "long";
    default: { // the same field of another message
      const Message *other = sample(field->containing_type());
      if (!other || field->is_repeated())
        return "other";
      return other->GetReflection()->GetString(*other, field);
    }
    }
  }

  int alterEnum(const FieldDescriptor *field, int old) {
    if (chance(6))
      return static_cast<int>(alter(static_cast<uint64_t>(old)));
    return field->enum_type()
        ->value(static_cast<int>(draw(static_cast<uint64_t>(field->enum_type()->value_count()))))
        ->number();
  }

  std::string changeSingular(const Site &site) {
    Message &message = *site.parent;
    const Reflection *reflection = message.GetReflection();
    const FieldDescriptor *field = site.field;
    if (isSet(message, field) && chance(8)) {
      reflection->ClearField(&message, field);
      return "cleared";
    }
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      reflection->SetInt32(&message, field,
                           static_cast<int32_t>(alter(static_cast<uint64_t>(reflection->GetInt32(message, field)))));
      return "is " + std::to_string(reflection->GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_INT64:
      reflection->SetInt64(&message, field,
                           static_cast<int64_t>(alter(static_cast<uint64_t>(reflection->GetInt64(message, field)))));
      return "is " + std::to_string(reflection->GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      reflection->SetUInt32(&message, field, static_cast<uint32_t>(alter(reflection->GetUInt32(message, field))));
      return "is " + std::to_string(reflection->GetUInt32(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      reflection->SetUInt64(&message, field, alter(reflection->GetUInt64(message, field)));
      return "is " + std::to_string(reflection->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection->SetDouble(&message, field, alterReal(reflection->GetDouble(message, field)));
      return "is " + std::to_string(reflection->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      reflection->SetFloat(&message, field,
                           static_cast<float>(alterReal(static_cast<double>(reflection->GetFloat(message, field)))));
      return "is " + std::to_string(reflection->GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection->SetBool(&message, field, !reflection->GetBool(message, field));
      return "is flipped";
    case FieldDescriptor::CPPTYPE_ENUM:
      reflection->SetEnumValue(&message, field, alterEnum(field, reflection->GetEnumValue(message, field)));
      return "is " + std::to_string(reflection->GetEnumValue(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      reflection->SetString(&message, field, alterText(reflection->GetString(message, field), field));
      return "is another text";
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message *target = nullptr;
      if (const Message *other = sample(field->message_type()); other && !chance(4)) {
        // Copy first: the other message may contain the target, or may be freed when the target is set.
        std::unique_ptr<Message> copy(other->New());
        copy->CopyFrom(*other);
        target = reflection->MutableMessage(&message, field);
        target->CopyFrom(*copy);
        return "replaced by another one";
      }
      reflection->MutableMessage(&message, field)->Clear();
      return "emptied";
    }
    }
    return "unchanged";
  }

  std::string changeRepeated(const Site &site) {
    Message &message = *site.parent;
    const Reflection *reflection = message.GetReflection();
    const FieldDescriptor *field = site.field;
    auto size = static_cast<uint64_t>(reflection->FieldSize(message, field));
    if (size == 0) {
      addElement(message, field);
      return "one element added";
    }
    auto at = static_cast<int>(draw(size)), other = static_cast<int>(draw(size));
    auto moveFromEnd = [&](int to) {
      for (int i = static_cast<int>(size); i > to; --i)
        reflection->SwapElements(&message, field, i, i - 1);
    };
    switch (draw(7)) {
    case 0:
    case 1:
      for (int i = at; i + 1 < static_cast<int>(size); ++i)
        reflection->SwapElements(&message, field, i, i + 1);
      reflection->RemoveLast(&message, field);
      return "element " + std::to_string(at) + " deleted";
    case 2:
      copyElement(message, field, at);
      moveFromEnd(other);
      return "element " + std::to_string(at) + " repeated at " + std::to_string(other);
    case 3:
      reflection->SwapElements(&message, field, at, other);
      return "elements " + std::to_string(at) + " and " + std::to_string(other) + " swapped";
    case 4:
      addElement(message, field);
      moveFromEnd(other);
      return "an element added at " + std::to_string(other);
    case 5:
      if (chance(8)) {
        reflection->ClearField(&message, field);
        return "emptied";
      }
      [[fallthrough]];
    default:
      return "element " + std::to_string(at) + " " + alterElement(message, field, at, other);
    }
  }

  void copyElement(Message &message, const FieldDescriptor *field, int at) {
    const Reflection *reflection = message.GetReflection();
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->AddInt32(&message, field, reflection->GetRepeatedInt32(message, field, at));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->AddInt64(&message, field, reflection->GetRepeatedInt64(message, field, at));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->AddUInt32(&message, field, reflection->GetRepeatedUInt32(message, field, at));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->AddUInt64(&message, field, reflection->GetRepeatedUInt64(message, field, at));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->AddDouble(&message, field, reflection->GetRepeatedDouble(message, field, at));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->AddFloat(&message, field, reflection->GetRepeatedFloat(message, field, at));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->AddBool(&message, field, reflection->GetRepeatedBool(message, field, at));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->AddEnumValue(&message, field, reflection->GetRepeatedEnumValue(message, field, at));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->AddString(&message, field, reflection->GetRepeatedString(message, field, at));
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      std::unique_ptr<Message> copy(reflection->GetRepeatedMessage(message, field, at).New());
      copy->CopyFrom(reflection->GetRepeatedMessage(message, field, at));
      reflection->AddMessage(&message, field)->CopyFrom(*copy);
      return;
    }
    }
  }

  void addElement(Message &message, const FieldDescriptor *field) {
    const Reflection *reflection = message.GetReflection();
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->AddInt32(&message, field, static_cast<int32_t>(alter(anyNumber())));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->AddInt64(&message, field, static_cast<int64_t>(alter(anyNumber())));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->AddUInt32(&message, field, static_cast<uint32_t>(alter(anyNumber())));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->AddUInt64(&message, field, alter(anyNumber()));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->AddDouble(&message, field, alterReal(1.0));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->AddFloat(&message, field, static_cast<float>(alterReal(1.0)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->AddBool(&message, field, chance(2));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->AddEnumValue(&message, field, alterEnum(field, 0));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->AddString(&message, field, alterText("added", field));
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      std::unique_ptr<Message> copy;
      if (const Message *other = sample(field->message_type()); other && !chance(3)) {
        copy.reset(other->New());
        copy->CopyFrom(*other);
      }
      Message *added = reflection->AddMessage(&message, field);
      if (copy)
        added->CopyFrom(*copy);
      return;
    }
    }
  }

  std::string alterElement(Message &message, const FieldDescriptor *field, int at, int other) {
    const Reflection *reflection = message.GetReflection();
    auto number = [&](auto get, auto set) {
      auto value = get();
      set(static_cast<decltype(value)>(alter(static_cast<uint64_t>(value))));
      return "is " + std::to_string(get());
    };
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return number([&] { return reflection->GetRepeatedInt32(message, field, at); },
                    [&](int32_t value) { reflection->SetRepeatedInt32(&message, field, at, value); });
    case FieldDescriptor::CPPTYPE_INT64:
      return number([&] { return reflection->GetRepeatedInt64(message, field, at); },
                    [&](int64_t value) { reflection->SetRepeatedInt64(&message, field, at, value); });
    case FieldDescriptor::CPPTYPE_UINT32:
      return number([&] { return reflection->GetRepeatedUInt32(message, field, at); },
                    [&](uint32_t value) { reflection->SetRepeatedUInt32(&message, field, at, value); });
    case FieldDescriptor::CPPTYPE_UINT64:
      return number([&] { return reflection->GetRepeatedUInt64(message, field, at); },
                    [&](uint64_t value) { reflection->SetRepeatedUInt64(&message, field, at, value); });
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection->SetRepeatedDouble(&message, field, at, alterReal(reflection->GetRepeatedDouble(message, field, at)));
      return "is another number";
    case FieldDescriptor::CPPTYPE_FLOAT:
      reflection->SetRepeatedFloat(
          &message, field, at,
          static_cast<float>(alterReal(static_cast<double>(reflection->GetRepeatedFloat(message, field, at)))));
      return "is another number";
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection->SetRepeatedBool(&message, field, at, !reflection->GetRepeatedBool(message, field, at));
      return "is flipped";
    case FieldDescriptor::CPPTYPE_ENUM:
      reflection->SetRepeatedEnumValue(&message, field, at,
                                       alterEnum(field, reflection->GetRepeatedEnumValue(message, field, at)));
      return "is " + std::to_string(reflection->GetRepeatedEnumValue(message, field, at));
    case FieldDescriptor::CPPTYPE_STRING:
      reflection->SetRepeatedString(&message, field, at,
                                    alterText(reflection->GetRepeatedString(message, field, at), field));
      return "is another text";
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      if (at == other) {
        reflection->MutableRepeatedMessage(&message, field, at)->Clear();
        return "emptied";
      }
      reflection->MutableRepeatedMessage(&message, field, at)
          ->CopyFrom(reflection->GetRepeatedMessage(message, field, other));
      return "overwritten by element " + std::to_string(other);
    }
    }
    return "unchanged";
  }

  std::mt19937_64 &random;
  std::map<Name, std::vector<Site>> byField;
  std::map<const Descriptor *, std::vector<Message *>> messages;
};
} // namespace

std::string mutateMessage(Message &message, std::mt19937_64 &random) { return Mutator(message, random).run(); }

} // namespace tcc::test
