//===- AssignLayouts.cpp - channels-last layouts by a minimum cut ---------===//
//
// The library's convolutions copy activations in the layout N, C, spatial into an internal layout and back, at each
// call, but read channels-last ones directly. So each op that can work on either layout (LayoutAware, pointwise) is
// given one, and a tensor is transposed between ops of different layouts. The cheapest choice is a minimum cut: an op
// is a node, the source stands for N, C, spatial and the sink for channels-last; the edge from an op to the sink costs
// the bytes that the library copies if the op keeps its layout, the edge from the source those that it copies
// channels-last. A tensor costs its transpose once in each direction, however many ops read it (a node for each of the
// two directions, as for nets in the partitioning of circuits). Ops that cannot change count as the source. Among
// equally cheap cuts the fewest ops change, so that a program without convolutions stays as it is.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Layout.h"
#include "compiler/planning/MinimumCut.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_ASSIGNLAYOUTSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// Costs of a byte that the library copies into its layout or out of it, of one that a kernel traverses again, and of
/// one of a generated transpose, which reads or writes single elements. Measured on Zen 4 over whole steps:
/// channels-last makes networks with batch norms faster, in f32 a little and in bf16 much, since there the operand of a
/// reduction is narrower in memory than its type says.
constexpr int64_t kReorderedFactor = 4, kWalkedFactor = 1, kTurnedFactor = 16;

class Layouts {
public:
  Layouts(func::FuncOp function, const target::Target &target)
      : block(function.getBody().front()), target(target), inBlocks(!target.capabilities().reductionUnits) {}

  void run() {
    if (!collect())
      return;
    solve();
    rewrite();
  }

private:
  /// An op that can work on either layout.
  struct Node {
    SmallVector<unsigned> operands, results; ///< numbers of those that change with the op's layout
    int node = 0;
    bool last = false;
  };

  static bool hasChannels(Value value) { return cast<RankedTensorType>(value.getType()).getRank() > 2; }

  static Node describe(Operation &op) {
    Node node;
    if (op.hasTrait<Pointwise>()) {
      node.operands = llvm::to_vector(llvm::seq<unsigned>(0, op.getNumOperands()));
      node.results = llvm::to_vector(llvm::seq<unsigned>(0, op.getNumResults()));
    } else if (auto aware = dyn_cast<LayoutAware>(op)) {
      node.operands = aware.getLaidOutOperands();
      node.results = aware.getLaidOutResults();
    }
    auto flat = [](Value value) { return !hasChannels(value); };
    if (llvm::any_of(op.getResults(), flat) &&
        llvm::any_of(node.results, [&](unsigned i) { return flat(op.getResult(i)); }))
      return {};
    if (llvm::any_of(node.operands, [&](unsigned i) { return flat(op.getOperand(i)); }))
      return {};
    return node;
  }

  /// False if there is no library call, so that no layout can save copies.
  bool collect() {
    bool wins = false;
    for (Operation &op : block.without_terminator()) {
      Node node = describe(op);
      if (node.operands.empty() && node.results.empty())
        continue;
      wins |= isa<LibraryCall>(op);
      nodes.insert({&op, std::move(node)});
    }
    return wins;
  }

  //===-- The choice -----------------------------------------------------------===//

  /// An op's costs beyond its arithmetic: in N, C, spatial, and channels-last.
  std::pair<int64_t, int64_t> costs(Operation *op) {
    if (!isa<LibraryCall>(op)) {
      auto aware = dyn_cast<LayoutAware>(op);
      auto cost = [&](bool channelsLast) -> int64_t {
        LayoutCost moved = aware ? aware.getLayoutCost(channelsLast) : LayoutCost();
        return moved.walked * kWalkedFactor + moved.turned * kTurnedFactor;
      };
      return {cost(false), cost(true)};
    }
    std::optional<target::Call> first = target.call(op);
    if (!first)
      return {0, 0};
    // The channels-last op is built only to query its call, then erased.
    OpBuilder builder(op);
    SmallVector<Operation *> made;
    SmallVector<Value> operands(op->getOperands());
    for (unsigned i : nodes.find(op)->second.operands) {
      operands[i] = UnrealizedConversionCastOp::create(builder, op->getLoc(), channelsLastType(operands[i].getType()),
                                                       operands[i])
                        .getResult(0);
      made.push_back(operands[i].getDefiningOp());
    }
    Operation *asked = cast<LayoutAware>(op).buildChannelsLast(builder, operands, inBlocks).front().getDefiningOp();
    std::optional<target::Call> last = target.call(asked);
    asked->erase();
    for (Operation *cast : made)
      cast->erase();
    // An op that the library cannot compute channels-last keeps its layout.
    return {int64_t(first->reorderedBytes) * kReorderedFactor,
            last ? int64_t(last->reorderedBytes) * kReorderedFactor : planning::FlowNetwork::kUnlimited};
  }

  static int64_t transposeBytes(Value value) {
    auto constant = value.getDefiningOp<ConstantOp>();
    if (isLaidOutAlike(value.getType()) || (constant && isa<SplatElementsAttr>(constant.getValue())))
      return 0;
    auto type = cast<RankedTensorType>(value.getType());
    return type.getNumElements() * int64_t(llvm::divideCeil(type.getElementTypeBitWidth(), 8)) * kTurnedFactor;
  }

  void solve() {
    using planning::FlowNetwork;
    FlowNetwork network;
    int source = network.addNode(), sink = network.addNode();
    for (auto &[op, node] : nodes)
      node.node = network.addNode();
    for (auto &[op, node] : nodes) {
      auto [first, last] = costs(op);
      network.addEdge(node.node, sink, first);
      network.addEdge(source, node.node, last);
    }
    auto addValue = [&](Value value, int producer) {
      int64_t bytes = transposeBytes(value);
      if (bytes == 0 || value.use_empty())
        return;
      int forth = network.addNode(), back = network.addNode();
      network.addEdge(producer, forth, bytes);
      network.addEdge(back, producer, bytes);
      for (OpOperand &use : value.getUses()) {
        auto user = nodes.find(use.getOwner());
        bool moves = user != nodes.end() && llvm::is_contained(user->second.operands, use.getOperandNumber());
        int node = moves ? user->second.node : source;
        if (node != source)
          network.addEdge(forth, node, FlowNetwork::kUnlimited);
        network.addEdge(node, back, FlowNetwork::kUnlimited);
      }
    };
    for (Value argument : block.getArguments())
      if (hasChannels(argument))
        addValue(argument, source);
    for (Operation &op : block.without_terminator()) {
      auto found = nodes.find(&op);
      for (OpResult result : op.getResults())
        if (isa<RankedTensorType>(result.getType()) && hasChannels(result)) {
          bool moves = found != nodes.end() && llvm::is_contained(found->second.results, result.getResultNumber());
          addValue(result, moves ? found->second.node : source);
        }
    }
    std::vector<bool> last = network.cut(source, sink);
    for (auto &[op, node] : nodes)
      node.last = last[node.node];
    if (!inBlocks)
      followChannels();
  }

  /// Numbers of channels (a mean, a scale) are the same bytes in both layouts. Where split-reductions makes kernels of
  /// reductions, ops on them take the layout of their operands: no reshape then keeps them out of the kernel that adds
  /// the last sums.
  void followChannels() {
    auto isRow = [](Value value) {
      ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
      return llvm::all_of(shape.drop_front(2), [](int64_t extent) { return extent == 1; });
    };
    auto isLast = [&](Value value) {
      auto found = nodes.find(value.getDefiningOp());
      return found != nodes.end() && found->second.last &&
             llvm::is_contained(found->second.results, cast<OpResult>(value).getResultNumber());
    };
    for (auto &[op, node] : nodes) {
      auto operands = llvm::map_range(node.operands, [op = op](unsigned i) { return op->getOperand(i); });
      auto results = llvm::map_range(node.results, [op = op](unsigned i) -> Value { return op->getResult(i); });
      if (!isa<LibraryCall>(op) && llvm::all_of(operands, isRow) && llvm::all_of(results, isRow))
        node.last |= llvm::any_of(operands, isLast);
    }
  }

  //===-- The rewrite ----------------------------------------------------------===//

  void rewrite() {
    SmallVector<Operation *> replaced;
    for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
      auto found = nodes.find(&op);
      if (found == nodes.end() || !found->second.last) {
        readFirst(op);
        continue;
      }
      OpBuilder builder(&op);
      SmallVector<Value> operands(op.getOperands());
      for (auto [index, operand] : llvm::enumerate(operands))
        operand =
            llvm::is_contained(found->second.operands, index) ? asLast(builder, operand) : asFirst(builder, operand);
      SmallVector<Value> results = build(op, builder, operands);
      for (auto [index, result] : llvm::enumerate(op.getResults()))
        if (llvm::is_contained(found->second.results, index))
          inLast[result] = results[index];
        else
          result.replaceAllUsesWith(results[index]);
      replaced.push_back(&op);
    }
    readFirst(*block.getTerminator());
    for (Operation *op : llvm::reverse(replaced))
      op->erase();
  }

  SmallVector<Value> build(Operation &op, OpBuilder &builder, ValueRange operands) {
    if (!op.hasTrait<Pointwise>())
      return cast<LayoutAware>(op).buildChannelsLast(builder, operands, inBlocks);
    SmallVector<Type> types;
    for (Type type : op.getResultTypes())
      types.push_back(channelsLastType(type));
    OperationState state(op.getLoc(), op.getName().getStringRef(), operands, types, op.getAttrs());
    return SmallVector<Value>(builder.create(state)->getResults());
  }

  void readFirst(Operation &op) {
    OpBuilder builder(&op);
    for (OpOperand &operand : op.getOpOperands())
      operand.set(asFirst(builder, operand.get()));
  }

  /// The channels-last (or N, C, spatial) form of `value`; a transpose, if needed, is inserted before its first reader
  /// of that layout.
  Value asLast(OpBuilder &builder, Value value) {
    Value &last = inLast[value];
    if (!last)
      last = toChannelsLast(builder, value.getLoc(), value);
    return last;
  }
  Value asFirst(OpBuilder &builder, Value value) {
    Operation *producer = value.getDefiningOp();
    auto found = producer ? nodes.find(producer) : nodes.end();
    if (found == nodes.end() || !found->second.last ||
        !llvm::is_contained(found->second.results, cast<OpResult>(value).getResultNumber()))
      return value;
    Value &first = inFirst[value];
    if (!first)
      first = toChannelsFirst(builder, value.getLoc(), inLast.lookup(value));
    return first;
  }

  Block &block;
  llvm::MapVector<Operation *, Node> nodes;
  llvm::DenseMap<Value, Value> inLast, inFirst;
  const target::Target &target;
  const bool inBlocks; ///< long reductions become two; else split-reductions cuts them later
};

struct AssignLayouts : impl::AssignLayoutsPassBase<AssignLayouts> {
  void runOnOperation() override {
    const target::Target *target = target::targetOf(getOperation());
    if (target && getOperation()->hasAttr(names::kEntry))
      Layouts(getOperation(), *target).run();
  }
};

} // namespace

} // namespace tcc::train
