//===- Parser.cpp - PTX text → syntax tree -------------------------------===//
//
// Recursive descent, one function for each form. A line that the subset lacks ends the parse with one located message.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/ptx/Parser.h"

#include "test/emulation/ptx/Lexer.h"

#include <algorithm>
#include <optional>

namespace tcc::emulation::ptx {

namespace {
struct Failure {
  Status status;
};

/// Bytes of one element of a type such as .b8, u64 or .f16x2; 0 if the text is not a type.
unsigned bytesOf(std::string_view type) {
  if (type.starts_with("."))
    type.remove_prefix(1);
  if (type == "f16x2" || type == "bf16x2")
    return 4;
  if (type == "bf16")
    return 2;
  if (type.size() < 2 || std::string_view("busf").find(type[0]) == std::string_view::npos)
    return 0;
  std::string_view bits = type.substr(1);
  return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : bits == "128" ? 16 : 0;
}

class Parser {
public:
  explicit Parser(Module &module) : module(module), lexer(module.text) {}

  void run() {
    while (lexer.peek().kind != Token::Kind::End)
      topLevel();
    if (module.versionMajor == 0)
      fail(lexer.peek(), "no .version: this is no PTX module");
  }

private:
  [[noreturn]] void fail(const Token &at, std::string_view what) {
    std::string_view text = at.text.empty() ? std::string_view("end of text") : at.text;
    throw Failure{error("PTX line {}: '{}': {}", at.line, text, what)};
  }
  Token expect(std::string_view text) {
    if (!lexer.peek().is(text))
      fail(lexer.peek(), fmt::format("expected '{}'", text));
    return lexer.take();
  }
  bool accept(std::string_view text) {
    if (!lexer.peek().is(text))
      return false;
    lexer.take();
    return true;
  }
  Token word() {
    if (lexer.peek().kind != Token::Kind::Word)
      fail(lexer.peek(), "expected a name");
    return lexer.take();
  }
  uint64_t integer() {
    bool negative = accept("-");
    if (lexer.peek().kind != Token::Kind::Integer)
      fail(lexer.peek(), "expected a number");
    uint64_t bits = lexer.take().bits;
    return negative ? 0 - bits : bits;
  }
  unsigned small() {
    Token at = lexer.peek();
    uint64_t value = integer();
    if (value > (1u << 20))
      fail(at, "number out of range");
    return static_cast<unsigned>(value);
  }

  void topLevel();
  Variable variable(std::string_view space);
  void initialValue(Variable &variable, unsigned elementBytes);
  void entry();
  void parameters(Entry &entry);
  void performanceDirectives(Entry &entry);
  void body(Entry &entry);
  void registers(Entry &entry);
  void branchTargets(Entry &entry, std::string_view label);
  void instruction(Entry &entry);
  Operand operand(Entry &entry);
  Operand scalar(Entry &entry);
  std::optional<unsigned> findRegister(std::string_view name) const;
  void skipLine(unsigned line) {
    while (lexer.peek().line == line && lexer.peek().kind != Token::Kind::End)
      lexer.take();
  }

  struct Range {
    std::string_view prefix;
    unsigned first, count;
  };
  Module &module;
  Lexer lexer;
  std::vector<Range> ranges;                          ///< the entry's numbered registers: %r<12>
  std::map<std::string_view, unsigned> registerNames; ///< the entry's named registers: %SP
};

void Parser::topLevel() {
  Token token = lexer.peek();
  if (token.is(".version")) {
    lexer.take();
    module.versionMajor = small();
    Token minor = word();
    module.versionMinor = static_cast<unsigned>(std::atoi(std::string(minor.text.substr(1)).c_str()));
  } else if (token.is(".target")) {
    lexer.take();
    module.target = word().text;
    while (accept(","))
      word();
  } else if (token.is(".address_size")) {
    lexer.take();
    if (Token at = lexer.peek(); integer() != 64)
      fail(at, "only addresses of 64 bits are emulated");
  } else if (token.is(".file")) {
    skipLine(token.line);
  } else if (token.is(".visible") || token.is(".weak")) {
    lexer.take();
  } else if (token.is(".extern")) {
    lexer.take();
    Token space = word();
    if (space.text != ".shared")
      fail(space, "of external variables only dynamic shared memory is emulated");
    Variable found = variable("shared");
    found.external = true;
    module.variables.push_back(std::move(found));
  } else if (token.is(".global") || token.is(".const") || token.is(".shared")) {
    lexer.take();
    module.variables.push_back(variable(token.text.substr(1)));
  } else if (token.is(".entry")) {
    lexer.take();
    entry();
  } else {
    fail(token, "not in the subset of PTX that is emulated (module level)");
  }
}

/// After the state space: `.align 16 .b8 name[64] = {1, 2};`
Variable Parser::variable(std::string_view space) {
  Variable result;
  result.space = space;
  unsigned elementBytes = 0;
  while (lexer.peek().kind == Token::Kind::Word && lexer.peek().text.starts_with(".")) {
    Token token = lexer.take();
    if (token.text == ".align") {
      result.alignment = small();
    } else if (elementBytes = bytesOf(token.text); elementBytes == 0) {
      fail(token, "no type of a variable");
    }
  }
  Token name = word();
  result.name = name.text;
  result.line = name.line;
  if (elementBytes == 0)
    fail(name, "a variable without a type");
  result.alignment = std::max<uint64_t>(result.alignment, elementBytes);
  result.bytes = elementBytes;
  if (accept("[")) {
    result.bytes = lexer.peek().is("]") ? 0 : integer() * elementBytes;
    expect("]");
  }
  if (accept("="))
    initialValue(result, elementBytes);
  expect(";");
  return result;
}

void Parser::initialValue(Variable &variable, unsigned elementBytes) {
  bool braces = accept("{");
  do {
    bool negative = accept("-");
    Token number = lexer.take();
    if (number.kind != Token::Kind::Integer && number.kind != Token::Kind::Float32 &&
        number.kind != Token::Kind::Float64)
      fail(number, "initial values other than numbers are not emulated");
    uint64_t bits = negative ? 0 - number.bits : number.bits;
    for (unsigned i = 0; i < elementBytes; ++i)
      variable.initial.push_back(i < 8 ? static_cast<unsigned char>(bits >> (8 * i)) : 0);
    if (variable.initial.size() > variable.bytes)
      fail(number, "more initial values than the variable has elements");
  } while (braces && accept(","));
  if (braces)
    expect("}");
}

void Parser::entry() {
  Entry result;
  Token name = word();
  result.name = name.text;
  result.line = name.line;
  ranges.clear();
  registerNames.clear();
  if (lexer.peek().is("("))
    parameters(result);
  performanceDirectives(result);
  body(result);
  module.entries.push_back(std::move(result));
}

void Parser::parameters(Entry &entry) {
  expect("(");
  while (!accept(")")) {
    expect(".param");
    Parameter parameter;
    unsigned alignment = 0;
    while (lexer.peek().kind == Token::Kind::Word && lexer.peek().text.starts_with(".")) {
      Token token = lexer.take();
      if (token.text == ".ptr") {
        parameter.pointer = true;
      } else if (token.text == ".align") {
        // Without .ptr, .align aligns the parameter itself; after .ptr it promises the alignment of the pointee.
        unsigned given = small();
        if (!parameter.pointer)
          alignment = given;
      } else if (token.text != ".global" && token.text != ".shared" && token.text != ".const" &&
                 token.text != ".local") {
        if (parameter.bytes = bytesOf(token.text); parameter.bytes == 0)
          fail(token, "no type of a parameter");
      }
    }
    Token name = word();
    parameter.name = name.text;
    if (parameter.bytes == 0)
      fail(name, "a parameter without a type");
    alignment = std::max(alignment, parameter.bytes);
    if (accept("[")) {
      parameter.bytes *= small();
      expect("]");
    }
    parameter.offset = (entry.parameterBytes + alignment - 1) / alignment * alignment;
    entry.parameterBytes = parameter.offset + parameter.bytes;
    entry.parameters.push_back(parameter);
    if (!lexer.peek().is(")"))
      expect(",");
  }
}

void Parser::performanceDirectives(Entry &entry) {
  auto three = [&](unsigned(&to)[3]) {
    to[0] = small();
    to[1] = accept(",") ? small() : 1;
    to[2] = accept(",") ? small() : 1;
  };
  while (!lexer.peek().is("{")) {
    Token token = lexer.take();
    unsigned extents[3];
    if (token.is(".maxntid")) {
      three(extents);
      entry.maxThreads = extents[0] * extents[1] * extents[2];
    } else if (token.is(".reqntid")) {
      three(entry.requiredThreads);
    } else if (token.is(".minnctapersm") || token.is(".maxnreg")) {
      small();
    } else {
      fail(token, "not in the subset of PTX that is emulated (directive of an entry)");
    }
  }
}

void Parser::body(Entry &entry) {
  Token open = expect("{");
  while (!lexer.peek().is("}")) {
    Token token = lexer.peek();
    if (token.kind == Token::Kind::End)
      fail(open, "this body has no end");
    if (token.is(".reg")) {
      lexer.take();
      registers(entry);
    } else if (token.is(".local") || token.is(".shared")) {
      lexer.take();
      entry.variables.push_back(variable(token.text.substr(1)));
    } else if (token.is(".loc")) {
      skipLine(token.line);
    } else if (token.is(".pragma")) {
      lexer.take();
      lexer.take();
      expect(";");
    } else {
      instruction(entry);
    }
  }
  lexer.take();
  for (auto &[label, targets] : entry.branchTargets)
    for (std::string_view target : targets)
      if (!entry.labels.count(target))
        throw Failure{error("PTX, entry {}: label {} of {} is nowhere", entry.name, target, label)};
}

/// `.b32 %r<41>;` declares %r0 to %r40, `.b64 %SP;` one register.
void Parser::registers(Entry &entry) {
  Token type = word();
  unsigned bits = type.text == ".pred" ? 1 : bytesOf(type.text) * 8;
  if (bits == 0)
    fail(type, "no type of a register");
  do {
    Token name = word();
    unsigned count = 1;
    auto base = static_cast<unsigned>(entry.registers.size());
    if (accept("<")) {
      count = small();
      expect(">");
      ranges.push_back({name.text, base, count});
    } else {
      registerNames[name.text] = base;
    }
    entry.registers.insert(entry.registers.end(), count, RegisterType{bits});
  } while (accept(","));
  expect(";");
}

std::optional<unsigned> Parser::findRegister(std::string_view name) const {
  if (auto found = registerNames.find(name); found != registerNames.end())
    return found->second;
  size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == name.size() || name.size() - digits > 9)
    return std::nullopt;
  auto number = static_cast<unsigned>(std::atoi(std::string(name.substr(digits)).c_str()));
  for (const Range &range : ranges)
    if (range.prefix == name.substr(0, digits) && number < range.count)
      return range.first + number;
  return std::nullopt;
}

void Parser::branchTargets(Entry &entry, std::string_view label) {
  expect(".branchtargets");
  auto &targets = entry.branchTargets[label];
  do
    targets.push_back(word().text);
  while (accept(","));
  expect(";");
}

void Parser::instruction(Entry &entry) {
  Instruction result;
  Token first = lexer.peek();
  result.line = first.line;
  if (accept("@")) {
    result.guardNegated = accept("!");
    Token predicate = word();
    auto found = findRegister(predicate.text);
    if (!found || entry.registers[*found].bits != 1)
      fail(predicate, "no predicate");
    result.guard = static_cast<int>(*found);
  }
  Token opcode = word();
  if (result.guard < 0 && accept(":")) {
    if (lexer.peek().is(".branchtargets"))
      return branchTargets(entry, opcode.text);
    if (!entry.labels.emplace(opcode.text, entry.body.size()).second)
      fail(opcode, "this label exists already");
    return;
  }
  std::string_view rest = opcode.text;
  size_t dot = rest.find('.');
  result.opcode = rest.substr(0, dot);
  while (dot != std::string_view::npos) {
    rest = rest.substr(dot + 1);
    dot = rest.find('.');
    result.suffixes.push_back(rest.substr(0, dot));
  }
  while (!lexer.peek().is(";")) {
    result.operands.push_back(operand(entry));
    if (!lexer.peek().is(";"))
      expect(",");
  }
  result.text = lexer.between(first, lexer.peek());
  while (!result.text.empty() && (result.text.back() == ' ' || result.text.back() == '\t'))
    result.text.remove_suffix(1);
  expect(";");
  entry.body.push_back(std::move(result));
}

Operand Parser::scalar(Entry &entry) {
  Operand result;
  if (accept("!"))
    result.negated = true;
  bool negative = accept("-");
  Token token = lexer.take();
  switch (token.kind) {
  case Token::Kind::Integer:
    result.kind = Operand::Kind::Integer;
    result.bits = negative ? 0 - token.bits : token.bits;
    return result;
  case Token::Kind::Float32:
  case Token::Kind::Float64:
    result.kind = Operand::Kind::Float;
    result.floatBits = token.kind == Token::Kind::Float32 ? 32 : 64;
    result.bits = token.bits;
    return result;
  case Token::Kind::Word:
    break;
  default:
    fail(token, "no operand");
  }
  if (negative)
    fail(token, "only numbers can be negated");
  if (token.text == "_")
    return result;
  if (auto found = findRegister(token.text)) {
    result.kind = Operand::Kind::Register;
    result.index = *found;
    if (accept("|")) {
      Operand pair;
      pair.kind = Operand::Kind::Pair;
      pair.parts = {result, scalar(entry)};
      return pair;
    }
    return result;
  }
  result.name = token.text;
  if (token.text.starts_with("%")) {
    static constexpr std::string_view kSpecial[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                                    "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                                    "%nctaid.y", "%nctaid.z", "%laneid",  "%warpid"};
    if (std::find(std::begin(kSpecial), std::end(kSpecial), token.text) == std::end(kSpecial))
      fail(token, "no declared register, and no special register that is emulated");
    result.kind = Operand::Kind::Special;
    return result;
  }
  result.kind = Operand::Kind::Symbol;
  if (accept("+"))
    result.offset = static_cast<int64_t>(integer());
  return result;
}

Operand Parser::operand(Entry &entry) {
  Operand result;
  if (accept("[")) {
    result.kind = Operand::Kind::Address;
    Operand base = scalar(entry);
    if (base.kind == Operand::Kind::Symbol)
      std::swap(result.offset, base.offset);
    if (accept("+"))
      result.offset = static_cast<int64_t>(integer());
    else if (lexer.peek().is("-"))
      result.offset = static_cast<int64_t>(integer());
    result.parts.push_back(std::move(base));
    expect("]");
    return result;
  }
  if (accept("{")) {
    result.kind = Operand::Kind::Vector;
    do
      result.parts.push_back(scalar(entry));
    while (accept(","));
    expect("}");
    return result;
  }
  return scalar(entry);
}
} // namespace

Expected<std::unique_ptr<Module>> parse(std::string_view text) {
  auto module = std::make_unique<Module>();
  module->text = text;
  try {
    Parser(*module).run();
  } catch (Failure &failure) {
    return std::move(failure.status);
  }
  return module;
}

} // namespace tcc::emulation::ptx
