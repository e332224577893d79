//===- CaseTableAttention.cpp - attention and its gradient ------*- C++ -*-===//
//
// Blocks have 64 queries and 64 or 128 keys: shapes are smaller, equal and larger. Each layer has a case of attention
// followed by its gradient; small layers have a second one in f64, attention alone, for finite differences.
//
//===----------------------------------------------------------------------===//
#include "test/support/Cases.h"

namespace tcc::test {

namespace {

struct AttentionCase {
  std::string name;
  std::vector<int> sizes; ///< batch, heads, heads of keys, queries, keys, depth, width
  std::string settings = "";
  std::vector<int> bias = {}, mask = {};
  bool allTypes = false;
  bool emptyRows = false;    ///< logsumexp may be −∞, so that finite differences leave it out
  std::string biasBody = ""; ///< makes %b of the argument %b0
  bool differences = true;   ///< small enough for finite differences, and finite
  bool delta = false;        ///< the gradient reads the rows' sums instead of the output
  bool rest = true;          ///< the gradient reads logsumexp's rounding error; else it is 0
  std::vector<Range> ranges = {{-2, 2}, {-2, 2}, {-1, 1}}; ///< of queries, keys and values
  Range gradients = {-1, 1};                               ///< of the output's
  bool readsAll = true;                                    ///< Case::readsAll
};

constexpr const char *kTf32 = ", train.tf32_products";

std::string typeOf(const std::vector<int> &shape, const std::string &element) {
  std::string text = "tensor<";
  for (int extent : shape)
    text += std::to_string(extent) + "x";
  return text + element + ">";
}

void add(std::vector<Case> &cases, const AttentionCase &c, const std::string &element) {
  const int batch = c.sizes[0], heads = c.sizes[1], keyHeads = c.sizes[2], queries = c.sizes[3], keys = c.sizes[4],
            depth = c.sizes[5], width = c.sizes[6];
  const std::string sums = element == "f64" ? "f64" : "f32";
  const std::string query = typeOf({batch, heads, queries, depth}, element),
                    key = typeOf({batch, keyHeads, keys, depth}, element),
                    value = typeOf({batch, keyHeads, keys, width}, element),
                    output = typeOf({batch, heads, queries, width}, element),
                    logsumexp = typeOf({batch, heads, queries, 1}, sums),
                    scores = typeOf({batch, heads, queries, keys}, element);
  struct Text {
    std::string names = "%q, %k, %v", types, segments = "1, 1, 1", settings, body;
  };
  // `wide` excludes no keys: it gives the results that a NaN or ∞ may reach through products with 0.
  Text text, wide;
  text.settings = ", scale = 0.4" + c.settings;
  wide.settings = text.settings;
  for (const char *excludes : {", causal", ", maskFill"})
    if (size_t at = wide.settings.find(excludes); at != std::string::npos) {
      size_t next = wide.settings.find(", ", at + 2);
      while (next != std::string::npos && wide.settings.compare(next, 8, ", causal") == 0)
        next = wide.settings.find(", ", next + 2);
      wide.settings.erase(at, next == std::string::npos ? next : next - at);
    }
  std::string arguments = "%q: " + query + ", %k: " + key + ", %v: " + value;
  text.types = wide.types = query + ", " + key + ", " + value;
  std::vector<Range> ranges = c.ranges;
  auto optional = [&](bool there, const std::string &name, const std::string &type, Range range) {
    text.segments += there ? ", 1" : ", 0";
    wide.segments += there && name != "m" ? ", 1" : ", 0";
    if (!there)
      return;
    bool made = name == "b" && !c.biasBody.empty();
    arguments += ", %" + name + (made ? "0: " : ": ") + type;
    if (made)
      text.body = c.biasBody;
    for (size_t at; (at = text.body.find("$B")) != std::string::npos;)
      text.body.replace(at, 2, type);
    text.names += ", %" + name;
    text.types += ", " + type;
    if (name != "m") {
      wide.names += ", %" + name + (made ? "0" : "");
      wide.types += ", " + type;
    }
    ranges.push_back(range);
  };
  optional(!c.bias.empty(), "b", typeOf(c.bias, element), {-2, 2});
  optional(!c.mask.empty(), "m", typeOf(c.mask, "i1"), {0, 1});
  optional(c.settings.find("dropout") != std::string::npos, "w", "tensor<4xui32>", {0, 4e9});
  for (Text *t : {&text, &wide})
    t->body += "%r, %l, %s = train.attention " + t->names + " {operandSegmentSizes = array<i32: " + t->segments + ">" +
               t->settings + "} : (" + t->types + ") -> (" + output + ", " + logsumexp + ", " + logsumexp + ")";
  if (element == "f64" && c.differences) {
    std::string results = c.emptyRows ? output : output + ", " + logsumexp;
    cases.push_back({"attention_" + c.name, "(" + arguments + ") -> (" + results + ")", text.body, Types::None, ranges,
                     c.emptyRows ? "%r" : "%r, %l", true, 64, "", wide.body});
  }
  std::string gradients = query + ", " + key + ", " + value, gradientNames = "%gq, %gk, %gv";
  if (!c.bias.empty()) {
    gradients += ", " + scores;
    gradientNames += ", %gb";
  }
  const std::string wideOutput = typeOf({batch, heads, queries, width}, sums);
  const std::string delta = "\n%r32 = train.cast %r : " + output + " -> " + wideOutput + "\n%g32 = train.cast %g : " + output +
                            " -> " + wideOutput + "\n%rg = train.mul %r32, %g32 : " + wideOutput +
                            "\n%d = train.reduce sum %rg [3] : " + wideOutput + " -> " + logsumexp;
  for (Text *t : {&text, &wide})
    t->body += (c.delta ? delta : "") + "\n" + gradientNames + " = train.attention_grad " + t->names +
               (c.delta ? ", %d" : ", %r") + ", %l" + (c.rest ? ", %s" : "") +
               ", %g {operandSegmentSizes = array<i32: " + t->segments + (c.delta ? ", 0, 1" : ", 1, 0") + ", 1, " +
               (c.rest ? "1" : "0") + ", 1>, resultSegmentSizes = array<i32: 1, 1, 1, " +
               (c.bias.empty() ? "0" : "1") + ">" + t->settings + "} : (" + t->types + ", " +
               (c.delta ? logsumexp : output) + ", " + logsumexp + (c.rest ? ", " + logsumexp : "") + ", " + output +
               ") -> (" + gradients + ")";
  ranges.push_back(c.gradients);
  bool narrow = element == "bf16" || element == "f16", tf32 = c.settings.find(kTf32) != std::string::npos;
  // Weights and score gradients are rounded to the factors' type; TF32 has as many mantissa bits as f16.
  const double slack = narrow ? 4.0 : tf32 ? 4.0 * 0x1p-10 / 0x1p-21 : 64.0;
  cases.push_back({"attention_grad_" + c.name + "_" + (tf32 ? "tf32" : element),
                   "(" + arguments + ", %g: " + output + ") -> (" + output + ", " + logsumexp + ", " + gradients + ")",
                   text.body, Types::None, ranges, "%r, %l, " + gradientNames, false, slack, "", wide.body,
                   c.readsAll});
}

} // namespace

void addAttentionCases(std::vector<Case> &cases) {
  const std::string causal = ", causal = true", softcap = ", softcap = 1.5",
                    dropout = ", dropout = 0.25, dropoutId = 81985529216486895", fill = ", maskFill = -0.5";
  auto offset = [&](int by) { return causal + ", causalOffset = " + std::to_string(by); };
  const std::string constants = "%zero = train.constant dense<0.0> : $B\n%sign = train.constant dense<$S> : $B\n"
                                "%inf = train.div %sign, %zero : $B\n";
  // Makes %b: the values of %b0 that are at least the bound, and sign/0 (±∞ or NaN) in place of the others.
  auto special = [&](const std::string &sign, const std::string &bound, const std::string &bools) {
    std::string text = constants + "%bound = train.constant dense<" + bound +
                       "> : $B\n%c = train.compare lt %b0, %bound : $B -> " + bools +
                       "\n%b = train.select %c, %inf, %b0 : " + bools + ", $B\n";
    return text.replace(text.find("$S"), 2, sign);
  };
  // Makes %b of %b0: the lowest number from key `first` on, as padding has it. The kernels end before.
  auto padding = [](int first, const std::vector<int> &shape) {
    const std::string numbers = typeOf(shape, "i64"), bools = typeOf(shape, "i1");
    return "%number = train.iota dim = 3 : " + numbers + "\n%end = train.constant dense<" + std::to_string(first) +
           "> : " + numbers +
           "\n%low = train.constant dense<-3.0e38> : $B\n%c = train.compare ge %number, %end : " + numbers + " -> " +
           bools + "\n%b = train.select %c, %low, %b0 : " + bools + ", $B\n";
  };
  auto padded = [&](const std::string &name, std::vector<int> sizes, int first, const std::string &settings = "",
                    std::vector<int> mask = {}) {
    const std::vector<int> bias = {sizes[0], 1, 1, sizes[4]};
    AttentionCase made{name, sizes, settings, bias, mask, true, !mask.empty(), padding(first, bias), false};
    made.readsAll = false;
    return made;
  };
  const std::vector<AttentionCase> table = {
      padded("padding_of_many_heads", {2, 2, 2, 70, 205, 4, 5}, 90),
      padded("padding_of_few_heads", {1, 2, 2, 70, 205, 4, 5}, 90),
      padded("padding_of_blocks", {1, 1, 1, 70, 260, 4, 5}, 64),
      padded("padding_of_all_keys_but_one", {2, 2, 2, 9, 150, 4, 4}, 1),
      padded("padding_of_all_keys", {2, 2, 2, 9, 150, 4, 4}, 0),
      padded("padding_of_no_key", {2, 2, 2, 9, 150, 4, 4}, 150),
      padded("padding_and_causal", {2, 4, 2, 150, 205, 4, 5}, 130, offset(20)),
      padded("padding_and_causal_of_few_heads", {1, 1, 1, 150, 205, 4, 5}, 70, offset(20)),
      padded("padding_and_mask_of_keys", {2, 2, 2, 20, 150, 4, 4}, 100, "", {2, 1, 1, 150}),
      padded("padding_and_full_mask", {2, 2, 2, 20, 150, 4, 4}, 5, "", {1, 1, 20, 150}),
      padded("padding_and_mask_of_heads", {2, 2, 2, 20, 150, 4, 4}, 1, "", {2, 2, 1, 150}),
      {"one", {1, 1, 1, 1, 1, 1, 1}},
      {"small", {2, 2, 2, 3, 5, 4, 3}, "", {}, {}, true},
      {"odd", {1, 2, 2, 17, 33, 5, 7}},
      {"full_block", {1, 1, 1, 64, 64, 64, 64}, "", {}, {}, true, false, "", false},
      {"even", {1, 3, 3, 67, 139, 6, 38}, "", {}, {}, true, false, "", false},
      {"even_of_many_heads", {2, 4, 2, 133, 67, 64, 34}, causal, {}, {}, true, false, "", false},
      {"wide", {1, 1, 1, 9, 11, 80, 35}, "", {}, {}, false, false, "", false},
      {"one_query", {1, 2, 2, 1, 140, 6, 33}},
      {"blocks", {1, 1, 1, 70, 150, 8, 20}, "", {}, {}, true, false, "", false},
      {"blocks_of_many_heads", {2, 2, 2, 70, 75, 6, 9}, "", {}, {}, true, false, "", false},
      {"long", {1, 1, 1, 66, 1500, 24, 8}, "", {}, {}, false, false, "", false},
      {"causal", {1, 2, 2, 20, 20, 4, 4}, causal},
      {"causal_blocks", {1, 1, 1, 130, 200, 8, 8}, offset(70), {}, {}, true, false, "", false},
      {"causal_of_many_heads", {2, 2, 2, 150, 150, 4, 4}, causal, {}, {}, true, false, "", false},
      {"without_rest", {1, 2, 2, 70, 75, 4, 4}, causal, {}, {}, true, false, "", false, false, false},
      {"causal_late", {1, 2, 1, 20, 9, 4, 4}, offset(-3), {}, {}, false, true},
      {"causal_none", {1, 4, 4, 9, 9, 4, 4}, offset(-200), {}, {}, false, true},
      {"causal_all", {1, 1, 1, 9, 9, 4, 4}, offset(100)},
      {"causal_late_blocks", {1, 4, 4, 150, 140, 4, 4}, offset(-75), {}, {}, false, true, "", false},
      // Whole blocks of keys are visible to no query.
      {"causal_keys_beyond", {2, 2, 2, 70, 205, 4, 5}, offset(10), {}, {}, true, false, "", false},
      {"grouped", {1, 6, 2, 7, 9, 4, 3}},
      {"grouped_blocks", {2, 4, 1, 70, 70, 4, 5}, causal, {}, {}, false, false, "", false},
      {"grouped_of_many_heads", {2, 4, 2, 70, 70, 4, 5}, causal, {}, {}, true, false, "", false},
      {"bias_full", {2, 3, 3, 9, 13, 4, 4}, "", {2, 3, 9, 13}, {}, true},
      {"bias_per_head", {2, 3, 3, 9, 13, 4, 4}, "", {1, 3, 9, 13}},
      {"bias_per_sample", {2, 3, 3, 9, 13, 4, 4}, "", {2, 1, 9, 13}},
      {"bias_of_keys", {2, 3, 3, 9, 13, 4, 4}, "", {2, 3, 1, 13}},
      {"bias_of_queries", {2, 3, 3, 9, 13, 4, 4}, "", {2, 1, 9, 1}},
      {"bias_one", {2, 3, 3, 9, 13, 4, 4}, "", {1, 1, 1, 1}},
      {"bias_blocks", {1, 2, 2, 70, 140, 4, 4}, causal, {1, 1, 70, 140}, {}, false, false, "", false},
      {"bias_blocks_of_many_heads", {2, 2, 2, 70, 141, 4, 4}, offset(71), {2, 2, 70, 141}, {}, true, false, "", false},
      {"bias_minus_infinity",
       {2, 2, 2, 9, 3, 4, 4},
       "",
       {2, 2, 9, 3},
       {},
       false,
       true,
       special("-1.0", "0.5", typeOf({2, 2, 9, 3}, "i1")),
       false},
      {"mask_full", {2, 3, 3, 9, 13, 4, 4}, "", {}, {2, 3, 9, 13}, true},
      {"mask_of_keys", {2, 3, 3, 9, 13, 4, 4}, "", {}, {2, 1, 1, 13}},
      {"mask_of_queries", {2, 3, 3, 9, 13, 4, 4}, "", {}, {1, 3, 9, 1}, false, true},
      {"mask_few_keys", {2, 3, 3, 9, 2, 4, 4}, "", {}, {1, 3, 9, 2}, false, true},
      {"mask_blocks", {1, 2, 2, 70, 140, 4, 4}, "", {}, {1, 1, 70, 140}, false, false, "", false},
      {"mask_fill", {2, 3, 3, 9, 13, 4, 4}, fill, {2, 1, 1, 13}, {2, 3, 9, 13}, true},
      {"mask_fill_alone", {2, 3, 3, 9, 13, 4, 4}, fill, {}, {1, 3, 9, 1}},
      {"mask_fill_blocks", {1, 2, 2, 70, 140, 4, 4}, fill, {1, 1, 1, 140}, {1, 1, 70, 140}, true, false, "", false},
      {"softcap", {1, 2, 2, 9, 13, 4, 4}, softcap, {}, {}, true},
      {"dropout", {2, 2, 2, 9, 13, 4, 4}, dropout, {}, {}, true},
      {"dropout_all", {1, 1, 1, 9, 13, 4, 4}, ", dropout = 1.0"},
      {"dropout_blocks", {1, 2, 2, 70, 140, 4, 4}, causal + dropout, {}, {}, false, false, "", false},
      {"everything",
       {1, 4, 2, 70, 75, 4, 5},
       offset(5) + softcap + dropout,
       {1, 4, 70, 75},
       {1, 1, 70, 75},
       true,
       true,
       "",
       false},
      {"everything_filled",
       {1, 4, 2, 70, 75, 4, 5},
       offset(5) + softcap + dropout + fill,
       {1, 4, 70, 75},
       {1, 1, 70, 75},
       true,
       true,
       "",
       false},
  };
  for (const AttentionCase &c : table)
    for (const std::string element : {"f64", "f32", "bf16", "f16"})
      // Kernels of f16 differ from those of bf16 only in how elements are widened, for which small shapes suffice.
      if (element == "f32" || (element == "f64" && c.differences) ||
          (c.allTypes && (element != "f16" || c.sizes[3] < 64)))
        add(cases, c, element);
  // Kernels on tiles (suitsTiles): warps take 16 or 32 queries and 16 to 64 keys at a time, and 16 features a step, in
  // f32 8.
  const std::vector<AttentionCase> tiles = {
      {"tiles", {1, 2, 2, 40, 70, 16, 16}, "", {}, {}, true},
      {"tiles_whole", {1, 1, 1, 64, 96, 64, 64}},
      {"tiles_few", {2, 1, 1, 3, 5, 32, 16}},
      {"tiles_of_widest_heads", {1, 1, 1, 20, 50, 128, 96}, "", {}, {}, true},
      {"tiles_of_parts", {1, 1, 1, 33, 18, 112, 80}},
      // Heads whose features are padded with zeros.
      {"tiles_padded", {1, 2, 2, 19, 21, 20, 12}, causal, {}, {}, true},
      {"tiles_padded_by_half", {1, 2, 1, 20, 35, 24, 40}, "", {}, {}, true},
      {"tiles_padded_wide", {1, 1, 1, 18, 40, 72, 90}, causal, {}, {}, true},
      {"tiles_padded_most", {1, 2, 2, 17, 33, 4, 2}, softcap, {1, 2, 17, 33}, {}, true},
      // Several stages of 64 or 32 rows, and blocks whose last warps have no rows.
      {"tiles_stages", {1, 1, 1, 150, 200, 16, 16}},
      {"tiles_stages_causal", {1, 2, 1, 200, 168, 16, 32}, offset(-16), {}, {}, true},
      {"tiles_stages_of_widest_heads", {1, 1, 1, 80, 72, 128, 128}, causal},
      {"tiles_causal", {2, 2, 2, 70, 70, 32, 48}, causal},
      {"tiles_causal_offset", {1, 2, 2, 37, 90, 16, 16}, offset(40)},
      {"tiles_causal_late", {1, 2, 1, 40, 34, 16, 16}, offset(-18), {}, {}, true, true},
      {"tiles_causal_keys_beyond", {1, 1, 1, 20, 80, 16, 16}, offset(3)},
      {"tiles_without_rest", {1, 1, 1, 36, 64, 16, 16}, causal, {}, {}, false, false, "", false, false, false},
      {"tiles_without_rest_of_odd_queries", {1, 1, 1, 34, 64, 16, 16}, "", {}, {}, false, false, "", false, false, false},
      {"tiles_grouped", {2, 6, 2, 18, 19, 16, 16}, causal, {}, {}, true},
      {"tiles_bias", {1, 2, 2, 18, 35, 16, 16}, "", {1, 2, 18, 35}},
      {"tiles_bias_causal", {2, 2, 2, 35, 35, 16, 16}, causal, {1, 2, 35, 35}, {}, true},
      {"tiles_bias_of_keys", {2, 2, 2, 18, 35, 16, 16}, "", {2, 1, 1, 35}},
      {"tiles_mask", {2, 2, 2, 18, 35, 16, 16}, "", {}, {2, 1, 18, 35}},
      {"tiles_mask_of_queries", {2, 2, 2, 18, 35, 16, 16}, "", {}, {1, 2, 18, 1}, true, true},
      {"tiles_mask_fill", {2, 2, 2, 18, 35, 16, 16}, fill, {2, 1, 1, 35}, {2, 2, 18, 35}},
      padded("tiles_padding", {2, 2, 2, 40, 96, 16, 16}, 17),
      padded("tiles_padding_causal", {1, 2, 1, 70, 101, 16, 16}, 40, offset(20)),
      padded("tiles_padding_and_mask_of_heads", {2, 2, 2, 20, 144, 16, 16}, 1, "", {2, 2, 1, 144}),
      {"tiles_softcap", {1, 2, 2, 18, 35, 16, 16}, softcap},
      {"tiles_dropout", {2, 2, 2, 18, 35, 16, 16}, dropout, {}, {}, true},
      {"tiles_everything", {1, 4, 2, 40, 45, 16, 32}, offset(5) + softcap + dropout + fill, {1, 4, 40, 45}, {1, 1, 40, 45}, true, true},
  };
  auto addTiles = [&](AttentionCase c, const std::string &element) {
    c.delta = true;
    if (element == "tf32")
      c.settings += kTf32;
    add(cases, c, element == "tf32" ? "f32" : element);
  };
  // Types differ in tiles and stages; the forms of attention are handled by code that all types share. So each form is
  // tested in two types, and the case with all forms in each type.
  for (const AttentionCase &c : tiles)
    for (const std::string element : {"bf16", "f16", "tf32", "f32"})
      if (c.allTypes || element == "bf16" || element == "f32")
        addTiles(c, element);
  // Heads so wide that the gradients of keys and of values are computed by blocks of their own, also in parts; and rows
  // with an odd number of elements.
  for (const char *element : {"bf16", "f16"}) {
    addTiles({"tiles_of_256", {1, 1, 1, 20, 50, 256, 256}, causal}, element);
    addTiles({"tiles_of_256_padded", {1, 2, 1, 17, 19, 140, 200}, "", {1, 2, 17, 19}}, element);
  }
  for (const char *element : {"tf32", "f32"})
    addTiles({"tiles_odd", {1, 2, 2, 18, 35, 5, 7}, causal + dropout}, element);
  // Scores in the thousands, and score gradients beyond the range of f16: up to 10^8, and below 10^-7.
  AttentionCase steep{"tiles_steep", {1, 2, 2, 40, 70, 16, 16}};
  steep.ranges = {{-40, 40}, {-40, 40}, {-1, 1}};
  steep.gradients = {-0.1, 0.1}; // small, since the rounding error of the output is multiplied by the large keys
  AttentionCase large{"tiles_large_gradients", {1, 2, 2, 40, 70, 16, 16}};
  large.ranges = {{-1e-4, 1e-4}, {-1e-4, 1e-4}, {-100, 100}};
  large.gradients = {-60000, 60000};
  AttentionCase little{"tiles_little_gradients", {1, 2, 2, 40, 70, 16, 16}};
  little.ranges = {{-1e-5, 1e-5}, {-60000, 60000}, {-1, 1}};
  little.gradients = {-1e-6, 1e-6};
  for (const AttentionCase &c : {steep, large, little})
    addTiles(c, "f16");
  // Infinities and NaN reach the rows that see them, and no others.
  for (const auto &[name, sign] : {std::pair<const char *, const char *>{"infinity", "1.0"}, {"nan", "0.0"}}) {
    std::string bias = typeOf({1, 1, 70, 9}, "f32"), body = special(sign, "-1.9", typeOf({1, 1, 70, 9}, "i1"));
    for (size_t at; (at = body.find("$B")) != std::string::npos;)
      body.replace(at, 2, bias);
    std::string features = typeOf({1, 1, 70, 4}, "f32"), keys = typeOf({1, 1, 9, 4}, "f32"),
                sums = typeOf({1, 1, 70, 1}, "f32");
    cases.push_back({std::string("attention_") + name,
                     "(%q: " + features + ", %k: " + keys + ", %b0: " + bias + ") -> (" + features + ", " + sums + ")",
                     body +
                         "%r, %l, %s = train.attention %q, %k, %k, %b {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, "
                         "scale = 0.4} : (" +
                         features + ", " + keys + ", " + keys + ", " + bias + ") -> (" + features + ", " + sums + ", " + sums + ")",
                     Types::None,
                     {{-2, 2}},
                     "%r, %l",
                     false,
                     64});
  }
}

} // namespace tcc::test
