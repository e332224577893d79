//===- AttributeRulesTest.cpp - attributes of every op with values that ONNX does not allow -===//
#include "frontend/AttributeRules.h"

#include <gmock/gmock.h>
#include <onnx/defs/schema.h>
#include <set>

using namespace tcc::frontend;
using testing::HasSubstr;

namespace {
onnx::AttributeProto attributeOf(const std::string &name, int type) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(static_cast<onnx::AttributeProto::AttributeType>(type));
  return attribute;
}

onnx::NodeProto nodeWith(const std::string &op, const onnx::AttributeProto &attribute) {
  onnx::NodeProto node;
  node.set_op_type(op);
  *node.add_attribute() = attribute;
  return node;
}

/// Attributes without a rule: valid values depend on shapes or other attributes, or all values are valid. Importers
/// check them.
const std::set<std::string> kFree = {
    // axes, orders and element counts of the operands
    "axes", "axis", "end", "perm", "scan_input_axes", "scan_output_axes", "split", "start", "starts", "ends", "paddings",
    // data types, which importedElementType knows
    "dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type", "to",
    // values of the model's own
    "ignore_index", "k", "pool_int64s", "seed", "shape", "value_int", "value_ints", "value_string", "equation", "pool_strings",
    "activations", "value_strings",
    // attributes of ops on strings and pictures, which have no importer, and a word that its importer checks
    "activation", "case_change_action", "delimiter", "is_case_sensitive", "locale", "maxsplit", "pattern", "pixel_format",
    // attributes that do not change the result: hints, marks of old versions, "if nonzero"
    "chunk_size", "consumed_inputs", "is_test", "classes_count"};

int checked = 0;
} // namespace

/// Every attribute of every ONNX op has a rule or is named above, and each rule is enforced.
TEST(AttributeRules, EveryOpAndAttribute) {
  std::set<std::string> unruled;
  for (const onnx::OpSchema &schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    if (!schema.domain().empty())
      continue;
    const std::string op = schema.Name();
    for (const auto &[name, attribute] : schema.attributes()) {
      const bool numbers = attribute.type == onnx::AttributeProto::INT || attribute.type == onnx::AttributeProto::INTS;
      if (!numbers && attribute.type != onnx::AttributeProto::STRING)
        continue;
      SCOPED_TRACE(op + "." + name);
      const AttributeRule *rule = findAttributeRule(op, name);
      if (!rule) {
        if (!kFree.contains(name))
          unruled.insert(op + "." + name);
        continue;
      }
      EXPECT_EQ(rule->words.empty(), numbers) << "a rule of another type";
      auto problemOf = [&](int64_t value) {
        onnx::AttributeProto made = attributeOf(name, attribute.type);
        if (attribute.type == onnx::AttributeProto::INT)
          made.set_i(value);
        else
          made.add_ints(value);
        ++checked;
        return attributeProblem(nodeWith(op, made));
      };
      if (numbers) {
        for (int64_t good : {rule->least, rule->most})
          EXPECT_EQ(problemOf(good), "");
        constexpr auto kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
        if (rule->least > kLeast)
          for (int64_t bad : {rule->least - 1, rule->least - 3, kLeast})
            EXPECT_THAT(problemOf(bad), HasSubstr("its attribute " + name + " is " + std::to_string(bad)));
        if (rule->most < kMost)
          for (int64_t bad : {rule->most + 1, kMost})
            EXPECT_THAT(problemOf(bad), HasSubstr(rule->text()));
        continue;
      }
      for (const std::string &word : {std::string("XYZ"), std::string(), std::string(1 << 20, 'x'), std::string("\0", 1)}) {
        onnx::AttributeProto made = attributeOf(name, attribute.type);
        made.set_s(word);
        const std::string problem = attributeProblem(nodeWith(op, made));
        EXPECT_THAT(problem, HasSubstr("its attribute " + name + " is '"));
        EXPECT_LT(problem.size(), 500u);
        ++checked;
      }
      for (std::string_view word : rule->words) {
        onnx::AttributeProto made = attributeOf(name, attribute.type);
        made.set_s(std::string(word));
        EXPECT_EQ(attributeProblem(nodeWith(op, made)), "");
      }
      // ONNX's own default is valid, except a word that version 1 of GRU misspells.
      if (attribute.default_value.has_type() && attribute.default_value.s() != "foward")
        EXPECT_EQ(attributeProblem(nodeWith(op, [&] {
                    onnx::AttributeProto made = attribute.default_value;
                    made.set_name(name);
                    return made;
                  }())),
                  "");
    }
  }
  EXPECT_THAT(unruled, testing::IsEmpty());
  EXPECT_GT(checked, 1000);
}

TEST(AttributeRules, OtherDomainsHaveTheirOwn) {
  onnx::AttributeProto made = attributeOf("mode", onnx::AttributeProto::STRING);
  made.set_s("XYZ");
  onnx::NodeProto node = nodeWith("DepthToSpace", made);
  EXPECT_EQ(attributeProblem(node),
            "its attribute mode is 'XYZ'; ONNX allows 'DCR' or 'CRD': export the model again, or correct the attribute");
  node.set_domain("com.example");
  EXPECT_EQ(attributeProblem(node), "");
}
