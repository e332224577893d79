//===- AttributeRules.h - the values that ONNX allows for attributes ----------===//
//
// The checker of the ONNX library knows which attributes an op has, their types, and which are required. What values they
// may have is in the text of the op's documentation alone; this table repeats it, so that an importer sees no other.
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

/// One attribute of some ops of ai.onnx: words, or a range of numbers, for lists of every element.
struct AttributeRule {
  std::string_view attribute;
  std::vector<std::string_view> ops; ///< empty: all that have it
  std::vector<std::string_view> words;
  int64_t least = 0, most = std::numeric_limits<int64_t>::max();

  /// "'DCR' or 'CRD'", "0 or 1", "at least 1".
  std::string text() const;
};

std::span<const AttributeRule> attributeRules();

/// The rule of an op's attribute: that of the op before that of all. Null: any value is good, or depends on more than the
/// attribute, and its importer checks it.
const AttributeRule *findAttributeRule(std::string_view op, std::string_view attribute);

/// What is wrong with a node's attributes: the first one that is out of range. Empty: none.
std::string attributeProblem(const onnx::NodeProto &node);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ATTRIBUTERULES_H
