//===- FrontierRows.cpp - the points of an entry's frontier ---------------===//
#include "passes/FrontierRows.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

namespace tcc::train {

namespace {
struct Row {
  explicit Row(Attribute attribute) : attribute(attribute) {
    auto row = cast<DictionaryAttr>(attribute);
    auto number = [&](llvm::StringRef key) { return cast<IntegerAttr>(row.get(key)).getInt(); };
    host = number("host_bytes") + number("moved_state_bytes");
    device = number("bytes") - number("moved_state_bytes");
    cost = number("cost");
    isChosen = row.getAs<BoolAttr>("chosen").getValue();
  }
  bool isAtMost(const Row &other) const { return device <= other.device && host <= other.host && cost <= other.cost; }

  Attribute attribute;
  int64_t device = 0; ///< relative to all state on the device
  int64_t host = 0, cost = 0;
  bool isChosen = false;
};
} // namespace

ArrayAttr withoutBeatenRows(MLIRContext *context, llvm::ArrayRef<Attribute> attributes) {
  auto rows = llvm::map_to_vector(attributes, [](Attribute attribute) { return Row(attribute); });
  llvm::stable_sort(rows, [](const Row &a, const Row &b) {
    return std::tuple(a.host > 0, a.host > 0 ? 0 : a.cost) < std::tuple(b.host > 0, b.host > 0 ? 0 : b.cost);
  });
  llvm::SmallVector<Attribute> kept;
  for (const auto &[place, row] : llvm::enumerate(rows)) {
    const bool isBeaten = llvm::any_of(llvm::enumerate(rows), [&, place = place, &row = row](const auto &other) {
      const bool areEqual = other.value().isAtMost(row) && row.isAtMost(other.value());
      return areEqual ? other.index() < place : other.value().isAtMost(row);
    });
    if (row.isChosen || !isBeaten)
      kept.push_back(row.attribute);
  }
  return ArrayAttr::get(context, kept);
}

} // namespace tcc::train
