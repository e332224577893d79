//===- Ops.cpp - tcc ops --------------------------------------------------===//
//
// The importer's ops, version by version: those of its own table, and those that ONNX defines as a function of them.
//
//===----------------------------------------------------------------------===//
#include "frontend/OnnxLibrary.h"
#include "frontend/OpTable.h"
#include "support/Json.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"

#include <onnx/defs/schema.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace tcc::tools {

namespace {

/// One op over versions of its domain that are read in the same way.
struct KnownOp {
  std::string op, domain;
  int64_t since, until;
  bool isFunction; ///< read by its function body
};

/// Versions of ai.onnx with a schema of the op; empty for an op that never existed or is deprecated.
std::vector<int64_t> versionsOf(const std::string &op) {
  std::vector<int64_t> versions;
  for (int64_t version = frontend::kOldestOpset; version <= frontend::kNewestOpset; ++version)
    if (const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(op, int(version), "");
        schema && !schema->Deprecated())
      versions.push_back(version);
  return versions;
}

/// True if all ops of the op's function body can be read. A body that depends on types is not inspected.
bool isReadableFunction(const std::string &domain, const std::string &op, int64_t version) {
  if (!frontend::hasFunctionBody(domain, op, version))
    return false;
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(op, int(version), domain);
  const onnx::FunctionProto *body = schema->HasFunction() ? schema->GetFunction(int(version)) : nullptr;
  return !body || std::all_of(body->node().begin(), body->node().end(), [&](const onnx::NodeProto &node) {
    return frontend::findOp(node.domain(), node.op_type(), version) ||
           isReadableFunction(node.domain(), node.op_type(), version);
  });
}

std::vector<KnownOp> knownOps() {
  std::map<std::pair<std::string, std::string>, std::vector<int64_t>> ops; // by domain and name
  for (const onnx::OpSchema &schema : onnx::OpSchemaRegistry::get_all_schemas_with_history())
    if (schema.domain().empty())
      ops[{"", schema.Name()}] = versionsOf(schema.Name());
  for (std::span<const frontend::OpEntry> family : frontend::opFamilies())
    for (const frontend::OpEntry &entry : family) {
      std::vector<int64_t> &versions = ops[{std::string(entry.domain), std::string(entry.op)}];
      if (versions.empty()) // not an op of ONNX: only the table knows its versions
        for (int64_t version = entry.since; version <= entry.until; ++version)
          versions.push_back(version);
    }
  std::vector<KnownOp> known;
  for (const auto &[name, versions] : ops) {
    const auto &[domain, op] = name;
    bool adjoins = false;
    for (int64_t version : versions) {
      bool isEntry = frontend::findOp(domain, op, version) != nullptr;
      if (!isEntry && !isReadableFunction(domain, op, version)) {
        adjoins = false;
        continue;
      }
      if (adjoins && known.back().isFunction == !isEntry && known.back().until + 1 == version)
        known.back().until = version;
      else
        known.push_back({op, domain, version, version, !isEntry});
      adjoins = true;
    }
  }
  return known;
}

} // namespace

int opsCommand(int argc, char **argv) {
  CLI::App app("Lists the ops that tcc supports: domain, opset versions, and whether the importer has its own rule\n"
               "or expands the op by its ONNX function.",
               "tcc ops");
  bool json = false;
  app.add_flag("--json", json, "print JSON for programs: a list of objects with op, domain, since, until, by");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  std::string text;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KnownOp &known : knownOps()) {
    const char *by = known.isFunction ? "function body" : "importer";
    list.push_back(
        {{"op", known.op}, {"domain", known.domain}, {"since", known.since}, {"until", known.until}, {"by", by}});
    std::string name = (known.domain.empty() ? "" : known.domain + "::") + known.op;
    text += fmt::format("{:<48} {:>2} to {:>2}  {}\n", name, known.since, known.until, by);
  }
  if (json)
    text = jsonText(list, 1) + "\n";
  printText(text);
  return kExitDone;
}

} // namespace tcc::tools
