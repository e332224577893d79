//===- Emitter.h - one PTX kernel → one LLVM function --------------------===//
//
// Registers are integers in allocas, which SROA turns into values; floating-point instructions bitcast them. Each
// opcode has one handler, which removes the suffixes that it knows from the instruction; a remaining suffix is an
// error, so that no modifier is ignored. Section numbers in comments are those of the PTX ISA.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_PTX_EMITTER_H
#define TCC_TEST_EMULATION_PTX_EMITTER_H

#include "support/Status.h"
#include "test/emulation/machine/Thread.h"
#include "test/emulation/ptx/Ptx.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

#include <optional>

namespace tcc::emulation::ptx {

/// A type suffix: kind 'u', 's', 'b', 'f', 'h' (bf16) or 'p'; `lanes` is 2 for f16x2 and bf16x2.
struct ScalarType {
  char kind = 'b';
  unsigned bits = 0, lanes = 1;
  bool isFloat() const { return kind == 'f' || kind == 'h'; }
  bool isSigned() const { return kind == 's'; }
  unsigned wholeBits() const { return bits * lanes; }
};

/// The input of the translation that is not in the kernel's text: addresses of the module's variables, offsets of the
/// shared ones.
struct EmitterContext {
  bool checked = true;
  std::map<std::string_view, uint64_t> addresses;     ///< global and const
  std::map<std::string_view, uint64_t> sharedOffsets; ///< static, then dynamic
  uint32_t firstSite = 0;                             ///< site of the entry's first instruction; the others follow
};

class Emitter {
public:
  Emitter(llvm::Module &into, const Entry &entry, const EmitterContext &context);

  /// Defines the function of the entry's name in the module, with the type of KernelEntry.
  Status run();

private:
  struct Failure {
    Status status;
  };
  [[noreturn]] void refuse(std::string_view why) const;

  // Suffixes of the instruction at hand (Emit.cpp).
  bool has(std::string_view suffix);
  std::optional<ScalarType> typeOrNone();
  ScalarType type();
  void expectOperands(size_t count) const;

  // Operands (Emit.cpp).
  llvm::IntegerType *intType(unsigned bits) { return builder.getIntNTy(bits); }
  llvm::Type *floatType(const ScalarType &type);
  llvm::Value *get(const Operand &operand, unsigned bits);
  llvm::Value *getFloat(const Operand &operand, const ScalarType &type);
  llvm::Value *getPredicate(const Operand &operand);
  llvm::Value *symbol(const Operand &operand);
  llvm::Value *parameterAddress(); ///< the address of the block of parameters, as an integer
  void set(const Operand &operand, llvm::Value *value, bool signExtend = false);
  void setFloat(const Operand &operand, llvm::Value *value, const ScalarType &type);
  llvm::Value *in(size_t i, unsigned bits) { return get(now->operands[i], bits); }
  llvm::Value *inFloat(size_t i, const ScalarType &type) { return getFloat(now->operands[i], type); }
  void out(llvm::Value *value, bool signExtend = false) { set(now->operands[0], value, signExtend); }
  llvm::Value *call(const char *name, llvm::Type *result, llvm::ArrayRef<llvm::Value *> arguments);
  llvm::Value *site() { return builder.getInt32(siteNumber); }
  llvm::Value *intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value *> arguments) {
    return builder.CreateIntrinsic(id, {arguments[0]->getType()}, arguments);
  }

  // Structure (Emit.cpp).
  void prologue();
  void dropPlacesWithoutLoads();
  llvm::Value *read(size_t index);
  void instruction(const Instruction &instruction);
  void dispatch();
  llvm::BasicBlock *label(std::string_view name);

  // Integers (EmitInteger.cpp).
  void add();
  void subtract();
  void multiply();
  void multiplyAdd();
  void divide();
  void remainder();
  void minimumMaximum();
  void absolute();
  void negate();
  void logic();
  void invert();
  void shift();
  void funnelShift();
  void extractField();
  void insertField();
  void permuteBytes();
  void countBits();
  void reverseBits();
  void lookupLogic();
  void carryOp(bool subtraction);
  llvm::Value *inLanes(size_t operand, const ScalarType &t);
  void outLanes(const ScalarType &t, llvm::Value *value);
  llvm::Value *checkDivisor(llvm::Value *divisor);

  // Floating point (EmitFloat.cpp).
  void floatArithmetic(const ScalarType &type);
  void fusedMultiplyAdd();
  void roundedFunction();
  void floatMinimumMaximum(const ScalarType &type);
  void copySign();
  void testProperty();
  void powerOfTwo();
  void nearReciprocal(llvm::Intrinsic::ID function);
  void nearRootsReciprocal();
  void refuseApproximate();
  void takeRounding(const ScalarType &type);
  llvm::Value *narrowBinary(const ScalarType &type, llvm::function_ref<llvm::Value *(unsigned lane)> make);

  // Conversions and moves (EmitConvert.cpp).
  void convert();
  void convertPair(const ScalarType &to);
  void floatToInteger(const ScalarType &to, const ScalarType &from);
  llvm::Value *narrow(llvm::Value *value, const ScalarType &to, bool towardZero);
  llvm::Value *widen(llvm::Value *bits, const ScalarType &from);
  void move();
  void compare();
  void select();

  // Memory and control (EmitMemory.cpp).
  void load();
  void store();
  void convertAddress();
  void branch();
  void indexedBranch();
  void leave();
  void trap();
  void barrier();
  void shuffle();
  void vote();
  void multiplyTile();
  void convertToTf32();
  void copyAsynchronously();
  void fence();
  void refuseAtomic();
  llvm::Value *address(const Operand &operand);
  void announce(llvm::Value *pointer, unsigned bytes, AccessKind kind, Space space);
  Space spaceSuffix();

  static constexpr unsigned kTileFactors = 10, kTileSums = 4;
  using Handler = void (Emitter::*)();
  static const std::map<std::string_view, Handler> &handlers();

  llvm::Module &module;
  llvm::LLVMContext &context;
  llvm::IRBuilder<> builder;
  const Entry &entry;
  const EmitterContext &outside;
  llvm::Function *function = nullptr;
  llvm::Value *thread = nullptr, *parameters = nullptr;
  std::vector<llvm::AllocaInst *> registers;
  std::vector<std::pair<llvm::BasicBlock *, llvm::Value *>> latest; ///< each register's latest value, and its block
  llvm::AllocaInst *carry = nullptr, *factors = nullptr; ///< factors: operands and results of a product of tiles
  std::map<std::string_view, llvm::Value *> localVariables;
  std::map<size_t, llvm::BasicBlock *> blocks; ///< by the index of their first instruction
  const Instruction *now = nullptr;
  uint32_t siteNumber = 0, suffixesTaken = 0;
};

} // namespace tcc::emulation::ptx

#endif // TCC_TEST_EMULATION_PTX_EMITTER_H
