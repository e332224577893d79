//===- EmitMemory.cpp - memory, control flow, threads that meet ----------===//
//
// Addresses of all state spaces are addresses of this process, so cvta changes nothing. Sections 9.7.9 (ld, st, cvta),
// 9.7.12 (bra, brx, ret), 9.7.13 (bar, fence, vote) and "shfl.sync".
//
//===----------------------------------------------------------------------===//
#include "test/emulation/ptx/Emitter.h"

using namespace llvm;

namespace tcc::emulation::ptx {

Space Emitter::spaceSuffix() {
  return has("global")   ? Space::Global
         : has("shared") ? Space::Shared
         : has("local")  ? Space::Local
         : has("const")  ? Space::Const
                         : Space::Generic;
}

Value *Emitter::address(const Operand &operand) {
  if (operand.kind != Operand::Kind::Address)
    refuse("an address in brackets is expected");
  Value *base = get(operand.parts[0], 64);
  Value *at = builder.CreateAdd(base, builder.getInt64(static_cast<uint64_t>(operand.offset)));
  return builder.CreateIntToPtr(at, PointerType::get(context, 0));
}

void Emitter::announce(Value *pointer, unsigned bytes, AccessKind kind, Space space) {
  if (outside.checked)
    call("tccEmulationAccess", builder.getVoidTy(),
         {thread, pointer, builder.getInt32(accessWord(bytes, kind, space)), site()});
}

namespace {
unsigned lanesOf(std::string_view suffix) { return suffix == "v2" ? 2 : suffix == "v4" ? 4 : suffix == "v8" ? 8 : 0; }
} // namespace

void Emitter::load() {
  expectOperands(2);
  bool parameter = has("param"), nonCoherent = has("nc");
  has("weak");
  has("volatile");
  if (now->opcode == "ldu")
    nonCoherent = true;
  Space space = parameter ? Space::Generic : spaceSuffix();
  unsigned lanes = 0;
  for (std::string_view form : {"v2", "v4", "v8"})
    if (has(form))
      lanes = lanesOf(form);
  ScalarType t = type();
  unsigned bytes = t.wholeBits() / 8 * std::max(lanes, 1u);
  Value *pointer;
  if (const Operand &at = now->operands[1];
      parameter && at.kind == Operand::Kind::Address && at.parts[0].kind == Operand::Kind::Register) {
    // An element of an array parameter, at a computed address: mov took the parameter's address.
    pointer = address(at);
    call("tccEmulationParameter", builder.getVoidTy(),
         {thread, builder.CreateSub(builder.CreatePtrToInt(pointer, builder.getInt64Ty()), parameterAddress()),
          builder.getInt32(bytes), builder.getInt32(entry.parameterBytes), site()});
  } else if (parameter) {
    if (at.kind != Operand::Kind::Address || at.parts[0].kind != Operand::Kind::Symbol)
      refuse("a parameter is read by its name");
    auto found = std::find_if(entry.parameters.begin(), entry.parameters.end(),
                              [&](auto &p) { return p.name == at.parts[0].name; });
    if (found == entry.parameters.end())
      refuse(fmt::format("{} is no parameter", at.parts[0].name));
    if (at.offset < 0 || static_cast<uint64_t>(at.offset) + bytes > found->bytes)
      refuse(fmt::format("outside of parameter {}, which has {} bytes", found->name, found->bytes));
    pointer =
        builder.CreateConstGEP1_64(builder.getInt8Ty(), parameters, found->offset + static_cast<uint64_t>(at.offset));
  } else {
    pointer = address(now->operands[1]);
    announce(pointer, bytes, nonCoherent ? kReadNonCoherent : kRead, space);
  }
  auto *element = intType(t.wholeBits());
  const Operand &to = now->operands[0];
  if (lanes == 0)
    return set(to, builder.CreateAlignedLoad(element, pointer, Align(bytes)), t.isSigned());
  if (to.kind != Operand::Kind::Vector || to.parts.size() != lanes)
    refuse(fmt::format("{} registers in braces are expected", lanes));
  Value *all = builder.CreateAlignedLoad(FixedVectorType::get(element, lanes), pointer, Align(bytes));
  for (unsigned i = 0; i < lanes; ++i)
    set(to.parts[i], builder.CreateExtractElement(all, i), t.isSigned());
}

void Emitter::store() {
  expectOperands(2);
  has("weak");
  has("volatile");
  Space space = spaceSuffix();
  if (space == Space::Const)
    refuse("constants cannot be written");
  unsigned lanes = 0;
  for (std::string_view form : {"v2", "v4", "v8"})
    if (has(form))
      lanes = lanesOf(form);
  ScalarType t = type();
  unsigned bytes = t.wholeBits() / 8 * std::max(lanes, 1u);
  Value *pointer = address(now->operands[0]);
  announce(pointer, bytes, kWrite, space);
  const Operand &from = now->operands[1];
  if (lanes == 0) {
    builder.CreateAlignedStore(get(from, t.wholeBits()), pointer, Align(bytes));
    return;
  }
  if (from.kind != Operand::Kind::Vector || from.parts.size() != lanes)
    refuse(fmt::format("{} registers in braces are expected", lanes));
  Value *all = PoisonValue::get(FixedVectorType::get(intType(t.wholeBits()), lanes));
  for (unsigned i = 0; i < lanes; ++i)
    all = builder.CreateInsertElement(all, get(from.parts[i], t.wholeBits()), i);
  builder.CreateAlignedStore(all, pointer, Align(bytes));
}

void Emitter::convertAddress() {
  expectOperands(2);
  has("to");
  if (spaceSuffix() == Space::Generic && !has("param"))
    refuse("cvta names a state space");
  if (type().bits != 64)
    refuse("only addresses of 64 bits are emulated");
  out(in(1, 64));
}

void Emitter::branch() {
  expectOperands(1);
  has("uni");
  if (now->operands[0].kind != Operand::Kind::Symbol)
    refuse("a label is expected");
  BasicBlock *to = label(now->operands[0].name);
  if (now->guard < 0) {
    builder.CreateBr(to);
    return;
  }
  Value *guard = read(static_cast<size_t>(now->guard));
  BasicBlock *after = BasicBlock::Create(context, "", function);
  now->guardNegated ? builder.CreateCondBr(guard, after, to) : builder.CreateCondBr(guard, to, after);
  builder.SetInsertPoint(after);
}

void Emitter::indexedBranch() {
  expectOperands(2);
  has("uni");
  if (!has("idx") || now->operands[1].kind != Operand::Kind::Symbol)
    refuse("brx.idx needs an index and a list of labels");
  auto targets = entry.branchTargets.find(now->operands[1].name);
  if (targets == entry.branchTargets.end())
    refuse("this list of labels is nowhere");
  BasicBlock *beyond = BasicBlock::Create(context, "", function);
  auto *choice = builder.CreateSwitch(in(0, 32), beyond, static_cast<unsigned>(targets->second.size()));
  for (size_t i = 0; i < targets->second.size(); ++i)
    choice->addCase(builder.getInt32(static_cast<uint32_t>(i)), label(targets->second[i]));
  builder.SetInsertPoint(beyond);
  trap();
}

void Emitter::leave() {
  expectOperands(0);
  has("uni");
  builder.CreateRetVoid();
}

void Emitter::trap() {
  call("tccEmulationTrap", builder.getVoidTy(), {thread, site()});
  builder.CreateUnreachable();
}

void Emitter::barrier() {
  has("cta");
  has("aligned");
  if (has("warp")) {
    if (!has("sync"))
      refuse("of a warp's barriers only .sync is emulated");
    expectOperands(1);
    call("tccEmulationWarpSync", builder.getVoidTy(), {thread, in(0, 32), site()});
    return;
  }
  if (!has("sync"))
    refuse("of barriers only .sync is emulated");
  if (now->operands.size() != 1 || now->operands[0].kind != Operand::Kind::Integer || now->operands[0].bits != 0)
    refuse("only barrier 0 of the whole block is emulated");
  call("tccEmulationBarrier", builder.getVoidTy(), {thread, site()});
}

void Emitter::shuffle() {
  expectOperands(5);
  if (!has("sync"))
    refuse("a shuffle without .sync does not exist from sm_70 on");
  int mode = has("up") ? 0 : has("down") ? 1 : has("bfly") ? 2 : has("idx") ? 3 : -1;
  if (mode < 0 || type().bits != 32)
    refuse("a shuffle says .up, .down, .bfly or .idx, and .b32");
  Value *both =
      call("tccEmulationShuffle", builder.getInt64Ty(),
           {thread, builder.getInt32(static_cast<uint32_t>(mode)), in(1, 32), in(2, 32), in(3, 32), in(4, 32), site()});
  Value *taken = builder.CreateTrunc(both, builder.getInt32Ty());
  const Operand &to = now->operands[0];
  if (to.kind != Operand::Kind::Pair)
    return set(to, taken);
  set(to.parts[0], taken);
  set(to.parts[1], builder.CreateTrunc(builder.CreateLShr(both, 32), builder.getInt1Ty()));
}

void Emitter::vote() {
  expectOperands(3);
  if (!has("sync"))
    refuse("a vote without .sync does not exist from sm_70 on");
  bool all = has("all"), any = has("any"), uniform = has("uni"), ballot = has("ballot");
  if (all + any + uniform + ballot != 1)
    refuse("a vote says .all, .any, .uni or .ballot");
  type();
  Value *mask = in(2, 32);
  Value *predicate = builder.CreateZExt(getPredicate(now->operands[1]), builder.getInt32Ty());
  Value *set32 = call("tccEmulationVote", builder.getInt32Ty(), {thread, predicate, mask, site()});
  if (ballot)
    return out(set32);
  Value *none = builder.CreateIsNull(set32), *everyone = builder.CreateICmpEQ(set32, mask);
  out(all ? everyone : any ? builder.CreateNot(none) : builder.CreateOr(none, everyone));
}

/// mma.sync of bf16, f16 or TF32 with sums in f32 (9.7.14, "mma"): each thread gives four registers of the left tile,
/// two of the right one and four sums.
void Emitter::multiplyTile() {
  expectOperands(4);
  const bool narrow = has("m16n8k16");
  for (std::string_view form : {"sync", "aligned", "row", "col"})
    if (!has(form) || (!narrow && form == "row" && !has("m16n8k8")))
      refuse("of products of tiles only mma.sync.aligned.row.col of m16n8k16 and m16n8k8 are emulated");
  const ScalarType types[] = {type(), type(), type(), type()};
  auto is = [](const ScalarType &t, char kind, unsigned bits) {
    return t.kind == kind && t.bits == bits && t.lanes == 1;
  };
  const TileKind kind = is(types[1], 'h', 16) ? TileKind::BF16 : is(types[1], 'f', 16) ? TileKind::F16 : TileKind::TF32;
  const bool factors16 = kind != TileKind::TF32;
  if (!is(types[0], 'f', 32) || !is(types[3], 'f', 32) || types[1].kind != types[2].kind ||
      types[1].bits != types[2].bits || factors16 != narrow || (!factors16 && !is(types[1], 't', 32)))
    refuse("of products of tiles only m16n8k16 of bf16 and f16 and m16n8k8 of tf32 with sums in f32 are emulated");
  auto at = [&](unsigned i) { return builder.CreateConstGEP1_64(builder.getInt32Ty(), factors, i); };
  unsigned count = 0;
  for (auto [operand, expected] : {std::pair(1, 4u), std::pair(2, 2u), std::pair(3, 4u)}) {
    const Operand &tile = now->operands[static_cast<size_t>(operand)];
    if (tile.kind != Operand::Kind::Vector || tile.parts.size() != expected)
      refuse(fmt::format("{} registers in braces are expected", expected));
    for (const Operand &part : tile.parts)
      builder.CreateStore(get(part, 32), at(count++));
  }
  call("tccEmulationMultiplyTile", builder.getVoidTy(),
       {thread, factors, at(kTileFactors), builder.getInt32(static_cast<uint32_t>(kind)), site()});
  const Operand &to = now->operands[0];
  if (to.kind != Operand::Kind::Vector || to.parts.size() != kTileSums)
    refuse("four registers in braces are expected");
  for (unsigned i = 0; i < kTileSums; ++i)
    set(to.parts[i], builder.CreateLoad(builder.getInt32Ty(), at(kTileFactors + i)));
}

/// cp.async from global to shared memory ("Data Movement and Conversion Instructions: cp.async"); the copy ends when
/// the thread has waited for it.
void Emitter::copyAsynchronously() {
  if (!has("async"))
    refuse("of copies only cp.async is emulated");
  if (has("wait_all")) {
    expectOperands(0);
    call("tccEmulationAwaitCopies", builder.getVoidTy(), {thread, site()});
    return;
  }
  const bool around = has("cg"), through = has("ca");
  has("cta");
  if (around == through || !has("shared") || !has("global"))
    refuse("a copy says .ca or .cg, and .shared.global; groups of copies are not emulated");
  if (now->operands.size() != 3 && now->operands.size() != 4)
    refuse("a copy has 3 operands, or 4");
  const Operand &size = now->operands[2];
  if (size.kind != Operand::Kind::Integer || (size.bits != 16 && (around || (size.bits != 4 && size.bits != 8))))
    refuse("a copy is of 4, 8 or 16 bytes, and by .cg of 16");
  Value *taken = now->operands.size() == 4 ? in(3, 32) : builder.getInt32(static_cast<uint32_t>(size.bits));
  call("tccEmulationCopy", builder.getVoidTy(),
       {thread, address(now->operands[0]), address(now->operands[1]),
        builder.getInt32(static_cast<uint32_t>(size.bits)), taken, site()});
}

/// Threads of a launch run one at a time and memory has one order, so a fence has nothing to do.
void Emitter::fence() {
  for (std::string_view form : {"cta", "gl", "sys", "gpu", "sc", "acq_rel"})
    has(form);
}

void Emitter::refuseAtomic() {
  refuse("the order of atomic operations differs from run to run; use a fixed tree of sums");
}

} // namespace tcc::emulation::ptx
