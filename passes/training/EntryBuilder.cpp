//===- EntryBuilder.cpp - an entry function while it is being built --------===//
#include "passes/training/EntryBuilder.h"

#include "passes/Common.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace tcc::train {

EntryBuilder::EntryBuilder(ModuleOp module, llvm::StringRef entry)
    : builder(module.getContext()), module(module), symbols(module) {
  builder.setInsertionPointToEnd(module.getBody());
  Location loc = NameLoc::get(builder.getStringAttr(entry));
  function = func::FuncOp::create(builder, loc, entry, builder.getFunctionType({}, {}));
  function->setAttr(names::kEntry, builder.getStringAttr(entry));
  body = function.addEntryBlock();
  builder.setInsertionPointToEnd(body);
}

llvm::SmallVector<Value> EntryBuilder::inlineBody(func::FuncOp source, bool keepInputs, Mode mode) {
  assert(body->getNumArguments() == 0 && "the inputs come first");
  IRMapping mapping;
  Block &from = source.getBody().front();
  for (BlockArgument argument : from.getArguments()) {
    if (argument.use_empty() && !keepInputs)
      continue;
    mapping.map(argument, body->addArgument(argument.getType(), argument.getLoc()));
    DictionaryAttr attributes = source.getArgAttrDict(argument.getArgNumber());
    inputAttributes.push_back(attributes ? attributes : builder.getDictionaryAttr({}));
  }
  for (Operation &op : from.without_terminator()) {
    if (auto read = dyn_cast<ReadOp>(op)) {
      // If a module is called twice, its second call reads the value that the first one wrote.
      auto found = llvm::find_if(writes, [&](auto &write) { return write.first == read.getVariable(); });
      mapping.map(read.getResult(), found == writes.end() ? wholeState(read.getVariable()) : found->second);
    } else if (auto write = dyn_cast<WriteOp>(op)) {
      if (mode == Mode::Inference)
        continue;
      Value value = mapping.lookup(write.getValue());
      auto found = llvm::find_if(writes, [&](auto &other) { return other.first == write.getVariable(); });
      if (found == writes.end())
        writes.emplace_back(write.getVariable().str(), value);
      else
        found->second = value;
    } else if (auto key = dyn_cast<RandomKeyOp>(op)) {
      mapping.map(key.getResult(), randomKey());
    } else if (auto number = dyn_cast<RunScalarOp>(op)) {
      mapping.map(number.getResult(), scalar(number.getName()));
    } else {
      Operation *copy = builder.clone(op, mapping);
      auto dependent = dyn_cast<ModeDependent>(copy);
      if (mode != Mode::Inference || !dependent)
        continue;
      mapping.map(op.getResults(), dependent.buildInference(builder));
      copy->erase();
    }
  }
  llvm::SmallVector<Value> results;
  for (Value value : from.getTerminator()->getOperands())
    results.push_back(mapping.lookup(value));
  return results;
}

Value EntryBuilder::state(llvm::StringRef variable) {
  auto [found, fresh] = statePositions.try_emplace(variable, stateOrder.size());
  unsigned position = inputAttributes.size() + found->second;
  if (!fresh)
    return body->getArgument(position);
  auto symbol = symbols.lookup<VariableOp>(variable);
  assert(symbol && "the variable is declared");
  stateOrder.push_back(variable.str());
  return body->insertArgument(position, symbol.getType(), NameLoc::get(builder.getStringAttr(variable)));
}

Value EntryBuilder::wholeState(llvm::StringRef variable) {
  Value value = state(variable);
  auto whole = symbols.lookup<VariableOp>(variable)->getAttrOfType<TypeAttr>(names::kWhole);
  if (!whole)
    return value;
  auto ranks = module->getAttrOfType<IntegerAttr>(names::kRanks);
  return AllGatherOp::create(builder, value.getLoc(), TypeRange(whole.getValue()), ValueRange(value), ranks)
      ->getResult(0);
}

Value EntryBuilder::randomKey() {
  // It stays the last argument: state and scalars that are added later are inserted before it.
  if (!counters)
    counters = body->addArgument(RankedTensorType::get({4}, builder.getIntegerType(32, /*isSigned=*/false)),
                                 NameLoc::get(builder.getStringAttr("counters")));
  return counters;
}

Value EntryBuilder::scalar(llvm::StringRef name) {
  Value &value = scalarValues[name.str()];
  if (value)
    return value;
  Location loc = NameLoc::get(builder.getStringAttr(name));
  Type f32 = builder.getF32Type();
  int64_t position = llvm::find(scalarOrder, name) - scalarOrder.begin();
  if (position == int64_t(scalarOrder.size()))
    scalarOrder.push_back(name.str());
  if (!scalars)
    scalars = body->insertArgument(inputAttributes.size() + stateOrder.size(), RankedTensorType::get({1}, f32),
                                   NameLoc::get(builder.getStringAttr("scalars")));
  scalars.setType(RankedTensorType::get({int64_t(scalarOrder.size())}, f32));
  Value slice = SliceOp::create(builder, loc, RankedTensorType::get({1}, f32), scalars,
                                llvm::ArrayRef<int64_t>{position}, llvm::ArrayRef<int64_t>{1});
  return value = reshape(builder, loc, slice, {});
}

void EntryBuilder::fixScalar(llvm::StringRef name, double value) {
  scalarValues[name.str()] = splat(builder, NameLoc::get(builder.getStringAttr(name)),
                                   RankedTensorType::get({}, builder.getF32Type()), value);
}

void EntryBuilder::output(llvm::StringRef name, Value value, IntegerAttr sampleAxis) {
  outputs.push_back({name.str(), value, sampleAxis});
}

void EntryBuilder::update(llvm::StringRef variable, Value next) { updates.emplace_back(variable.str(), next); }

func::FuncOp EntryBuilder::finish() {
  auto attribute = [&](llvm::StringRef key, Attribute value) {
    return builder.getDictionaryAttr(builder.getNamedAttr(key, value));
  };
  llvm::SmallVector<Value> results;
  llvm::SmallVector<Attribute> arguments(inputAttributes.begin(), inputAttributes.end()), resultAttributes;
  for (const std::string &variable : stateOrder)
    arguments.push_back(attribute(names::kVariable, builder.getStringAttr(variable)));
  if (scalars)
    arguments.push_back(attribute(names::kScalars, builder.getUnitAttr()));
  if (counters)
    arguments.push_back(attribute(names::kCounters, builder.getUnitAttr()));
  for (auto &[name, value, sampleAxis] : outputs) {
    results.push_back(value);
    NamedAttrList attributes(attribute(names::kName, builder.getStringAttr(name)));
    if (sampleAxis)
      attributes.set(names::kSampleAxis, sampleAxis);
    resultAttributes.push_back(attributes.getDictionary(builder.getContext()));
  }
  for (auto &[variable, value] : updates) {
    results.push_back(value);
    resultAttributes.push_back(attribute(names::kVariable, builder.getStringAttr(variable)));
  }
  func::ReturnOp::create(builder, function.getLoc(), results);
  function.setType(builder.getFunctionType(body->getArgumentTypes(), ValueRange(results).getTypes()));
  function.setArgAttrsAttr(builder.getArrayAttr(arguments));
  function.setResAttrsAttr(builder.getArrayAttr(resultAttributes));
  eraseDeadOps(function);
  return function;
}

} // namespace tcc::train
