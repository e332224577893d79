//===- KernelWork.cpp - instructions that kernels of a card execute -------===//
#include "tools/common/KernelWork.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace tcc::report {

namespace {
constexpr double kWarp = 32;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string_view trimmed(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos)
    return {};
  line.remove_prefix(first);
  return line.substr(0, line.find_last_not_of(" \t\r;") + 1);
}

/// "add.s64" of "@%p1 add.s64 %rd1, %rd2, 3".
std::string_view opcodeOf(std::string_view line) {
  if (line.starts_with('@'))
    line = trimmed(line.substr(std::min(line.find_first_of(" \t"), line.size())));
  return line.substr(0, line.find_first_of(" \t"));
}

bool isWide(std::string_view opcode) { return opcode.ends_with("64"); }

/// Machine instructions that the assembler makes of one of PTX, estimated: docs/measurements/cuda-estimates.md compares
/// the sums with the assembler's.
double machineInstructions(std::string_view opcode) {
  auto is = [&](std::string_view name) { return opcode.starts_with(name); };
  if (is("mov.") || is("ld.param") || is("cvta") || is("ret") || is("cvt.u64.u32"))
    return 0; // names of registers and constants
  if (is("div.rn.f32") || is("sqrt.rn.f32"))
    return 10;
  if (is("rem.") || is("div.u") || is("div.s"))
    return isWide(opcode) ? 60 : 16;
  if (is("mul.lo.") || is("mad.lo."))
    return isWide(opcode) ? 3 : 1;
  if (is("ex2.approx.f32"))
    return 3; // scales subnormal results
  if (is("bra.uni"))
    return 1;
  if (isWide(opcode) && (is("add.") || is("sub.") || is("shl.") || is("shr.") || is("and.") || is("or.") ||
                         is("setp.") || is("selp.") || is("min.") || is("max.")))
    return 2;
  return 1;
}

bool isApproximation(std::string_view opcode) {
  for (std::string_view name :
       {"ex2.approx", "rcp.approx", "rsqrt.approx", "lg2.approx", "sin.approx", "tanh.approx", "sqrt.approx"})
    if (opcode.starts_with(name))
      return true;
  return false;
}

/// Bytes of "ld.global.v4.b32".
double accessBytes(std::string_view opcode) {
  if (!opcode.starts_with("ld.global") && !opcode.starts_with("st.global"))
    return 0;
  const double elements = contains(opcode, ".v8") ? 8 : contains(opcode, ".v4") ? 4 : contains(opcode, ".v2") ? 2 : 1;
  const size_t digits = opcode.find_last_not_of("0123456789");
  int bits = 0;
  std::from_chars(opcode.data() + digits + 1, opcode.data() + opcode.size(), bits);
  return elements * bits / 8;
}

struct Block {
  ThreadWork work;
  size_t first = 0;     ///< number of its first instruction
  bool divides = false; ///< by the assembler's division, which is a branch of its own
};

struct Jump {
  size_t at = 0; ///< the block that it ends
  std::string_view target;
  bool always = false;
};

/// The body of one kernel.
KernelWork workOf(std::string_view body) {
  std::vector<Block> blocks(1);
  std::vector<Jump> jumps;
  std::map<std::string_view, size_t> labels;
  KernelWork result;
  bool approximates = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find('\n', at), body.size());
    std::string_view line = body.substr(at, end - at);
    at = end + 1;
    line = trimmed(line.substr(0, line.find("//")));
    if (line.empty() || line.starts_with('.') || line == "{" || line == "}" || line == ")")
      continue;
    if (line.starts_with('$')) {
      labels.emplace(line.substr(0, line.find(':')), blocks.size());
      blocks.emplace_back();
      continue;
    }
    const std::string_view opcode = opcodeOf(line);
    Block &block = blocks.back();
    block.work.instructions += machineInstructions(opcode);
    if (isApproximation(opcode))
      ++block.work.approximations, approximates = true;
    block.work.bytes += accessBytes(opcode);
    block.divides |= opcode.starts_with("div.rn.f32") || opcode.starts_with("sqrt.rn.f32");
    result.shuffles |= opcode.starts_with("shfl.");
    if (opcode.starts_with("bra")) {
      jumps.push_back({blocks.size() - 1, trimmed(line.substr(line.find_last_of(" \t") + 1)), !line.starts_with('@')});
      blocks.emplace_back();
    }
  }
  // Quotients are computed from approximations; the original divisions follow a branch for rare operands.
  if (approximates)
    for (Block &block : blocks)
      if (block.divides)
        block.work = {};
  struct Loop {
    size_t begin, end; ///< blocks, both included
    bool innermost = true;
  };
  std::vector<Loop> loops;
  for (const Jump &jump : jumps) {
    auto target = labels.find(jump.target);
    if (target == labels.end() || target->second > jump.at)
      continue;
    auto same = std::find_if(loops.begin(), loops.end(), [&](const Loop &l) { return l.begin == target->second; });
    if (same == loops.end())
      loops.push_back({target->second, jump.at});
    else
      same->end = std::max(same->end, jump.at);
  }
  // The outermost loop is that over tiles.
  auto isOutermost = [&](const Loop &loop) {
    return std::none_of(loops.begin(), loops.end(), [&](const Loop &other) {
      return &other != &loop && other.begin <= loop.begin && other.end >= loop.end;
    });
  };
  std::vector<bool> outermost;
  for (const Loop &loop : loops)
    outermost.push_back(isOutermost(loop));
  for (Loop &loop : loops)
    for (const Loop &other : loops)
      if (&other != &loop && other.begin >= loop.begin && other.end <= loop.end)
        loop.innermost = false;
  std::vector<ThreadWork> inner(loops.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    // The smallest loop around the block.
    std::optional<size_t> around;
    for (size_t l = 0; l < loops.size(); ++l)
      if (loops[l].begin <= b && b <= loops[l].end &&
          (!around || loops[l].end - loops[l].begin < loops[*around].end - loops[*around].begin))
        around = l;
    const bool ofTile = !around || outermost[*around];
    ThreadWork &sum = ofTile ? result.tile : inner[*around];
    if (!around)
      continue; // before and after all tiles
    sum.instructions += blocks[b].work.instructions;
    sum.approximations += blocks[b].work.approximations;
    sum.bytes += blocks[b].work.bytes;
  }
  for (size_t l = 0; l < loops.size(); ++l)
    if (!outermost[l] && loops[l].innermost && inner[l].instructions > 0)
      result.loops.push_back(inner[l]);
  return result;
}
} // namespace

KernelWorks countWork(std::string_view ptx) {
  KernelWorks works;
  constexpr std::string_view kEntry = ".entry ";
  for (size_t at = ptx.find(kEntry); at != std::string_view::npos; at = ptx.find(kEntry, at)) {
    at += kEntry.size();
    const size_t nameEnd = ptx.find_first_of("( \t\n", at);
    const size_t begin = ptx.find("\n{", at), end = ptx.find("\n}", at);
    if (nameEnd == std::string_view::npos || begin == std::string_view::npos || end == std::string_view::npos)
      break;
    works.emplace(ptx.substr(at, nameEnd - at), workOf(ptx.substr(begin + 2, end - begin - 2)));
    at = end;
  }
  return works;
}

KernelWorks countWork(const plan::PlanReader &reader) {
  KernelWorks works;
  for (const plan::CodeObject &code : reader.plan().code_objects())
    if (code.format() == plan::CodeObject::PTX) {
      const std::span<const std::byte> text = reader.payload(code.payload());
      works.merge(countWork({reinterpret_cast<const char *>(text.data()), text.size()}));
    }
  return works;
}

ThreadWork launchWork(const KernelWork &kernel, double tiles, double tileThreads, double bytes) {
  const double warps = tiles * tileThreads / kWarp;
  ThreadWork sum = {warps * kernel.tile.instructions, warps * kernel.tile.approximations,
                    warps * kWarp * kernel.tile.bytes};
  ThreadWork loops;
  for (const ThreadWork &loop : kernel.loops)
    loops.instructions += loop.instructions, loops.approximations += loop.approximations, loops.bytes += loop.bytes;
  if (loops.bytes > 0) {
    const double iterations = std::max(0.0, bytes - sum.bytes) / (kWarp * loops.bytes);
    sum.instructions += iterations * loops.instructions;
    sum.approximations += iterations * loops.approximations;
    sum.bytes += iterations * kWarp * loops.bytes;
  }
  return sum;
}

} // namespace tcc::report
