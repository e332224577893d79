//===- CaseTableRecurrent.cpp - recurrent layers ----------------*- C++ -*-===//
#include "test/support/Cases.h"

#include <map>

namespace tcc::test {

namespace {

/// One layer, whose IR text is composed from sizes and settings.
struct Layer {
  std::string name;
  int cell, gates, kept; ///< number of the cell, gates, values kept for each element of the state
  int steps, batch, hidden;
  std::string activations, alphas, betas, settings; ///< the lists' elements; further attributes
  bool extra = false, lengths = false;
  double range = 1;
};

std::string shaped(std::initializer_list<int> shape, const std::string &element) {
  std::string text = "tensor<";
  for (int extent : shape)
    text += std::to_string(extent) + "x";
  return text + element + ">";
}

/// Adds a case of the forward op, and one of the backward op on arguments of its own.
void add(std::vector<Case> &cases, const Layer &l, const std::string &element) {
  const int t = l.steps, n = l.batch, h = l.hidden;
  const bool lstm = l.cell == 3, resetAfter = l.cell == 2;
  auto of = [&](std::initializer_list<int> shape) { return shaped(shape, element); };
  std::string attributes = "cell = " + std::to_string(l.cell) + " : i32, activations = array<i32: " + l.activations +
                           ">, alphas = array<f64: " + l.alphas + ">, betas = array<f64: " + l.betas + ">" + l.settings;
  std::string extra = of({lstm ? 3 * h : h}), lengths = shaped({n}, "i64");
  std::string states = of({t, n, h}), state = of({n, h}), gates = of({t, n, l.gates * h}), kept = of({t, n, l.kept * h});

  std::vector<std::pair<std::string, std::string>> in = {{"%x", gates}, {"%w", of({h, l.gates * h})}, {"%h", state}};
  std::vector<std::string> out = {states, state};
  const std::string optional = l.extra ? ", 1" : ", 0", both = optional + (l.lengths ? ", 1" : ", 0");
  const std::string segments = "1, 1, 1, " + std::to_string(lstm);
  if (lstm)
    in.emplace_back("%c", state);
  if (l.extra)
    in.emplace_back("%p", extra);
  if (l.lengths)
    in.emplace_back("%n", lengths);
  if (lstm)
    out.insert(out.end(), {state, kept, states});
  else if (l.kept)
    out.push_back(kept);
  // Gates and cells carry no gradient: the results are the states alone.
  auto text = [](const std::vector<std::string> &types) {
    std::string list;
    for (const std::string &type : types)
      list += (list.empty() ? "" : ", ") + type;
    return list;
  };
  // A NaN or ∞ beyond a sequence's end may reach all results that it would reach without lengths (segments
  // `unbounded`).
  auto write = [&](const std::string &name, const std::string &op, const std::string &operandSegments, const std::string &unbounded,
                   const std::vector<std::pair<std::string, std::string>> &operands, const std::vector<std::string> &results,
                   size_t shown, bool gradient) {
    std::string signature = "(", names, types, resultNames, shownNames, boundlessNames, boundlessTypes;
    for (const auto &[value, type] : operands) {
      signature += (names.empty() ? "" : ", ") + value + ": " + type;
      types += (names.empty() ? "" : ", ") + type;
      names += (names.empty() ? "" : ", ") + value;
      if (value == "%n")
        continue;
      boundlessTypes += (boundlessNames.empty() ? "" : ", ") + type;
      boundlessNames += (boundlessNames.empty() ? "" : ", ") + value;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      resultNames += (i ? ", %r" : "%r") + std::to_string(i);
      if (i < shown)
        shownNames += (i ? ", %r" : "%r") + std::to_string(i);
    }
    std::vector<std::string> shownTypes(results.begin(), results.begin() + long(shown));
    std::vector<Range> ranges(operands.size(), Range{-l.range, l.range});
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].first == "%n")
        ranges[i] = {0, double(t)};
    auto body = [&](const std::string &operandNames, const std::string &operandTypes, const std::string &sizes) {
      return resultNames + " = train." + op + " " + operandNames + " {operandSegmentSizes = array<i32: " + sizes + ">, " +
             attributes + "} : (" + operandTypes + ") -> (" + text(results) + ")";
    };
    cases.push_back({name + "_" + element, signature + ") -> (" + text(shownTypes) + ")", body(names, types, operandSegments),
                     Types::None, ranges, shownNames, gradient, 64, "",
                     l.lengths ? body(boundlessNames, boundlessTypes, unbounded) : ""});
  };
  write("recurrent_" + l.name, "recurrent", segments + both, segments + optional + ", 0", in, out, lstm ? 3 : 2,
        h < 10); // finite differences over wide weights take long
  if (l.kept)
    write("recurrent_kept_" + l.name, "recurrent", segments + both, segments + optional + ", 0", in, out, out.size(), false);

  std::vector<std::pair<std::string, std::string>> back = {{"%w", of({l.gates * h, h})}};
  if (l.kept)
    back.emplace_back("%k", kept);
  back.emplace_back("%s", states);
  if (lstm)
    back.emplace_back("%b", states);
  const std::string before = "1, " + std::to_string(back.size() - 1), behind = ", 1, 1, " + std::to_string(lstm);
  if (l.extra)
    back.emplace_back("%p", extra);
  if (l.lengths)
    back.emplace_back("%n", lengths);
  back.emplace_back("%g", states);
  back.emplace_back("%l", state);
  if (lstm)
    back.emplace_back("%m", state);
  std::vector<std::string> backOut = {gates, state};
  if (lstm)
    backOut.push_back(state);
  if (resetAfter)
    backOut.push_back(states);
  write("recurrent_grad_" + l.name, "recurrent_grad", before + both + behind, before + optional + ", 0" + behind, back, backOut, backOut.size(), false);
}

} // namespace

void addRecurrentCases(std::vector<Case> &cases) {
  std::vector<Layer> layers = {
      {"rnn", 0, 1, 0, 3, 2, 5, "0", "0.0", "0.0", ""},
      {"rnn_reverse_lengths", 0, 1, 0, 4, 5, 3, "0", "0.0", "0.0", ", reverse = true", false, true},
      {"rnn_wide", 0, 1, 0, 2, 9, 37, "1", "0.0", "0.0", ""},
      {"gru", 1, 3, 3, 3, 2, 4, "1, 0", "0.0, 0.0", "0.0, 0.0", ""},
      {"gru_reverse_lengths", 1, 3, 3, 4, 5, 3, "1, 0", "0.0, 0.0", "0.0, 0.0", ", reverse = true", false, true},
      {"gru_wide", 1, 3, 3, 2, 5, 35, "1, 0", "0.0, 0.0", "0.0, 0.0", ""},
      {"gru_reset_after", 2, 3, 4, 3, 2, 4, "1, 0", "0.0, 0.0", "0.0, 0.0", "", true},
      {"gru_reset_after_plain", 2, 3, 4, 3, 6, 2, "1, 0", "0.0, 0.0", "0.0, 0.0", ", reverse = true", false, true},
      {"gru_reset_after_wide", 2, 3, 4, 2, 3, 33, "1, 0", "0.0, 0.0", "0.0, 0.0", "", true},
      {"lstm", 3, 4, 4, 3, 2, 4, "1, 0, 0", "0.0, 0.0, 0.0", "0.0, 0.0, 0.0", ""},
      {"lstm_one", 3, 4, 4, 1, 1, 1, "1, 0, 0", "0.0, 0.0, 0.0", "0.0, 0.0, 0.0", ""},
      {"lstm_peepholes_lengths", 3, 4, 4, 4, 5, 3, "1, 0, 0", "0.0, 0.0, 0.0", "0.0, 0.0, 0.0", ", reverse = true", true, true},
      {"lstm_coupled", 3, 4, 4, 3, 3, 3, "1, 0, 0", "0.0, 0.0, 0.0", "0.0, 0.0, 0.0", ", coupled = true", true},
      {"lstm_clipped", 3, 4, 4, 3, 2, 4, "1, 0, 0", "0.0, 0.0, 0.0", "0.0, 0.0, 0.0", ", clip = 0.5 : f64"},
      {"lstm_wide", 3, 4, 4, 2, 11, 34, "1, 0, 0", "0.0, 0.0, 0.0", "0.0, 0.0, 0.0", "", true},
  };
  // Every activation, the clipped ones included: relu is 2, softplus 10.
  const std::map<int, std::string> alphas = {{3, "0.7"}, {4, "0.1"}, {5, "0.3"}, {6, "1.5"}, {7, "0.3"}, {8, "0.8"}};
  for (int kind = 2; kind <= 10; ++kind)
    for (bool clipped : {false, true}) {
      auto found = alphas.find(kind);
      std::string alpha = found == alphas.end() ? "0.0" : found->second;
      layers.push_back({"activation_" + std::to_string(kind) + (clipped ? "_clipped" : ""), 0, 1, 0, 3, 2, 4,
                        std::to_string(kind), alpha, "0.4", clipped ? ", clip = 0.6 : f64" : ""});
    }
  for (const Layer &layer : layers)
    for (const char *element : {"f64", "f32"})
      add(cases, layer, element);
}

} // namespace tcc::test
