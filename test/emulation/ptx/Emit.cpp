//===- Emit.cpp - frame of a kernel, operands, dispatch by opcode --------===//
#include "test/emulation/ptx/Emitter.h"

#include <cstddef>

using namespace llvm;

namespace tcc::emulation::ptx {

Emitter::Emitter(llvm::Module &into, const Entry &entry, const EmitterContext &context)
    : module(into), context(into.getContext()), builder(this->context), entry(entry), outside(context) {}

void Emitter::refuse(std::string_view why) const {
  throw Failure{error("PTX line {}: '{}': {}", now->line, now->text, why)};
}

const std::map<std::string_view, Emitter::Handler> &Emitter::handlers() {
  static const std::map<std::string_view, Handler> table = {
      {"add", &Emitter::add},
      {"addc", &Emitter::add},
      {"sub", &Emitter::subtract},
      {"subc", &Emitter::subtract},
      {"mul", &Emitter::multiply},
      {"mad", &Emitter::multiplyAdd},
      {"div", &Emitter::divide},
      {"rem", &Emitter::remainder},
      {"min", &Emitter::minimumMaximum},
      {"max", &Emitter::minimumMaximum},
      {"abs", &Emitter::absolute},
      {"neg", &Emitter::negate},
      {"and", &Emitter::logic},
      {"or", &Emitter::logic},
      {"xor", &Emitter::logic},
      {"not", &Emitter::invert},
      {"shl", &Emitter::shift},
      {"shr", &Emitter::shift},
      {"shf", &Emitter::funnelShift},
      {"bfe", &Emitter::extractField},
      {"bfi", &Emitter::insertField},
      {"prmt", &Emitter::permuteBytes},
      {"popc", &Emitter::countBits},
      {"clz", &Emitter::countBits},
      {"brev", &Emitter::reverseBits},
      {"lop3", &Emitter::lookupLogic},
      {"fma", &Emitter::fusedMultiplyAdd},
      {"sqrt", &Emitter::roundedFunction},
      {"rcp", &Emitter::roundedFunction},
      {"copysign", &Emitter::copySign},
      {"testp", &Emitter::testProperty},
      {"ex2", &Emitter::powerOfTwo},
      {"lg2", &Emitter::refuseApproximate},
      {"sin", &Emitter::refuseApproximate},
      {"cos", &Emitter::refuseApproximate},
      {"tanh", &Emitter::refuseApproximate},
      {"rsqrt", &Emitter::nearRootsReciprocal},
      {"cvt", &Emitter::convert},
      {"mov", &Emitter::move},
      {"setp", &Emitter::compare},
      {"selp", &Emitter::select},
      {"ld", &Emitter::load},
      {"ldu", &Emitter::load},
      {"st", &Emitter::store},
      {"cvta", &Emitter::convertAddress},
      {"bra", &Emitter::branch},
      {"brx", &Emitter::indexedBranch},
      {"ret", &Emitter::leave},
      {"exit", &Emitter::leave},
      {"trap", &Emitter::trap},
      {"bar", &Emitter::barrier},
      {"barrier", &Emitter::barrier},
      {"shfl", &Emitter::shuffle},
      {"vote", &Emitter::vote},
      {"mma", &Emitter::multiplyTile},
      {"cp", &Emitter::copyAsynchronously},
      {"membar", &Emitter::fence},
      {"fence", &Emitter::fence},
      {"atom", &Emitter::refuseAtomic},
      {"red", &Emitter::refuseAtomic},
  };
  return table;
}

//===----------------------------------------------------------------------===//
// Suffixes
//===----------------------------------------------------------------------===//

bool Emitter::has(std::string_view suffix) {
  for (size_t i = 0; i < now->suffixes.size(); ++i)
    if (!(suffixesTaken >> i & 1) && now->suffixes[i] == suffix) {
      suffixesTaken |= 1u << i;
      return true;
    }
  return false;
}

std::optional<ScalarType> Emitter::typeOrNone() {
  static const std::map<std::string_view, ScalarType> types = {
      {"u8", {'u', 8, 1}},     {"u16", {'u', 16, 1}},   {"u32", {'u', 32, 1}},    {"u64", {'u', 64, 1}},
      {"s8", {'s', 8, 1}},     {"s16", {'s', 16, 1}},   {"s32", {'s', 32, 1}},    {"s64", {'s', 64, 1}},
      {"b8", {'b', 8, 1}},     {"b16", {'b', 16, 1}},   {"b32", {'b', 32, 1}},    {"b64", {'b', 64, 1}},
      {"b128", {'b', 128, 1}}, {"f16", {'f', 16, 1}},   {"f32", {'f', 32, 1}},    {"f64", {'f', 64, 1}},
      {"bf16", {'h', 16, 1}},  {"f16x2", {'f', 16, 2}}, {"bf16x2", {'h', 16, 2}}, {"pred", {'p', 1, 1}},
      {"u16x2", {'u', 16, 2}}, {"s16x2", {'s', 16, 2}}, {"tf32", {'t', 32, 1}}};
  for (size_t i = 0; i < now->suffixes.size(); ++i)
    if (!(suffixesTaken >> i & 1))
      if (auto found = types.find(now->suffixes[i]); found != types.end()) {
        suffixesTaken |= 1u << i;
        return found->second;
      }
  return std::nullopt;
}

ScalarType Emitter::type() {
  auto found = typeOrNone();
  if (!found)
    refuse("a type is missing, or one that is not emulated");
  const bool known = now->opcode == "add" || now->opcode == "min" || now->opcode == "max";
  if (found->lanes == 2 && !found->isFloat() && !known)
    refuse("pairs of integers are added and compared only");
  return *found;
}

void Emitter::expectOperands(size_t count) const {
  if (now->operands.size() != count)
    refuse(fmt::format("{} operands, expected {}", now->operands.size(), count));
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

llvm::Type *Emitter::floatType(const ScalarType &type) {
  if (type.kind == 'h')
    return builder.getBFloatTy();
  return type.bits == 16 ? builder.getHalfTy() : type.bits == 32 ? builder.getFloatTy() : builder.getDoubleTy();
}

/// The operand's low `bits` bits.
Value *Emitter::get(const Operand &operand, unsigned bits) {
  if (operand.negated && operand.kind != Operand::Kind::Register)
    refuse("only a predicate can be negated");
  switch (operand.kind) {
  case Operand::Kind::Register: {
    unsigned width = entry.registers[operand.index].bits;
    if (width < bits)
      refuse(fmt::format("a register of {} bits where {} are read", width, bits));
    Value *value = read(operand.index);
    if (operand.negated)
      value = builder.CreateNot(value);
    return builder.CreateTrunc(value, intType(bits));
  }
  case Operand::Kind::Integer:
    return ConstantInt::get(intType(bits), APInt(64, operand.bits).sextOrTrunc(bits));
  case Operand::Kind::Float:
    if (operand.floatBits != bits)
      refuse(fmt::format("a number of {} bits where {} are read", operand.floatBits, bits));
    return ConstantInt::get(intType(bits), operand.bits);
  case Operand::Kind::Symbol:
    if (bits != 64)
      refuse("an address has 64 bits");
    return symbol(operand);
  case Operand::Kind::Special: {
    static const std::map<std::string_view, unsigned> places = {{"%tid.x", kTid},
                                                                {"%tid.y", kTid + 1},
                                                                {"%tid.z", kTid + 2},
                                                                {"%ntid.x", kBlockExtent},
                                                                {"%ntid.y", kBlockExtent + 1},
                                                                {"%ntid.z", kBlockExtent + 2},
                                                                {"%ctaid.x", kBlock},
                                                                {"%ctaid.y", kBlock + 1},
                                                                {"%ctaid.z", kBlock + 2},
                                                                {"%nctaid.x", kGridExtent},
                                                                {"%nctaid.y", kGridExtent + 1},
                                                                {"%nctaid.z", kGridExtent + 2},
                                                                {"%laneid", kLane},
                                                                {"%warpid", kWarp}};
    Value *at = builder.CreateConstGEP1_64(builder.getInt32Ty(), thread, places.at(operand.name));
    return builder.CreateTrunc(builder.CreateLoad(builder.getInt32Ty(), at), intType(bits));
  }
  default:
    refuse("an operand of another kind is expected");
  }
}

Value *Emitter::symbol(const Operand &operand) {
  Value *base;
  if (auto local = localVariables.find(operand.name); local != localVariables.end()) {
    base = builder.CreatePtrToInt(local->second, builder.getInt64Ty());
  } else if (auto shared = outside.sharedOffsets.find(operand.name); shared != outside.sharedOffsets.end()) {
    Value *at = builder.CreateConstGEP1_64(builder.getInt8Ty(), thread, offsetof(Thread, shared));
    base = builder.CreateAdd(builder.CreateLoad(builder.getInt64Ty(), at), builder.getInt64(shared->second));
  } else if (auto global = outside.addresses.find(operand.name); global != outside.addresses.end()) {
    base = builder.getInt64(global->second);
  } else if (auto found = std::find_if(entry.parameters.begin(), entry.parameters.end(),
                                       [&](auto &parameter) { return parameter.name == operand.name; });
             found != entry.parameters.end()) {
    base = builder.CreateAdd(parameterAddress(), builder.getInt64(found->offset));
  } else {
    refuse(fmt::format("{} is declared nowhere", operand.name));
  }
  return builder.CreateAdd(base, builder.getInt64(static_cast<uint64_t>(operand.offset)));
}

Value *Emitter::parameterAddress() { return builder.CreatePtrToInt(parameters, builder.getInt64Ty()); }

Value *Emitter::getFloat(const Operand &operand, const ScalarType &type) {
  return builder.CreateBitCast(get(operand, type.bits), floatType(type));
}

Value *Emitter::getPredicate(const Operand &operand) {
  if (operand.kind == Operand::Kind::Register && entry.registers[operand.index].bits != 1)
    refuse("a predicate is expected");
  return get(operand, 1);
}

/// Extends the value if the register is wider, as ld and cvt do.
void Emitter::set(const Operand &operand, Value *value, bool signExtend) {
  if (operand.kind == Operand::Kind::Sink)
    return;
  if (operand.kind != Operand::Kind::Register)
    refuse("a result needs a register");
  unsigned width = entry.registers[operand.index].bits, given = value->getType()->getIntegerBitWidth();
  if (width < given || (width == 1) != (given == 1))
    refuse(fmt::format("a result of {} bits for a register of {}", given, width));
  Value *wide = signExtend ? builder.CreateSExt(value, intType(width)) : builder.CreateZExt(value, intType(width));
  builder.CreateStore(wide, registers[operand.index]);
  latest[operand.index] = {builder.GetInsertBlock(), wide};
}

/// Reuses the value if the block has already written or read the register; otherwise loads it.
Value *Emitter::read(size_t index) {
  auto &[block, value] = latest[index];
  if (block != builder.GetInsertBlock()) {
    block = builder.GetInsertBlock();
    value = builder.CreateLoad(intType(entry.registers[index].bits), registers[index]);
  }
  return value;
}

/// Removes the allocas of registers that no block reads from another one. LLVM would do so as well, but in a time that
/// grows with the number of allocas times that of blocks.
void Emitter::dropPlacesWithoutLoads() {
  for (AllocaInst *place : registers) {
    if (llvm::any_of(place->users(), [](User *user) { return isa<LoadInst>(user); }))
      continue;
    for (User *user : llvm::make_early_inc_range(place->users()))
      cast<StoreInst>(user)->eraseFromParent();
    place->eraseFromParent();
  }
}

/// A NaN result in f32, f16 or bf16 has one bit pattern, all ones except the sign; f64 keeps payloads (CUDA C++
/// Programming Guide, "Floating-Point Standard").
void Emitter::setFloat(const Operand &operand, Value *value, const ScalarType &type) {
  Value *bits = builder.CreateBitCast(value, intType(type.bits));
  if (type.bits != 64) {
    Value *canonical = ConstantInt::get(intType(type.bits), APInt::getSignedMaxValue(type.bits));
    bits = builder.CreateSelect(builder.CreateFCmpUNO(value, value), canonical, bits);
  }
  set(operand, bits);
}

Value *Emitter::call(const char *name, llvm::Type *result, ArrayRef<Value *> arguments) {
  SmallVector<llvm::Type *> types;
  for (Value *argument : arguments)
    types.push_back(argument->getType());
  FunctionCallee callee = module.getOrInsertFunction(name, FunctionType::get(result, types, false));
  cast<Function>(callee.getCallee())->addFnAttr(Attribute::NoUnwind);
  return builder.CreateCall(callee, arguments);
}

//===----------------------------------------------------------------------===//
// The frame
//===----------------------------------------------------------------------===//

BasicBlock *Emitter::label(std::string_view name) {
  auto found = entry.labels.find(name);
  if (found == entry.labels.end())
    refuse(fmt::format("label {} is nowhere", name));
  BasicBlock *&block = blocks[found->second];
  if (!block)
    block = BasicBlock::Create(context, StringRef(name.data(), name.size()), function);
  return block;
}

void Emitter::prologue() {
  auto *pointer = PointerType::get(context, 0);
  function = Function::Create(FunctionType::get(builder.getVoidTy(), {pointer, pointer}, false),
                              GlobalValue::ExternalLinkage, StringRef(entry.name.data(), entry.name.size()), module);
  function->addFnAttr(Attribute::NoUnwind);
  thread = function->getArg(0);
  parameters = function->getArg(1);
  function->addParamAttr(1, Attribute::NoAlias);
  function->addParamAttr(1, Attribute::ReadOnly);
  builder.SetInsertPoint(BasicBlock::Create(context, "", function));
  for (const RegisterType &type : entry.registers)
    registers.push_back(builder.CreateAlloca(intType(type.bits)));
  // A register that is read before it is written has an unknown value on a device; here it always has this one.
  for (size_t i = 0; i < registers.size(); ++i)
    builder.CreateStore(ConstantInt::get(intType(entry.registers[i].bits),
                                         APInt::getSplat(entry.registers[i].bits,
                                                         APInt(4, 13).trunc(std::min(4u, entry.registers[i].bits)))),
                        registers[i]);
  latest.resize(registers.size());
  carry = builder.CreateAlloca(builder.getInt1Ty());
  builder.CreateStore(builder.getFalse(), carry);
  factors = builder.CreateAlloca(ArrayType::get(builder.getInt32Ty(), kTileFactors + kTileSums));

  uint64_t localBytes = 0;
  for (const Variable &variable : entry.variables)
    if (variable.space == "local")
      localBytes = (localBytes + variable.alignment - 1) / variable.alignment * variable.alignment + variable.bytes;
  if (!localBytes)
    return;
  auto bytesOf = [&](uint64_t count) {
    AllocaInst *made = builder.CreateAlloca(ArrayType::get(builder.getInt8Ty(), count));
    made->setAlignment(Align(64));
    return made;
  };
  AllocaInst *local = bytesOf(localBytes);
  uint64_t at = 0;
  for (const Variable &variable : entry.variables) {
    if (variable.space != "local")
      continue;
    at = (at + variable.alignment - 1) / variable.alignment * variable.alignment;
    localVariables[variable.name] = builder.CreateConstGEP1_64(builder.getInt8Ty(), local, at);
    at += variable.bytes;
  }
  if (!outside.checked)
    return;
  AllocaInst *written = bytesOf(localBytes);
  builder.CreateMemSet(written, builder.getInt8(0), localBytes, Align(64));
  auto field = [&](size_t offset, Value *value) {
    builder.CreateStore(value, builder.CreateConstGEP1_64(builder.getInt8Ty(), thread, offset));
  };
  field(offsetof(Thread, local), local);
  field(offsetof(Thread, localBytes), builder.getInt64(localBytes));
  field(offsetof(Thread, localWritten), written);
}

void Emitter::dispatch() {
  auto handler = handlers().find(now->opcode);
  if (handler == handlers().end())
    refuse("this instruction is not in the subset of PTX that is emulated");
  suffixesTaken = 0;
  (this->*handler->second)();
  for (size_t i = 0; i < now->suffixes.size(); ++i)
    if (!(suffixesTaken >> i & 1))
      refuse(fmt::format("'.{}' is not emulated here", now->suffixes[i]));
}

void Emitter::instruction(const Instruction &instruction) {
  now = &instruction;
  bool jumps = instruction.opcode == "bra"; // bra handles its guard itself: a conditional branch
  if (instruction.guard < 0 || jumps)
    return dispatch();
  Value *guard = read(static_cast<size_t>(instruction.guard));
  if (instruction.guardNegated)
    guard = builder.CreateNot(guard);
  BasicBlock *then = BasicBlock::Create(context, "", function), *after = BasicBlock::Create(context, "", function);
  builder.CreateCondBr(guard, then, after);
  builder.SetInsertPoint(then);
  dispatch();
  if (!builder.GetInsertBlock()->getTerminator())
    builder.CreateBr(after);
  builder.SetInsertPoint(after);
}

Status Emitter::run() {
  try {
    prologue();
    for (auto &[name, index] : entry.labels)
      if (!blocks[index])
        blocks[index] = BasicBlock::Create(context, StringRef(name.data(), name.size()), function);
    for (size_t i = 0; i <= entry.body.size(); ++i) {
      if (auto block = blocks.find(i); block != blocks.end()) {
        if (!builder.GetInsertBlock()->getTerminator())
          builder.CreateBr(block->second);
        builder.SetInsertPoint(block->second);
      } else if (builder.GetInsertBlock()->getTerminator()) {
        builder.SetInsertPoint(BasicBlock::Create(context, "", function)); // nothing jumps here
      }
      if (i == entry.body.size())
        break;
      siteNumber = outside.firstSite + static_cast<uint32_t>(i);
      instruction(entry.body[i]);
    }
    if (!builder.GetInsertBlock()->getTerminator())
      builder.CreateRetVoid();
    dropPlacesWithoutLoads();
  } catch (Failure &failure) {
    return std::move(failure.status);
  }
  return Status();
}

} // namespace tcc::emulation::ptx
