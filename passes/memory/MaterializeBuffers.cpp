//===- MaterializeBuffers.cpp - give stored values their buffers ----------===//
#include "compiler/dialect/Views.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/Buffers.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_MATERIALIZEBUFFERSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// Records which writers of new state must run after the readers of the old. Two updates that read each other's
/// variables cannot both do so.
class Waits {
public:
  /// True if a reader of the state depends, by operands or by existing waits, on a result of the writer.
  bool inACircle(Value newState, BlockArgument state) const {
    Operation *writer = newState.getDefiningOp();
    llvm::SmallPtrSet<Operation *, 16> readers, seen{writer};
    for (Operation *reader : readersOf(state))
      if (reader != writer)
        readers.insert(reader);
    SmallVector<Operation *> work{writer};
    while (!work.empty()) {
      Operation *op = work.pop_back_val();
      if (readers.contains(op))
        return true;
      SmallVector<Operation *> next(op->getUsers());
      if (auto found = after.find(op); found != after.end())
        llvm::append_range(next, found->second);
      for (Operation *later : next)
        if (seen.insert(later).second)
          work.push_back(later);
    }
    return false;
  }

  void add(Value newState, BlockArgument state) {
    Operation *writer = newState.getDefiningOp();
    for (Operation *reader : readersOf(state))
      if (reader != writer)
        after[reader].push_back(writer);
  }

private:
  /// The ops that read a value, directly or through views.
  static SmallVector<Operation *> readersOf(Value value) {
    SmallVector<Operation *> readers;
    for (OpOperand *use : usesAcrossViews(value))
      if (!use->getOwner()->hasTrait<OpTrait::IsTerminator>())
        readers.push_back(use->getOwner());
    return readers;
  }

  llvm::DenseMap<Operation *, SmallVector<Operation *>> after;
};

struct MaterializeBuffers : impl::MaterializeBuffersPassBase<MaterializeBuffers> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(names::kEntry)) {
        separateReturned(function);
        separateInPlace(function);
        placeConstants(function);
      }
  }

private:
  static Value copyBefore(Operation *user, Value value) {
    OpBuilder builder(user);
    return CopyOp::create(builder, user->getLoc(), value.getType(), value);
  }

  /// Gives each returned value a buffer of its own. New state overwrites the old if all readers of the old state can
  /// run before.
  void separateReturned(func::FuncOp function) {
    Operation *terminator = function.getBody().front().getTerminator();
    llvm::DenseSet<Value> claimed;
    const StateArguments state(function);
    Waits waits;
    for (OpOperand &operand : terminator->getOpOperands()) {
      Value root = rootOf(operand.get());
      auto variable = function.getResultAttrOfType<StringAttr>(operand.getOperandNumber(), names::kVariable);
      BlockArgument argument = variable ? state.lookup(variable.getValue()) : BlockArgument();
      if (argument && root == argument)
        continue; // unchanged state
      bool constant = root.getDefiningOp() && isa<ConstantOp>(root.getDefiningOp());
      bool inTheWay = argument && (!canWriteOver(operand.get(), argument) || waits.inACircle(root, argument));
      // A view of another shape is fine for an output; state keeps its own.
      if (isa<BlockArgument>(root) || constant || inTheWay || !claimed.insert(root).second) {
        operand.set(copyBefore(terminator, operand.get()));
        claimed.insert(operand.get());
      } else if (argument) {
        waits.add(root, argument);
      }
    }
  }

  /// Gives an instruction sole ownership of the operand that it updates in place.
  void separateInPlace(func::FuncOp function) {
    SmallVector<Operation *> instructions(llvm::make_pointer_range(function.getBody().front().without_terminator()));
    const StateArguments state(function);
    for (Operation *updating : instructions) {
      int operand = requiredInPlaceOperand(updating);
      if (operand < 0)
        continue;
      Value value = updating->getOperand(unsigned(operand));
      Value root = rootOf(value);
      auto isSplat = [](Value constant) {
        auto op = constant.getDefiningOp<ConstantOp>();
        return op && isa<SplatElementsAttr>(op.getValue());
      };
      if (isSplat(root)) {
        OpBuilder builder(updating);
        auto constant = root.getDefiningOp<ConstantOp>();
        updating->setOperand(unsigned(operand), fill(builder, constant, value.getType()));
        returnByCopy(function, state, updating, operand);
        continue;
      }
      bool alone = root.getDefiningOp() && soleRootOf(value);
      // State that this instruction writes next may be updated in place.
      if (auto argument = dyn_cast<BlockArgument>(root))
        for (OpOperand *returned : returnedFrom(updating->getResult(0))) {
          auto variable = function.getResultAttrOfType<StringAttr>(returned->getOperandNumber(), names::kVariable);
          alone |= variable && variableOf(function, argument) == variable;
        }
      if (!alone)
        updating->setOperand(unsigned(operand), copyBefore(updating, value));
      returnByCopy(function, state, updating, operand);
    }
  }

  /// Copies the in-place result into its variable at the end, unless the variable itself was updated in place.
  static void returnByCopy(func::FuncOp function, const StateArguments &state, Operation *updating, int operand) {
    Operation *terminator = function.getBody().front().getTerminator();
    for (OpOperand *use : returnedFrom(updating->getResult(0))) {
      auto variable = function.getResultAttrOfType<StringAttr>(use->getOperandNumber(), names::kVariable);
      BlockArgument argument = variable ? state.lookup(variable.getValue()) : BlockArgument();
      if (argument && rootOf(updating->getOperand(unsigned(operand))) != argument)
        use->set(copyBefore(terminator, use->get()));
    }
  }

  /// The uses that return a value, directly or through views, in the order of the results.
  static SmallVector<OpOperand *> returnedFrom(Value value) {
    SmallVector<OpOperand *> found = usesAcrossViews(value);
    llvm::erase_if(found, [](OpOperand *use) { return !use->getOwner()->hasTrait<OpTrait::IsTerminator>(); });
    llvm::sort(found, [](OpOperand *a, OpOperand *b) { return a->getOperandNumber() < b->getOperandNumber(); });
    return found;
  }

  static Value fill(OpBuilder &builder, ConstantOp constant, Type type) {
    // A splat: its first element is enough.
    auto dense = cast<DenseElementsAttr>(constant.getValue());
    HostTensor tensor =
        HostTensor::fromAttribute(dense.resizeSplat(RankedTensorType::get({}, dense.getElementType())));
    double value = tensor.isFloat() ? tensor.getDouble(0) : double(tensor.getInt(0));
    return FillOp::create(builder, constant.getLoc(), type, builder.getF64FloatAttr(value));
  }

  /// Makes constants outside kernels fills if all their elements are equal, and state otherwise; equal ones share it.
  void placeConstants(func::FuncOp function) {
    ModuleOp module = getOperation();
    SmallVector<ConstantOp> constants(function.getBody().front().getOps<ConstantOp>());
    const StateArguments state(function);
    SymbolTable symbols(module);
    // Insert all arguments at once, since each insertion rebuilds the lists of arguments and attributes.
    SmallVector<Type> types;
    SmallVector<DictionaryAttr> attributes;
    SmallVector<Location> locations;
    SmallVector<std::pair<ConstantOp, unsigned>> placed;
    llvm::StringMap<unsigned> added;
    for (ConstantOp constant : constants) {
      if (constant.use_empty()) {
        constant.erase();
        continue;
      }
      OpBuilder builder(constant);
      if (isa<SplatElementsAttr>(constant.getValue())) {
        constant.replaceAllUsesWith(fill(builder, constant, constant.getType()));
        constant.erase();
        continue;
      }
      std::string name = nameOf(constant);
      if (!symbols.lookup(name)) {
        OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
        auto variable = VariableOp::create(top, constant.getLoc(), name, constant.getType(), "constant", nullptr,
                                           constant.getValue());
        symbols.insert(variable, module.getBody()->begin());
      }
      if (BlockArgument argument = state.lookup(name)) {
        constant.replaceAllUsesWith(argument);
        constant.erase();
        continue;
      }
      auto [found, fresh] = added.try_emplace(name, function.getNumArguments() + unsigned(types.size()));
      if (fresh) {
        types.push_back(constant.getType());
        attributes.push_back(
            builder.getDictionaryAttr({builder.getNamedAttr(names::kVariable, builder.getStringAttr(name))}));
        locations.push_back(constant.getLoc());
      }
      placed.push_back({constant, found->second});
    }
    SmallVector<unsigned> positions(types.size(), function.getNumArguments());
    if (failed(function.insertArguments(positions, types, attributes, locations)))
      return signalPassFailure();
    for (auto [constant, number] : placed) {
      constant.replaceAllUsesWith(function.getArgument(number));
      constant.erase();
    }
  }

  static std::string nameOf(ConstantOp constant) {
    HostTensor tensor = HostTensor::fromAttribute(constant.getValue());
    std::string text;
    llvm::raw_string_ostream stream(text);
    stream << constant.getType() << ";";
    stream.write(tensor.data(), tensor.sizeBytes());
    auto hash = llvm::xxh3_128bits(llvm::ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
    std::string name = "constant/";
    llvm::raw_string_ostream(name) << llvm::format_hex_no_prefix(hash.high64, 16)
                                   << llvm::format_hex_no_prefix(hash.low64, 16);
    return name;
  }
};

} // namespace

} // namespace tcc::train
