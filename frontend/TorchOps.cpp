//===- TorchOps.cpp - what torch's operations do to elements --------------===//
#include "frontend/TorchOps.h"

#include "frontend/TorchNotes.h"

#include <set>
#include <sstream>

namespace tcc::frontend {
namespace {

using Words = std::set<std::string>;

Words wordsOf(const char *text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;)
    words.insert(word);
  return words;
}

const Words &moves() {
  static const Words words = wordsOf(R"(
    _reshape_alias _to_copy _unsafe_view adjoint alias chunk clone contiguous convert_element_type detach diagonal
    flatten flip getitem lift lift_fresh lift_fresh_copy mT moveaxis movedim narrow numpy_T numpy_t permute
    pixel_shuffle pixel_unshuffle ravel reshape roll rot90 select slice split split_with_sizes squeeze swapaxes
    swapdims t T tensor_split to transpose type_as unbind unflatten unsafe_chunk unsafe_split unsqueeze view view_as)");
  return words;
}

const Words &joins() {
  static const Words words = wordsOf("cat column_stack concat concatenate dstack hstack stack vstack");
  return words;
}

const Words &repeats() {
  static const Words words = wordsOf(
      "broadcast_to embedding expand expand_as gather index index_select repeat repeat_interleave take tile unfold");
  return words;
}

const Words &makes() {
  static const Words words = wordsOf(R"(
    _assert_tensor_metadata arange empty empty_like eye full full_like linspace logspace new_empty new_full new_ones
    new_zeros ones ones_like scalar_tensor sym_size sym_size_int tril_indices triu_indices zeros zeros_like)");
  return words;
}

const Words &computes() {
  static const Words words = wordsOf(R"(
    _log_softmax _native_batch_norm_legit_functional _safe_softmax _softmax _weight_norm abs acos acosh add addcdiv
    addcmul addmm all amax amin any argmax argmin asin asinh atan atan2 atanh baddbmm bernoulli bilinear bitwise_and
    bitwise_not bitwise_or bitwise_xor bmm ceil celu clamp clamp_max clamp_min clip conv1d conv2d conv3d convolution
    copysign cos cosh cross cumprod cumsum diag_embed diff div dot elu eq erf erfc exp exp2 expm1 fill fill_ floor
    floor_divide fmod frac gcd ge gelu glu group_norm gt hardsigmoid hardswish hardtanh heaviside hypot isinf isnan
    layer_norm le leaky_relu lerp linalg_vector_norm linear log log10 log1p log2 log_sigmoid log_softmax logaddexp
    logical_and logical_not logical_or logical_xor logit logsumexp lt masked_fill masked_scatter matmul max maximum
    mean min minimum mish mm mul mv nan_to_num ne neg norm normalize outer pad polar pow prod reciprocal relu relu6
    remainder rms_norm round rsqrt rsub scatter scatter_add selu sigmoid sign silu sin sinh softmax softplus sort sqrt
    square std sub sum tan tanh topk tril triu trunc var where xlogy)");
  return words;
}

} // namespace

TorchOp torchOp(const std::string &value) {
  size_t end = value.size();
  while (end > 0 && value[end - 1] >= '0' && value[end - 1] <= '9')
    --end;
  const bool numbered = end < value.size() && end > 1 && value[end - 1] == '_';
  std::string name = numbered ? value.substr(0, end - 1) : value;
  const bool whole = name.ends_with("_default"); // the name includes the overload
  if (whole)
    name.resize(name.size() - std::string("_default").size());
  // The digits in "conv1d", "atan2", "log10" belong to the name; "view4" is no name of torch's.
  for (const auto &[words, op] : {std::pair(&moves(), TorchOp::Moves), std::pair(&joins(), TorchOp::Joins),
                                  std::pair(&repeats(), TorchOp::Repeats), std::pair(&makes(), TorchOp::Makes),
                                  std::pair(&computes(), TorchOp::Computes)})
    if (words->count(name))
      return op;
  return whole ? TorchOp::Computes : TorchOp::None;
}

bool translationMovesWeights(const std::string &target, const std::string &note) {
  static const Words targets = wordsOf(R"(
    _convolution _fused_rms_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _prelu_kernel add addmm addmv baddbmm batch_norm bilinear bmm conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution cudnn_batch_norm dot einsum embedding
    embedding_bag group_norm gru instance_norm layer_norm linear lstm matmul mm mul mv native_batch_norm
    native_group_norm native_layer_norm prelu rms_norm rnn_relu rnn_tanh sub tensordot)");
  std::string name = target.starts_with("aten.") ? target.substr(5) : target;
  name = name.substr(0, name.find('.'));
  // add(x, w, alpha=2) scales w.
  return targets.count(name) && note.find("alpha:") == note.npos && note.find("beta:") == note.npos;
}

} // namespace tcc::frontend
