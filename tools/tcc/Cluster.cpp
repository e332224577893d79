//===- Cluster.cpp - description of a cluster for predictions -------------===//
#include "tools/tcc/Cluster.h"

#include "tools/common/Cards.h"
#include "support/MappedFile.h"
#include "support/NearestName.h"
#include "support/Toml.h"
#include "tools/common/Quantities.h"

#include <map>

namespace tcc::report {

namespace {
enum class Kind { Text, Count, Bytes, Rate, Seconds, Share, Flag };

struct Key {
  std::string_view name;
  Kind kind;
};

constexpr Key kKeys[] = {
    {"name", Kind::Text},
    {"source", Kind::Text},
    {"target", Kind::Text},
    {"ranks_per_node", Kind::Count},
    {"overlap", Kind::Flag},
    {"device.card", Kind::Text},
    {"device.memory", Kind::Bytes},
    {"device.reserved", Kind::Bytes},
    {"device.f32", Kind::Rate},
    {"device.tf32", Kind::Rate},
    {"device.bf16", Kind::Rate},
    {"device.vector_f32", Kind::Rate},
    {"device.memory_bandwidth", Kind::Rate},
    {"device.efficiency", Kind::Share},
    {"within.bandwidth", Kind::Rate},
    {"within.latency", Kind::Seconds},
    {"between.bandwidth", Kind::Rate},
    {"between.latency", Kind::Seconds},
};

class Reader {
public:
  explicit Reader(const std::string &path) : path(path) {}

  Status read(const toml::table &table, const std::string &prefix) {
    for (const auto &[key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table *inner = node.as_table(); inner && prefix.empty() && isTable(name)) {
        if (Status status = read(*inner, name + "."); !status.ok())
          return status;
        continue;
      }
      const std::string where = fmt::format("{}:{}:{}", path, key.source().begin.line, key.source().begin.column);
      const Key *known = nullptr;
      std::vector<std::string> names;
      for (const Key &one : kKeys) {
        names.emplace_back(one.name);
        known = one.name == name ? &one : known;
      }
      if (!known) {
        const std::string meant = nearestName(name, names);
        return error("{}: unknown key '{}'{}; docs/guide/predict-scale.md lists them", where, name,
                     meant.empty() ? "" : fmt::format(", did you mean '{}'?", meant));
      }
      if (Status status = take(*known, node, where); !status.ok())
        return status;
    }
    return Status();
  }

  const std::string *text(std::string_view name) const { return found(texts, name); }
  double number(std::string_view name, double otherwise) const {
    const double *value = found(numbers, name);
    return value ? *value : otherwise;
  }
  std::string at(std::string_view name) const {
    const std::string *where = found(places, name);
    return where ? *where : path;
  }

private:
  template <typename T> static const T *found(const std::map<std::string, T, std::less<>> &map, std::string_view name) {
    auto at = map.find(name);
    return at == map.end() ? nullptr : &at->second;
  }

  static bool isTable(const std::string &name) {
    for (const Key &key : kKeys)
      if (key.name.starts_with(name + "."))
        return true;
    return false;
  }

  Status take(const Key &key, const toml::node &node, const std::string &where) {
    const std::string name(key.name);
    places[name] = where;
    auto wrong = [&](const char *expected) { return error("{}: {}: expected {}", where, name, expected); };
    if (key.kind == Kind::Text) {
      auto value = node.value_exact<std::string>();
      if (!value)
        return wrong("a string");
      texts[name] = *value;
      return Status();
    }
    if (key.kind == Kind::Flag) {
      auto value = node.value_exact<bool>();
      if (!value)
        return wrong("true or false");
      numbers[name] = *value;
      return Status();
    }
    if (key.kind == Kind::Bytes)
      if (auto value = node.value_exact<std::string>()) {
        auto bytes = tools::parseMemorySize(name, *value);
        if (!bytes)
          return error("{}: {}", where, bytes.message());
        numbers[name] = double(*bytes);
        return Status();
      }
    auto value = node.is_number() ? node.value<double>() : std::nullopt;
    const double most = key.kind == Kind::Share ? 1 : key.kind == Kind::Seconds ? 1e3 : 1e21;
    if (!value || !(*value <= most) ||
        !(*value > 0 || (*value == 0 && key.kind != Kind::Rate && key.kind != Kind::Share)))
      return wrong(key.kind == Kind::Bytes     ? "a size such as \"80GiB\", or a number of bytes"
                   : key.kind == Kind::Share   ? "a number above 0, up to 1"
                   : key.kind == Kind::Seconds ? "a time in seconds, such as 5e-6"
                   : key.kind == Kind::Count   ? "a whole number above 0"
                                               : "a rate above 0, per second, such as 200e9");
    if (key.kind == Kind::Count && (*value < 1 || *value > 1e6 || *value != double(uint64_t(*value))))
      return wrong("a whole number above 0");
    numbers[name] = *value;
    return Status();
  }

  const std::string &path;
  std::map<std::string, std::string, std::less<>> texts, places;
  std::map<std::string, double, std::less<>> numbers;
};
} // namespace

double Cluster::productRate(plan::DType dtype, bool tensorF32) const {
  const bool narrow = dtype == plan::BF16 || dtype == plan::F16;
  return narrow ? bf16 : tensorF32 ? tf32 : f32;
}

Expected<Cluster> readCluster(const std::string &path) {
  Expected<std::string> text = readFile(path);
  if (!text)
    return text.status();
  Expected<toml::table> table = parseToml(*text, path);
  if (!table)
    return table.status();
  Reader reader(path);
  if (Status status = reader.read(*table, ""); !status.ok())
    return status;
  Cluster cluster;
  cluster.name = reader.text("name") ? *reader.text("name") : path;
  cluster.source = reader.text("source") ? *reader.text("source") : "";
  cluster.target = reader.text("target") ? *reader.text("target") : "";
  if (const std::string *named = reader.text("device.card")) {
    const report::Card *card = report::findCard(*named);
    if (!card) {
      std::string known;
      for (const report::Card &one : report::cards())
        known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
      return error("{}: device.card '{}' is not known; give its rates in [device], or one of {}",
                   reader.at("device.card"), *named, known);
    }
    cluster.memoryBytes = card->memoryBytes;
    cluster.memoryRate = card->bytesPerSecond;
    cluster.f32 = cluster.vectorF32 = card->f32;
    cluster.tf32 = card->tf32;
    cluster.bf16 = card->bf16;
    if (cluster.target.empty())
      cluster.target = fmt::format("cuda:{}", card->architecture);
  }
  cluster.ranksPerNode = uint64_t(reader.number("ranks_per_node", 1));
  cluster.memoryBytes = uint64_t(reader.number("device.memory", double(cluster.memoryBytes)));
  cluster.reservedBytes = uint64_t(reader.number("device.reserved", 0));
  cluster.f32 = reader.number("device.f32", cluster.f32);
  cluster.tf32 = reader.number("device.tf32", cluster.tf32 > 0 ? cluster.tf32 : cluster.f32);
  cluster.bf16 = reader.number("device.bf16", cluster.bf16 > 0 ? cluster.bf16 : cluster.f32);
  cluster.vectorF32 = reader.number("device.vector_f32", cluster.vectorF32 > 0 ? cluster.vectorF32 : cluster.f32);
  cluster.memoryRate = reader.number("device.memory_bandwidth", cluster.memoryRate);
  cluster.efficiency = reader.number("device.efficiency", 1);
  cluster.within = {reader.number("within.bandwidth", 0), reader.number("within.latency", 0)};
  cluster.between = {reader.number("between.bandwidth", 0), reader.number("between.latency", 0)};
  cluster.overlap = reader.number("overlap", 1) != 0;
  for (auto [name, value] : {std::pair("device.memory", double(cluster.memoryBytes)),
                             {"device.f32", cluster.f32},
                             {"device.memory_bandwidth", cluster.memoryRate},
                             {"between.bandwidth", cluster.between.bytesPerSecond}})
    if (value <= 0)
      return error("{}: {} is missing{}", path, name,
                   std::string_view(name).starts_with("device") ? ", and device.card names no card that has it" : "");
  if (cluster.ranksPerNode > 1 && cluster.within.bytesPerSecond <= 0)
    return error("{}: within.bandwidth is missing, the rate between the {} devices of a node",
                 reader.at("ranks_per_node"), cluster.ranksPerNode);
  if (cluster.reservedBytes >= cluster.memoryBytes)
    return error("{}: device.reserved leaves nothing of the device's {} bytes", reader.at("device.reserved"),
                 cluster.memoryBytes);
  return cluster;
}

} // namespace tcc::report
