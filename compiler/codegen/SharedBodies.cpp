//===- SharedBodies.cpp - one body for alike kernels ----------------------===//
//
// Two bodies are alike if a walk of both, op by op, meets the same ops with the same attributes, types and operands,
// but for the values of integer constants. Constants that have the same value as each other in every kernel of a group
// become one argument.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/SharedBodies.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <map>
#include <optional>
#include <vector>

using namespace mlir;

namespace tcc::codegen {

namespace {

/// Least number of iterations of an innermost loop whose end may become a variable: LLVM unrolls shorter ones.
constexpr int64_t kLongLoop = 64;

/// An integer of the kernel's address arithmetic; others (bits of numbers, lanes) stay constants.
bool isAddress(arith::ConstantOp constant) { return constant.getType().isInteger(64); }

int64_t valueOf(arith::ConstantOp constant) { return cast<IntegerAttr>(constant.getValue()).getInt(); }

bool isInnermost(Operation *loop) {
  return !loop->walk([&](LoopLikeOpInterface inner) {
                return inner == loop ? WalkResult::advance() : WalkResult::interrupt();
              })
              .wasInterrupted();
}

/// Iterations of a loop; none if they are not constant.
std::optional<int64_t> iterations(scf::ForOp loop) {
  APInt lower, upper, step;
  if (!matchPattern(loop.getLowerBound(), m_ConstantInt(&lower)) ||
      !matchPattern(loop.getUpperBound(), m_ConstantInt(&upper)) || !matchPattern(loop.getStep(), m_ConstantInt(&step)))
    return std::nullopt;
  return (upper.getSExtValue() - lower.getSExtValue()) / std::max<int64_t>(1, step.getSExtValue());
}

/// Would a variable in place of this constant cost time?
bool mustStay(arith::ConstantOp constant) {
  return llvm::any_of(constant->getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto loop = dyn_cast<scf::ForOp>(user)) {
      std::optional<int64_t> count = iterations(loop);
      return count && *count < kLongLoop && isInnermost(loop);
    }
    if (!isa<arith::DivUIOp, arith::RemUIOp, arith::DivSIOp, arith::RemSIOp>(user) || use.getOperandNumber() != 1)
      return false;
    auto loop = user->getParentOfType<LoopLikeOpInterface>();
    return loop && isInnermost(loop);
  });
}

/// A kernel's body and the function that workers call, which calls the body.
struct Kernel {
  LLVM::LLVMFuncOp body;
  LLVM::CallOp call;
  std::vector<arith::ConstantOp> constants; ///< of addresses, in the order of the walk
};

/// Compares two bodies.
class Comparison {
public:
  bool areAlike(LLVM::LLVMFuncOp one, LLVM::LLVMFuncOp other) {
    return one.getFunctionType() == other.getFunctionType() && one.getPassthroughAttr() == other.getPassthroughAttr() &&
           one.getArgAttrsAttr() == other.getArgAttrsAttr() && areAlike(one.getBody(), other.getBody());
  }

private:
  bool areAlike(Region &one, Region &other) {
    if (!llvm::hasSingleElement(one) || !llvm::hasSingleElement(other))
      return one.empty() && other.empty();
    Block &first = one.front(), &second = other.front();
    if (first.getArgumentTypes() != second.getArgumentTypes() ||
        first.getOperations().size() != second.getOperations().size())
      return false;
    for (auto [a, b] : llvm::zip_equal(first.getArguments(), second.getArguments()))
      twins[a] = b;
    return llvm::all_of(llvm::zip_equal(first, second),
                        [&](auto pair) { return areAlike(std::get<0>(pair), std::get<1>(pair)); });
  }

  bool areAlike(Operation &one, Operation &other) {
    if (one.getName() != other.getName() || one.getResultTypes() != other.getResultTypes() ||
        one.getNumOperands() != other.getNumOperands() || one.getNumRegions() != other.getNumRegions())
      return false;
    auto constant = dyn_cast<arith::ConstantOp>(one);
    if (constant && isAddress(constant)) {
      auto twin = cast<arith::ConstantOp>(other);
      if (valueOf(constant) != valueOf(twin) && (mustStay(constant) || mustStay(twin)))
        return false;
    } else if (one.getAttrDictionary() != other.getAttrDictionary() || !one.hasTrait<OpTrait::ZeroSuccessors>()) {
      return false;
    }
    for (auto [a, b] : llvm::zip_equal(one.getOperands(), other.getOperands()))
      if (twins.lookup(a) != b)
        return false;
    for (auto [a, b] : llvm::zip_equal(one.getResults(), other.getResults()))
      twins[a] = b;
    return llvm::all_of(llvm::zip_equal(one.getRegions(), other.getRegions()),
                        [&](auto pair) { return areAlike(std::get<0>(pair), std::get<1>(pair)); });
  }

  llvm::DenseMap<Value, Value> twins; ///< of the first body's values in the second
};

/// Replaces the bodies of a group by the first one.
void share(MutableArrayRef<Kernel> group) {
  Kernel &first = group.front();
  OpBuilder b(first.body.getContext());
  Block &entry = first.body.getBody().front();
  // The values of a constant, one for each kernel, and the argument that has them.
  llvm::MapVector<SmallVector<int64_t>, Value, std::map<SmallVector<int64_t>, unsigned>> arguments;
  SmallVector<Type> types(first.body.getFunctionType().getParams());
  for (auto [number, constant] : llvm::enumerate(first.constants)) {
    SmallVector<int64_t> values;
    for (Kernel &kernel : group)
      values.push_back(valueOf(kernel.constants[number]));
    if (llvm::all_equal(values))
      continue;
    Value &argument = arguments[values];
    if (!argument) {
      argument = entry.addArgument(constant.getType(), constant.getLoc());
      types.push_back(constant.getType());
    }
    constant.getResult().replaceAllUsesWith(argument);
    constant->erase();
  }
  LLVM::LLVMFuncOp body = first.body;
  body.setFunctionType(LLVM::LLVMFunctionType::get(body.getFunctionType().getReturnType(), types));
  if (ArrayAttr attributes = body.getArgAttrsAttr()) {
    SmallVector<Attribute> all(attributes.getValue());
    all.resize(types.size(), b.getDictionaryAttr({}));
    body.setArgAttrsAttr(b.getArrayAttr(all));
  }
  SmallVector<Attribute> attributes;
  for (Attribute attribute : body.getPassthroughAttr())
    attributes.push_back(attribute == b.getStringAttr("alwaysinline") ? b.getStringAttr("noinline") : attribute);
  body.setPassthroughAttr(b.getArrayAttr(attributes));
  for (auto [number, kernel] : llvm::enumerate(group)) {
    b.setInsertionPoint(kernel.call);
    SmallVector<Value> operands(kernel.call.getOperands());
    for (const auto &[values, argument] : arguments)
      operands.push_back(
          LLVM::ConstantOp::create(b, kernel.call.getLoc(), argument.getType(), b.getI64IntegerAttr(values[number])));
    LLVM::CallOp::create(b, kernel.call.getLoc(), body, operands);
    kernel.call->erase();
    if (number > 0)
      kernel.body->erase();
  }
}

} // namespace

unsigned shareBodies(ModuleOp module) {
  std::vector<std::vector<Kernel>> groups;
  SymbolTable symbols(module);
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    function.walk([&](LLVM::CallOp call) {
      auto body = call.getCallee() ? symbols.lookup<LLVM::LLVMFuncOp>(*call.getCallee()) : LLVM::LLVMFuncOp();
      if (!body || body.getLinkage() != LLVM::Linkage::Internal)
        return;
      Kernel kernel{body, call, {}};
      body.walk([&](arith::ConstantOp constant) {
        if (isAddress(constant))
          kernel.constants.push_back(constant);
      });
      auto alike = llvm::find_if(
          groups, [&](std::vector<Kernel> &group) { return Comparison().areAlike(group.front().body, body); });
      if (alike == groups.end())
        groups.push_back({std::move(kernel)});
      else
        alike->push_back(std::move(kernel));
    });
  unsigned replaced = 0;
  for (std::vector<Kernel> &group : groups)
    if (group.size() > 1) {
      share(group);
      replaced += unsigned(group.size() - 1);
    }
  return replaced;
}

} // namespace tcc::codegen
