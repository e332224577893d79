//===- AttributeRules.h - the values that ONNX allows for attributes ----------===//
//
// The checker of the ONNX library knows which attributes an op has, their types, and which are required. Which values
// are legal is only in the text of the op's documentation. This table has those rules, so that an importer sees legal
// values only.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_ATTRIBUTERULES_H
#define TCC_FRONTEND_ATTRIBUTERULES_H

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <onnx/onnx_pb.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::frontend {

/// The legal values of one attribute of some ops of ai.onnx: words, or a range of numbers (for lists, of each element).
struct AttributeRule {
  std::string_view attribute;
  std::vector<std::string_view> ops; ///< empty: all ops that have the attribute
  std::vector<std::string_view> words;
  int64_t least = 0, most = std::numeric_limits<int64_t>::max();

  /// "'DCR' or 'CRD'", "0 or 1", "at least 1".
  std::string text() const;
};

std::span<const AttributeRule> attributeRules();

/// The rule of an op's attribute; a rule of the op precedes one of all ops. Null: any value is legal, or the rule
/// depends on more than the attribute and the importer checks it.
const AttributeRule *findAttributeRule(std::string_view op, std::string_view attribute);

/// Describes the first attribute of a node whose value is not legal; empty if there is none.
std::string attributeProblem(const onnx::NodeProto &node);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ATTRIBUTERULES_H
