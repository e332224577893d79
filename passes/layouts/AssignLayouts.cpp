//===- AssignLayouts.cpp - which tensors lie channels-last ----------------===//
//
// The library's convolutions copy activations that lie N, C, spatial into a layout of their own and back, at each call.
// Channels-last ones they take as they are. So each op that can work on either layout (LayoutAware, pointwise) is given
// one, and where two that read and write the same tensor differ the tensor is transposed. The cheapest choice is a
// minimum cut: an op is a node, the source stands for N, C, spatial and the sink for channels-last; an edge from an op
// to the sink costs what the library copies if the op is left as it is, an edge from the source what it copies
// channels-last. A tensor costs its transpose once in each direction, however many ops read it (a node for each of the
// two directions, as for nets in the partitioning of circuits). What can't change hangs on the source. Among equally
// cheap cuts fewest ops change, so that a program without convolutions stays as it is.
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

/// Costs of a byte: one that the library copies into its layout or out of it, one that a kernel walks again in memory, and
/// one of a generated transpose, which reads or writes single elements. As measured on Zen 4 over whole steps: networks
/// with batch norms gain channels-last, in f32 a little and in bf16 much, where the operand of a reduction is narrower in
/// memory than its type says.
constexpr int64_t kReorderedFactor = 4, kWalkedFactor = 1, kTurnedFactor = 16;

class Layouts {
public:
  Layouts(func::FuncOp function, const target::Target &target)
      : block(function.getBody().front()), target(target) {}

  void run() {
    if (!collect())
      return;
    solve();
    rewrite();
  }

private:
  /// An op that can work on either layout.
  struct Node {
    SmallVector<unsigned> operands, results; ///< that change with it
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

  /// False where nothing can be won.
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

  /// What an op costs beyond its arithmetic in both layouts.
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
    // The op is built to be asked, then removed.
    OpBuilder builder(op);
    SmallVector<Operation *> made;
    SmallVector<Value> operands(op->getOperands());
    for (unsigned i : nodes.find(op)->second.operands) {
      operands[i] = UnrealizedConversionCastOp::create(builder, op->getLoc(), channelsLastType(operands[i].getType()),
                                                       operands[i])
                        .getResult(0);
      made.push_back(operands[i].getDefiningOp());
    }
    Operation *asked = cast<LayoutAware>(op).buildChannelsLast(builder, operands).front().getDefiningOp();
    std::optional<target::Call> last = target.call(asked);
    asked->erase();
    for (Operation *cast : made)
      cast->erase();
    // What the library does not compute channels-last stays as it is.
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

  static SmallVector<Value> build(Operation &op, OpBuilder &builder, ValueRange operands) {
    if (!op.hasTrait<Pointwise>())
      return cast<LayoutAware>(op).buildChannelsLast(builder, operands);
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

  /// `value`, which stands for a tensor N, C, spatial, in either layout; transposed where its first reader of that
  /// layout stands.
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
