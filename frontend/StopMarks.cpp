//===- StopMarks.cpp - find the marks of stopped gradients ----------------===//
#include "frontend/StopMarks.h"

#include "frontend/FoldedWeights.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/PlainExport.h"
#include "frontend/Weights.h"
#include "support/NearestName.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tcc::frontend {
namespace {


constexpr const char *kDomain = "tcc", *kOp = "StopGradient";
constexpr int64_t kVersion = 1;
/// The key of the note at a marked node, followed by the output's number; at a graph input, without a number.
constexpr const char *kNote = "tcc.stop_gradient";

template <typename Item> const std::string *noteOf(const Item &item, const std::string &key) {
  for (const onnx::StringStringEntryProto &note : item.metadata_props())
    if (note.key() == key)
      return &note.value();
  return nullptr;
}

template <typename Item> void addNote(Item &item, const std::string &key, const std::string &value) {
  if (noteOf(item, key))
    return;
  onnx::StringStringEntryProto &note = *item.add_metadata_props();
  note.set_key(key);
  note.set_value(value);
}

void dropNotes(onnx::NodeProto &node) {
  auto &notes = *node.mutable_metadata_props();
  for (int i = notes.size(); i-- > 0;)
    if (notes[i].key().starts_with(kNote))
      notes.DeleteSubrange(i, 1);
}

std::string outputNote(int output) { return fmt::format("{}.{}", kNote, output); }

/// The torch op that a node was exported from, "aten.detach.default", by the notes of torch's newer exporter: the
/// target of its own call, never the text of arguments, types or scopes. Empty if no note tells.
std::string torchTarget(const onnx::NodeProto &node) {
  // "%detach : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%exp,), kwargs = {})"
  if (const std::string *call = noteOf(node, "pkg.torch.onnx.fx_node")) {
    constexpr std::string_view kBegin = "call_function[target=", kNamespace = "torch.ops.";
    const size_t begin = call->find(kBegin);
    if (begin == call->npos)
      return {};
    const size_t start = begin + kBegin.size(), end = call->find(']', start);
    std::string target = call->substr(start, end == call->npos ? end : end - start);
    return target.starts_with(kNamespace) ? target.substr(kNamespace.size()) : target;
  }
  // "['module.Class', 'aten.detach.default']"
  if (const std::string *classes = noteOf(node, "pkg.torch.onnx.class_hierarchy")) {
    std::vector<std::string> names = quotedNames(*classes);
    return names.empty() ? std::string() : names.back();
  }
  // ": module.Class/detach: aten.detach.default"
  if (const std::string *scopes = noteOf(node, "namespace")) {
    const size_t last = scopes->rfind(": ");
    return last == scopes->npos ? std::string() : scopes->substr(last + 2);
  }
  return {};
}

bool isDetach(const std::string &target) {
  static const std::set<std::string> targets = {"aten.detach", "aten.detach.default", "aten.detach_",
                                                "aten.detach_.default"};
  return targets.count(target) != 0;
}

/// True for a call of StopGradient; isDetachCall: of the function that torch's first dynamo exporter wrote for detach.
bool isStopCall(const onnx::NodeProto &node) { return node.domain() == kDomain && node.op_type() == kOp; }
bool isDetachCall(const onnx::NodeProto &node) {
  return node.domain().starts_with("pkg.onnxscript.torch_lib") && node.op_type() == "aten_detach";
}

bool isCallOf(const onnx::FunctionProto &function, const onnx::NodeProto &node) {
  return function.name() == node.op_type() && canonicalDomain(function.domain()) == canonicalDomain(node.domain()) &&
         function.overload() == node.overload();
}

/// Adds the default domain, to which Identity belongs, to `imports` if it is absent.
template <typename Imports> void importDefaultDomain(Imports &imports, int64_t version) {
  for (const onnx::OperatorSetIdProto &set : imports)
    if (canonicalDomain(set.domain()).empty())
      return;
  imports.Add()->set_version(version);
}

int64_t versionOf(const onnx::ModelProto &model, const std::string &domain, int64_t otherwise) {
  for (const onnx::OperatorSetIdProto &set : model.opset_import())
    if (canonicalDomain(set.domain()) == domain)
      return set.version();
  return otherwise;
}

} // namespace

std::string exportedStop(const onnx::NodeProto &node) {
  if (isStopCall(node))
    return fmt::format("{}::{}", kDomain, kOp);
  const bool identity = node.op_type() == "Identity" && canonicalDomain(node.domain()).empty();
  return (identity && isDetach(torchTarget(node))) || isDetachCall(node) ? "aten.detach" : "";
}

std::string stopOf(const onnx::NodeProto &node, int output) {
  const std::string *note = noteOf(node, outputNote(output));
  return note ? *note : std::string();
}

std::string stopOf(const onnx::ValueInfoProto &input) {
  const std::string *note = noteOf(input, kNote);
  return note ? *note : std::string();
}

StopMarks::StopMarks(const OnnxFile &file, const std::vector<std::string> &given, const std::string &place)
    : file(file), place(place) {
  for (const std::string &glob : given)
    globs.emplace_back(glob, false);
}

const std::string *StopMarks::match(const std::string &name) {
  if (globs.empty() || name.empty())
    return nullptr;
  names.insert(name);
  const std::string *found = nullptr;
  for (auto &[glob, matched] : globs)
    if (matchesGlob(glob, name)) {
      matched = true;
      found = found ? found : &glob;
    }
  return found;
}

static std::string sourceOf(const std::string &glob) { return "model.stop_gradient: " + glob; }

/// Turns StopGradient into Identity with a note; a body that the file gives it is ignored.
template <typename Nodes> Status StopMarks::convert(Nodes &nodes, bool &found) {
  for (onnx::NodeProto &node : nodes) {
    dropNotes(node); // only this class may write such notes
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        if (Status status = convert(*attribute.mutable_g()->mutable_node(), found); !status.ok())
          return status;
    std::string source = exportedStop(node);
    if (source.empty())
      continue;
    if (isStopCall(node)) {
      if (node.input_size() != 1 || node.output_size() != 1)
        return error("{}: node {} (tcc::StopGradient): it has {} inputs and {} outputs; give it one of each",
                           file.path, nodeName(node), node.input_size(), node.output_size());
      const std::string name = nodeName(node);
      node.set_op_type("Identity");
      node.clear_domain();
      node.clear_overload();
      node.clear_attribute();
      node.set_name(name);
      found = true;
    }
    addNote(node, outputNote(0), source);
  }
  return Status::success();
}

/// Adds notes to nodes if a glob matches their names or those of their outputs. A function call disappears when it is
/// inlined, so an Identity behind it carries the note.
template <typename Nodes> void StopMarks::markNodes(Nodes &nodes, const onnx::ModelProto &model) {
  Nodes all;
  for (onnx::NodeProto &node : nodes) {
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        markGraph(*attribute.mutable_g(), model);
    const std::string *byNode = match(nodeName(node));
    for (int i = 0; i < node.output_size(); ++i) {
      const std::string *glob = match(node.output(i));
      if ((glob = glob ? glob : byNode) && !node.output(i).empty())
        addNote(node, outputNote(i), sourceOf(*glob));
    }
    onnx::NodeProto &moved = *all.Add();
    moved.Swap(&node);
    const bool call = std::any_of(model.functions().begin(), model.functions().end(),
                                  [&](const onnx::FunctionProto &function) { return isCallOf(function, moved); });
    for (int i = 0; call && i < moved.output_size(); ++i) {
      const std::string source = stopOf(moved, i), value = moved.output(i);
      if (source.empty())
        continue;
      moved.set_output(i, value + "/before_stop");
      onnx::NodeProto &stop = *all.Add();
      stop.set_op_type("Identity");
      stop.set_name(nodeName(moved));
      stop.add_input(moved.output(i));
      stop.add_output(value);
      addNote(stop, outputNote(0), source);
    }
    if (call)
      dropNotes(moved);
  }
  nodes.Swap(&all);
}

void StopMarks::markGraph(onnx::GraphProto &graph, const onnx::ModelProto &model) {
  for (onnx::ValueInfoProto &input : *graph.mutable_input())
    if (const std::string *glob = match(input.name()))
      addNote(input, kNote, sourceOf(*glob));
  for (const onnx::TensorProto &constant : graph.initializer())
    match(constant.name());
  markNodes(*graph.mutable_node(), model);
}

/// Inputs of the model count as matched, though they have no gradient to be stopped.
void StopMarks::markModel(onnx::ModelProto &model) {
  for (const onnx::ValueInfoProto &input : model.graph().input())
    match(input.name());
  markNodes(*model.mutable_graph()->mutable_node(), model);
}

Status StopMarks::mark(onnx::ModelProto &model) {
  bool found = false;
  if (Status status = convert(*model.mutable_graph()->mutable_node(), found); !status.ok())
    return status;
  const int64_t standard = versionOf(model, "", kNewestOpset);
  if (found)
    importDefaultDomain(*model.mutable_opset_import(), standard);
  for (onnx::FunctionProto &function : *model.mutable_functions()) {
    bool inside = false;
    if (Status status = convert(*function.mutable_node(), inside); !status.ok())
      return status;
    found |= inside;
    if (inside)
      importDefaultDomain(*function.mutable_opset_import(), standard);
  }
  if (const int64_t version = versionOf(model, kDomain, kVersion); found && version != kVersion)
    return error("{}: opset {} of domain {}: this build reads version {} alone; export the model with that one",
                       file.path, version, kDomain, kVersion);
  auto &functions = *model.mutable_functions();
  for (int i = functions.size(); i-- > 0;)
    if (functions[i].domain() == kDomain && functions[i].name() == kOp)
      functions.DeleteSubrange(i, 1);
  // Initializers are listed, and stopped at their reads.
  std::set<std::string> computed;
  for (const onnx::NodeProto &node : model.graph().node())
    computed.insert(node.output().begin(), node.output().end());
  for (const auto &[name, initializer] : file.initializers) {
    const std::string *glob = match(name);
    const std::string *folded = match(foldedParameter(file, initializer, computed));
    if (glob || folded)
      initializers[name] = sourceOf(glob ? *glob : *folded);
  }
  markModel(model);
  for (onnx::FunctionProto &function : *model.mutable_functions()) {
    const int before = function.node_size();
    markNodes(*function.mutable_node(), model);
    if (function.node_size() > before)
      importDefaultDomain(*function.mutable_opset_import(), standard);
  }
  return Status::success();
}

Status StopMarks::finish(onnx::ModelProto &model) {
  if (globs.empty())
    return Status::success();
  markModel(model);
  for (const auto &[glob, matched] : globs)
    if (!matched)
      return error("{}model.stop_gradient: \"{}\" matches no node or value of {}; {}", place, glob, file.name,
                         nearestOrSome(glob, std::vector<std::string>(names.begin(), names.end())));
  return Status::success();
}

std::vector<Stop> stopsIn(const onnx::GraphProto &graph) {
  std::vector<Stop> stops;
  for (const onnx::ValueInfoProto &input : graph.input())
    if (std::string source = stopOf(input); !source.empty())
      stops.push_back({input.name(), source});
  for (const onnx::NodeProto &node : graph.node()) {
    std::string source;
    for (int i = 0; source.empty() && i < node.output_size(); ++i)
      source = stopOf(node, i);
    if (!source.empty())
      stops.push_back({nodeName(node), source});
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        for (Stop &inner : stopsIn(attribute.g()))
          stops.push_back(std::move(inner));
  }
  return stops;
}

std::string missingStopsText(const OnnxFile &file) {
  if (file.model.producer_name() != "pytorch")
    return "no node of the file is marked";
  std::string text =
      hasTorchNotes(file.model.graph())
          ? "no node of the file is marked, and torch.onnx.export removes .detach() unless optimize=False"
          : "the file cannot be marked: torch's older exporter (dynamo=False) removes .detach()";
  return text +
         "; if the model has it, export with torch.onnx.export(model, args, path, dynamo=True, optimize=False), or "
         "name nodes or values in model.stop_gradient; torch.no_grad() leaves no mark in any export";
}

} // namespace tcc::frontend
