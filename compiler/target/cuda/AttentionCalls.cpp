//===- AttentionCalls.cpp - attention on cuDNN ----------------------------===//
//
// cuDNN's engines fuse a graph of two products and a softmax, or of the five products of its gradient. The sizes that
// they support follow from NVIDIA's support matrix (cuDNN 9, "Supported Graph Patterns", scaled dot product attention)
// and from the library's answers for cards that are not installed (docs/measurements/cudnn-engines.md).
//
// Gradients of queries are sums over keys. Engines with one kernel add them atomically, in no fixed order, though no
// numerical note says so. The deterministic form stores the gradients of scores in the workspace, rounded to 16 bits,
// and multiplies them in a second kernel: memory grows with the square of the sequence. Only this form computes a
// bias's gradient, which needs no further workspace.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/AttentionCalls.h"

#include "compiler/dialect/Attention.h"
#include "runtime/plan/AttentionLayout.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/KernelAbi.h"

#include <algorithm>
#include <limits>

namespace tcc::target::cuda {

namespace {
/// Queries and keys are padded to blocks of these sizes in the workspace.
constexpr int64_t kWorkspaceQueries = 64, kWorkspaceKeys = 128;
/// Keys beyond whole blocks for which Hopper's engines give NaN gradients with a bias, as users report
/// (github.com/pytorch/pytorch/issues/196678): the missing half of the last block of keys has a score of 0, and
/// e^(0 − logsumexp) overflows for a row whose logsumexp is below −88.
constexpr int64_t kBadKeysBeyondBlocks = 64;

uint64_t upTo(int64_t size, int64_t step) { return uint64_t((size + step - 1) / step * step); }

uint64_t attentionWorkspace(const plan::AttentionCall &call, const CudaModel &model) {
  uint64_t bytes = model.leastSlackBytes;
  if (call.kind() == plan::AttentionCall::FORWARD)
    return bytes;
  const uint64_t width = plan::dtypeBytes(call.dtype()), heads = uint64_t(call.batch() * call.heads());
  bytes += heads * upTo(call.queries(), kWorkspaceQueries) * upTo(call.keys(), kWorkspaceKeys) * width;
  if (call.heads() != call.key_heads()) // gradients of keys and values of each query head, before they are added
    bytes += heads * upTo(call.keys(), kWorkspaceKeys) * uint64_t(call.depth() + call.width()) * width;
  return bytes + plan::attentionRowBytes(call);
}
} // namespace

bool callCudnnAttention(Call &request, const Architecture &architecture, const CudaModel &model) {
  plan::AttentionCall &call = *request.instruction.mutable_attention();
  const bool gradient = call.kind() == plan::AttentionCall::GRADIENT;
  if (call.dtype() != plan::BF16 && call.dtype() != plan::F16)
    return false;
  if (!kAttentionCalls.suits(call.depth(), call.width()))
    return false;
  if (gradient && !hasAttentionGradient(architecture))
    return false;
  const bool biased = call.bias_batch() > 0;
  if (gradient && biased && call.keys() % kWorkspaceKeys == kBadKeysBeyondBlocks)
    return false;
  // A single query has engines of its own, made for generation.
  if (call.queries() < 2 || call.keys() < 2)
    return false;
  const double scores = double(call.batch()) * double(call.heads()) * double(call.queries()) * double(call.keys());
  const auto most = double(std::numeric_limits<int32_t>::max());
  if (biased &&
      double(call.bias_batch()) * double(call.bias_heads()) * double(call.queries()) * double(call.keys()) > most)
    return false;
  if (double(call.batch()) * double(call.heads()) * double(std::max(call.queries(), call.keys())) *
              double(kAttentionCalls.mostFeatures) >
          most ||
      (gradient && scores * double(plan::dtypeBytes(call.dtype())) > double(model.mostScoreBytes)))
    return false;
  const uint64_t bytes = attentionWorkspace(call, model);
  call.set_library_scratch_bytes(upTo(int64_t(bytes), plan::kLibraryWorkspaceAlignment));
  request.scratchSlotBytes = call.library_scratch_bytes() + plan::kLibraryWorkspaceAlignment;
  request.readsInPlace = true;
  return true;
}

} // namespace tcc::target::cuda
