//===- VerifierImpl.h - the parts of the verifier ------------------------===//
#ifndef TCC_RUNTIME_PLAN_VERIFIERIMPL_H
#define TCC_RUNTIME_PLAN_VERIFIERIMPL_H

#include "runtime/plan/DType.h"
#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/plan.pb.h"

#include <fmt/format.h>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::plan::verifier {

/// For sizes from a plan, which may be arbitrary: sums and products of a few sizes below 2^62 fit into 128 bits.
using Wide = unsigned __int128;

/// A product that saturates at 2^62 instead of wrapping around.
inline uint64_t saturatingProduct(std::initializer_list<uint64_t> factors) {
  constexpr uint64_t limit = uint64_t(1) << 62;
  Wide product = 1;
  for (uint64_t factor : factors) {
    product *= factor;
    if (factor == 0)
      return 0;
    if (product > limit)
      product = limit;
  }
  return static_cast<uint64_t>(product);
}

/// Collects messages, at most a limit of them.
class Reporter {
public:
  explicit Reporter(size_t limit) : limit(limit) {}
  template <typename... Args> void operator()(fmt::format_string<Args...> format, Args &&...args) {
    if (messages.size() < limit)
      messages.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  bool full() const { return messages.size() >= limit; }
  std::vector<std::string> take() { return std::move(messages); }

private:
  size_t limit;
  std::vector<std::string> messages;
};

/// "buffer 3 'h.0.attn' (node 'MatMul_4')".
std::string describe(const Entry &entry, uint32_t buffer);

/// "entry 'step', instruction 12 (node 'MatMul_4')".
std::string describeInstruction(const Entry &entry, int index);

/// The least number of tiles of a matmul or convolution; a convolution may have more, if it is also cut by groups.
int64_t leastTiles(const Instruction &instruction);

/// Bytes that operand `index` of an instruction can reach: its buffer's size less the byte offset.
uint64_t operandBytes(const Entry &entry, const Instruction &instruction, int index);

/// The signatures of each code object by symbol; empty for a code object whose hash does not match.
using SignatureIndex = std::vector<std::map<std::string_view, const KernelSignature *>>;

/// Checks code objects and their signatures; returns the index.
SignatureIndex verifyCode(const Plan &plan, Reporter &report);

/// Checks that a code object has the format and processor of the plan's target.
void verifyFormat(const Plan &plan, int index, Reporter &report);

/// A plan under examination.
struct Context {
  const Plan &plan;
  const SignatureIndex &signatures;
  Reporter &report;
};

/// The launch of a kernel on a GPU: its grid, and scratch for every thread that takes a tile.
void verifyGrid(const Context &context, const Entry &entry, int index, const KernelCall &kernel,
                const KernelSignature &signature);

/// True if the kernel takes the first tile of a slice as one more parameter: on a card, a kernel behind a product does.
bool takesFirstTile(const Plan &plan, const KernelSignature &signature);

/// Slices of a product on a card: each must be whole tiles of the kernel, which is launched on its grid for each slice.
void verifySlices(const Context &context, const Entry &entry, int index, const KernelSignature &signature);

/// A matmul or convolution must use a library that the plan's target has; cuBLASLt must support the product.
void verifyLibrary(const Context &context, const Entry &entry, int index);

/// Attention by cuDNN: its tensors within the operands, and its scratch.
void verifyAttention(const Context &context, const Entry &entry, int index);

/// Operand counts, shapes against buffer sizes, tiles and signatures of one instruction, whose operands are in bounds.
void verifyCall(const Context &context, const Entry &entry, int index);

/// Inputs, outputs, scalars and counters of an entry. `isDefined` says whether a buffer holds a value at its end.
void verifyPorts(const Context &context, const Entry &entry, const std::function<bool(uint32_t)> &isDefined);

/// Variables and the initializers that are copies of them.
void verifyVariables(const Context &context);

/// Buffers, instructions and ports of an entry.
void verifyEntry(const Context &context, const Entry &entry);

} // namespace tcc::plan::verifier

#endif // TCC_RUNTIME_PLAN_VERIFIERIMPL_H
