//===- DeriveIndexRanges.cpp - legal values of inputs that are indices -----===//
//
// A walk from each table back to the graph's inputs. An op with several operands that carry indices (a concatenation)
// branches; a value is visited once for each table, so that a walk is linear in the ops that it passes.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/IndexRange.h"
#include "passes/Common.h"
#include "passes/Passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_DERIVEINDEXRANGESPASS
#include "passes/Passes.h.inc"

namespace {

/// Most ops that one walk visits: few ops compute an index, and a walk for each table must not become quadratic.
constexpr unsigned kMostIndexSteps = 256;

struct DeriveIndexRangesPass : impl::DeriveIndexRangesPassBase<DeriveIndexRangesPass> {
  void runOnOperation() override {
    func::FuncOp forward = lookupFunction(getOperation(), "forward");
    if (!forward)
      return;
    Block &body = forward.getBody().front();
    found.clear();
    forward.walk([&](IndexedAccess access) {
      if (std::optional<IndexUse> use = access.getIndexUse())
        follow(access, *use, body);
    });
    for (auto &[number, ranges] : found)
      forward.setArgAttr(number, names::kIndexRanges, ArrayAttr::get(&getContext(), ranges.getArrayRef()));
  }

private:
  void follow(Operation *access, const IndexUse &use, Block &body) {
    Value indices = access->getOperand(use.operand);
    if (cast<RankedTensorType>(indices.getType()).getNumElements() == 0)
      return;
    IndexDemand first;
    first.low = use.low;
    first.high = use.high;
    llvm::SmallVector<std::pair<Value, IndexDemand>> open = {{indices, first}};
    llvm::DenseSet<Value> seen = {indices};
    for (unsigned steps = 0; !open.empty() && steps < kMostIndexSteps; ++steps) {
      auto [value, demand] = open.pop_back_val();
      if (demand.low == IndexDemand().low && demand.high == IndexDemand().high)
        continue; // a clipped index is always legal
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        if (argument.getOwner() == &body && isa<IntegerType>(elementTypeOf(value)))
          found[argument.getArgNumber()].insert(describe(access, use, demand));
        continue;
      }
      auto flow = dyn_cast_or_null<IntegerFlow>(value.getDefiningOp());
      if (!flow)
        continue;
      for (OpOperand &operand : flow->getOpOperands())
        if (std::optional<IndexDemand> next = flow.pullBack(operand.getOperandNumber(), demand);
            next && seen.insert(operand.get()).second)
          open.emplace_back(operand.get(), *next);
    }
  }

  DictionaryAttr describe(Operation *access, const IndexUse &use, const IndexDemand &demand) {
    Builder builder(&getContext());
    std::string table;
    if (use.table)
      if (auto read = use.table.getDefiningOp<ReadOp>())
        table = read.getVariable().str();
    NamedAttrList range;
    range.set("low", builder.getI64IntegerAttr(demand.low));
    range.set("high", builder.getI64IntegerAttr(demand.high));
    range.set("extent", builder.getI64IntegerAttr(use.extent));
    range.set("axis", builder.getI64IntegerAttr(use.axis));
    range.set("node", builder.getStringAttr(nodeName(access->getLoc())));
    range.set("table", builder.getStringAttr(table));
    if (!demand.ofAll()) {
      range.set("begin", builder.getDenseI64ArrayAttr(demand.begin));
      range.set("end", builder.getDenseI64ArrayAttr(demand.end));
    }
    if (!use.exceptions.empty())
      range.set("exceptions", builder.getDenseI64ArrayAttr(use.exceptions));
    return range.getDictionary(&getContext());
  }

  llvm::MapVector<unsigned, llvm::SetVector<Attribute>> found;
};

} // namespace
} // namespace tcc::train
