//===- Ptx.h - the syntax tree of a PTX module ---------------------------===//
//
// The syntax tree of the subset of PTX that LLVM's NVPTX back end writes (PTX ISA, sections 4 to 6). Instructions keep
// their opcode's parts as text: Emit*.cpp gives them meaning, and refuses what it does not know.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_PTX_PTX_H
#define TCC_TEST_EMULATION_PTX_PTX_H

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::emulation::ptx {

/// A register type by its width in bits; predicates have one.
struct RegisterType {
  unsigned bits = 0;
};

struct Operand {
  enum class Kind {
    Register, ///< `index`
    Integer,  ///< `bits`
    Float,    ///< `bits` of an f32 or f64, as `floatBits` says
    Symbol,   ///< `name`: a label, a variable, a parameter; `offset` bytes after it
    Special,  ///< `name`: %tid.x and its kind
    Sink,     ///< `_`, a discarded result
    Vector,   ///< `parts`
    Address,  ///< [base + offset]: `parts[0]` is a register, a symbol or an integer
    Pair,     ///< d|p: `parts` are a register and a predicate
  };
  Kind kind = Kind::Sink;
  unsigned index = 0;
  uint64_t bits = 0;
  unsigned floatBits = 0;
  int64_t offset = 0;
  bool negated = false; ///< !%p
  std::string_view name;
  std::vector<Operand> parts;
};

struct Instruction {
  unsigned line = 0;                      ///< of the module's text, from 1
  std::string_view text;                  ///< from its guard to before the semicolon
  int guard = -1;                         ///< register of @%p, or -1
  bool guardNegated = false;              ///< @!%p
  std::string_view opcode;                ///< "add" of add.rn.f32
  std::vector<std::string_view> suffixes; ///< "rn", "f32"
  std::vector<Operand> operands;
};

struct Parameter {
  std::string_view name;
  unsigned bytes = 0, offset = 0; ///< in the block of parameters
  bool pointer = false;           ///< declared .ptr
};

/// A variable of the state space global, const, shared or local.
struct Variable {
  std::string_view name, space;
  unsigned line = 0;
  uint64_t alignment = 1, bytes = 0;
  bool external = false;              ///< .extern: dynamic shared memory
  std::vector<unsigned char> initial; ///< the first bytes; the rest is 0
};

struct Entry {
  std::string_view name;
  unsigned line = 0;
  std::vector<Parameter> parameters;
  unsigned parameterBytes = 0;
  unsigned maxThreads = 0, requiredThreads[3] = {0, 0, 0}; ///< .maxntid as a product, .reqntid; 0: none
  std::vector<RegisterType> registers;
  std::vector<Variable> variables; ///< local and shared
  std::vector<Instruction> body;
  std::map<std::string_view, size_t> labels;                               ///< → index of the next instruction
  std::map<std::string_view, std::vector<std::string_view>> branchTargets; ///< of brx.idx
};

struct Module {
  std::string text; ///< all views point into it
  unsigned versionMajor = 0, versionMinor = 0;
  std::string_view target; ///< sm_90
  std::vector<Variable> variables;
  std::vector<Entry> entries;
};

} // namespace tcc::emulation::ptx

#endif // TCC_TEST_EMULATION_PTX_PTX_H
