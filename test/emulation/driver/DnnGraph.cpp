//===- DnnGraph.cpp - graphs of several operations of cuDNN --------------===//
//
// Sums are in f32, one rounding a step, split into parts if the engine's setting says so. The list of engines is our
// own: it begins with one that takes more workspace than any card has and one of which no plan can be made; all need
// run-time compilation, as NVIDIA's do.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/DnnGraph.h"

#include "test/emulation/driver/BlasArithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace tcc::cuda::api;

namespace tcc::emulation {

namespace {
constexpr size_t kRank = 4;
constexpr int64_t kFeatureStep = 8, kMostFeatures = 128, kAccessBytes = 16, kBlockRows = 64, kBlockColumns = 128;

cudaDataType asElement(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF ? CUDA_R_16F : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
}
bool isNarrow(cudnnDataType_t type) { return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16; }

/// `value` rounded to the type.
float rounded(float value, cudnnDataType_t type) {
  if (!isNarrow(type))
    return value;
  unsigned char place[4] = {};
  storeElement(place, 0, double(value), asElement(type));
  return static_cast<float>(loadElement(place, 0, asElement(type)));
}

/// The coordinate in an operand's dimension of `extent` for a coordinate in one of `of`: extent 1 is broadcast, and a
/// smaller number of heads is shared by groups.
int64_t within(int64_t coordinate, int64_t extent, int64_t of) {
  return extent == of ? coordinate : extent == 1 ? 0 : coordinate / (of / extent);
}
bool repeats(int64_t extent, int64_t of) { return extent == of || extent == 1; }
} // namespace

int64_t DnnGraph::Tensor::elements() const {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= dim;
  return count;
}
uint64_t DnnGraph::Tensor::elementBytes() const { return isNarrow(type) ? 2 : 4; }
uint64_t DnnGraph::Tensor::span() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i)
    last += (dims[i] - 1) * strides[i];
  return static_cast<uint64_t>(last + 1) * elementBytes();
}

std::string DnnGraph::connect() {
  std::vector<char> made(tensors.size());
  for (const Operation &operation : operations) {
    const size_t inputs[] = {operation.x, operation.b, operation.t};
    for (int i = 0; i < operation.operands; ++i) {
      Tensor &input = tensors[inputs[i]];
      if (made[inputs[i]] || input.isByValue)
        continue;
      if (input.isVirtual)
        return fmt::format("virtual tensor {} is read before an operation makes it", input.uid);
      input.isRead = true;
    }
    Tensor &result = tensors[operation.y];
    if (made[operation.y] || result.isRead || result.isByValue)
      return fmt::format("tensor {} is written, and was read or written before", result.uid);
    made[operation.y] = 1;
    result.isWritten = !result.isVirtual;
  }
  for (const Operation &operation : operations) {
    const Tensor &x = tensors[operation.x], &y = tensors[operation.y];
    const size_t inputs[] = {operation.x, operation.b, operation.t};
    for (int i = 0; i < operation.operands; ++i)
      if (tensors[inputs[i]].dims.size() != kRank || y.dims.size() != kRank)
        return "a tensor that has not four dimensions";
    switch (operation.kind) {
    case Operation::Product: {
      const Tensor &b = tensors[operation.b];
      for (size_t d : {size_t(0), size_t(1)})
        if (y.dims[d] % x.dims[d] || y.dims[d] % b.dims[d])
          return "a product of batches that do not fit";
      if (x.dims[2] != y.dims[2] || x.dims[3] != b.dims[2] || b.dims[3] != y.dims[3])
        return "a product of sizes that do not fit";
      if (x.type != b.type && !(isNarrow(b.type) && x.type == CUDNN_DATA_FLOAT && x.isVirtual))
        return "a product of two types";
      break;
    }
    case Operation::Pointwise:
      for (int i = 0; i < operation.operands; ++i)
        for (size_t d = 0; d < kRank; ++d)
          if (!repeats(tensors[inputs[i]].dims[d], y.dims[d]))
            return "arithmetic on sizes that do not fit";
      if (operation.mode == CUDNN_POINTWISE_GEN_INDEX && (operation.axis < 0 || operation.axis >= int64_t(kRank)))
        return "indices along no axis";
      break;
    case Operation::Reduction:
      for (size_t d = 0; d < kRank; ++d)
        if (x.dims[d] % y.dims[d])
          return "a reduction to sizes that do not fit";
      break;
    case Operation::Reshape:
      if (x.elements() != y.elements())
        return "a view of another number of elements";
      break;
    }
  }
  for (const Operation &operation : operations) {
    Tensor &b = tensors[operation.b], &y = tensors[operation.y];
    const Tensor &x = tensors[operation.x];
    if (operation.kind == Operation::Pointwise && operation.mode == CUDNN_POINTWISE_ADD)
      b.isBias = b.isRead;
    if (operation.kind == Operation::Reduction && x.isVirtual && !isNarrow(x.type) && x.dims[3] == y.dims[3])
      y.isBias = y.isWritten;
  }
  return "";
}

bool DnnGraph::isGradient() const {
  return std::count_if(operations.begin(), operations.end(),
                       [](const Operation &one) { return one.kind == Operation::Product; }) == 5;
}

/// Additive biases have 16 bits, the shape [1 or B, 1 or H, Sq, Skv] and adjacent keys (frontend's documentation,
/// "Attention", table of input tensors). A gradient "should have the same properties" as its bias (same page, backward
/// operation), and the library refuses a gradient with gaps between its elements.
std::string DnnGraph::unknownBias(const Tensor &tensor) const {
  const Operation &product = *std::find_if(operations.begin(), operations.end(),
                                           [](const Operation &one) { return one.kind == Operation::Product; });
  const std::vector<int64_t> &scores = tensors[product.y].dims;
  if (tensor.type != tensors[product.x].type)
    return "a bias in another type than the heads";
  if (!repeats(tensor.dims[0], scores[0]) || !repeats(tensor.dims[1], scores[1]) || tensor.dims[2] != scores[2] ||
      tensor.dims[3] != scores[3])
    return "a bias that does not have a row for each query and a column for each key";
  if (tensor.strides[3] != 1)
    return "a bias whose keys do not lie side by side";
  if (tensor.alignment % kAccessBytes)
    return fmt::format("a bias at a multiple of {} bytes", tensor.alignment);
  // Not documented: users report NaN (github.com/pytorch/pytorch/issues/196678).
  if (isGradient() && tensor.dims[3] % kBlockColumns == kBlockColumns / 2)
    return fmt::format("the gradient of attention with a bias for {} keys", tensor.dims[3]);
  if (!tensor.isWritten)
    return "";
  int64_t step = 1;
  for (size_t d = kRank; d-- > 0; step *= tensor.dims[d])
    if (tensor.dims[d] > 1 && tensor.strides[d] != step)
      return "a bias's gradient with gaps";
  const bool same = std::any_of(tensors.begin(), tensors.end(), [&](const Tensor &bias) {
    return bias.isBias && bias.isRead && bias.dims == tensor.dims;
  });
  return same ? "" : "a bias's gradient of other sizes than the bias";
}

/// Scaled dot product attention, forward and backward: 16-bit products, a multiple of 8 features, adjacent features,
/// and rows at multiples of 16 bytes (the library does not check the last two; the stand-in does).
std::string DnnGraph::unknown() const {
  const auto products = std::count_if(operations.begin(), operations.end(),
                                      [](const Operation &one) { return one.kind == Operation::Product; });
  if (products != 2 && products != 5)
    return fmt::format("a graph with {} products", products);
  for (const Tensor &tensor : tensors) {
    if (!tensor.isRead && !tensor.isWritten)
      continue;
    if (tensor.isBias) {
      if (std::string wrong = unknownBias(tensor); !wrong.empty())
        return wrong;
      continue;
    }
    if (!isNarrow(tensor.type)) {
      if (tensor.type != CUDNN_DATA_FLOAT || tensor.dims[3] != 1)
        return "a tensor of heads in more than 16 bits";
      continue;
    }
    const size_t features = tensor.strides[3] == 1 ? 3 : 2;
    if (tensor.strides[features] != 1)
      return "features that do not lie side by side";
    if (tensor.dims[features] % kFeatureStep || tensor.dims[features] > kMostFeatures)
      return fmt::format("heads of {} features", tensor.dims[features]);
    if (tensor.alignment % kAccessBytes)
      return fmt::format("a tensor of heads at a multiple of {} bytes", tensor.alignment);
    for (size_t d = 0; d < kRank; ++d)
      if (d != features && tensor.dims[d] > 1 && tensor.strides[d] * 2 % kAccessBytes)
        return fmt::format("rows that are {} elements apart", tensor.strides[d]);
  }
  return "";
}

std::vector<DnnConfiguration> dnnGraphHeuristics(cudnnBackendHeurMode_t mode) {
  if (!standIn().options.engines)
    return {{kDnnGraphGreedy, 0}};
  if (mode == CUDNN_HEUR_MODE_FALLBACK)
    return {};
  if (mode == CUDNN_HEUR_MODE_B)
    return {{kDnnGraphSlow, 0}};
  return {{kDnnGraphGreedy, 0}, {kDnnGraphNever, 0}, {kDnnGraphFused, 1}, {kDnnGraphFused, 2}, {kDnnGraphSlow, 0}};
}

uint64_t dnnGraphWorkspace(const DnnGraph &graph, const DnnConfiguration &configuration) {
  if (configuration.engine == kDnnGraphGreedy)
    return uint64_t(1) << 40;
  uint64_t bytes = 256;
  if (!graph.isGradient())
    return bytes;
  auto blocks = [](int64_t size, int64_t step) { return (size + step - 1) / step * step; };
  for (const DnnGraph::Operation &operation : graph.operations)
    if (const auto &y = graph.tensors[operation.y]; operation.kind == DnnGraph::Operation::Product) {
      const auto &x = graph.tensors[operation.x];
      if (x.isVirtual && x.type == CUDNN_DATA_FLOAT) // score gradients, for the product that makes the query gradient
        bytes += static_cast<uint64_t>(x.dims[0] * x.dims[1] * blocks(x.dims[2], kBlockRows) *
                                       blocks(x.dims[3], kBlockColumns)) *
                 2;
      else if (y.isVirtual && isNarrow(y.type)) // the gradients of single heads, which are summed later
        bytes += static_cast<uint64_t>(y.elements()) * 2;
    }
  return bytes;
}

namespace {

/// Elements of all tensors, in the order of their dimensions.
class GraphRun {
public:
  GraphRun(const DnnGraphWork &work, int64_t parts) : graph(work.graph), parts(parts), values(graph.tensors.size()) {
    for (size_t i = 0, number = 0; i < values.size(); ++i) {
      const DnnGraph::Tensor &tensor = graph.tensors[i];
      if (tensor.isByValue) {
        values[i] = {work.numbers[number++]};
      } else if (tensor.isRead) {
        values[i].resize(static_cast<size_t>(tensor.elements()));
        each(tensor.dims, [&](size_t at, const int64_t(&c)[kRank]) {
          values[i][at] =
              static_cast<float>(loadElement(work.addresses[i], placeOf(tensor, c), asElement(tensor.type)));
        });
      }
    }
  }

  void run() {
    for (const DnnGraph::Operation &operation : graph.operations) {
      const DnnGraph::Tensor &y = graph.tensors[operation.y];
      std::vector<float> &result = values[operation.y];
      result.assign(static_cast<size_t>(y.elements()), 0);
      switch (operation.kind) {
      case DnnGraph::Operation::Product:
        multiply(operation, result);
        break;
      case DnnGraph::Operation::Pointwise:
        each(y.dims, [&](size_t at, const int64_t(&c)[kRank]) { result[at] = compute(operation, c); });
        break;
      case DnnGraph::Operation::Reduction:
        reduce(operation, result);
        break;
      case DnnGraph::Operation::Reshape:
        view(operation, result);
        break;
      }
      for (float &value : result)
        value = rounded(value, y.type);
    }
  }

  void store(const DnnGraphWork &work) const {
    for (size_t i = 0; i < values.size(); ++i)
      if (const DnnGraph::Tensor &tensor = graph.tensors[i]; tensor.isWritten)
        each(tensor.dims, [&](size_t at, const int64_t(&c)[kRank]) {
          storeElement(work.addresses[i], placeOf(tensor, c), double(values[i][at]), asElement(tensor.type));
        });
  }

private:
  template <typename Body> static void each(const std::vector<int64_t> &dims, Body body) {
    int64_t c[kRank] = {};
    size_t at = 0;
    for (c[0] = 0; c[0] < dims[0]; ++c[0])
      for (c[1] = 0; c[1] < dims[1]; ++c[1])
        for (c[2] = 0; c[2] < dims[2]; ++c[2])
          for (c[3] = 0; c[3] < dims[3]; ++c[3])
            body(at++, c);
  }
  static uint64_t placeOf(const DnnGraph::Tensor &tensor, const int64_t (&c)[kRank]) {
    int64_t place = 0;
    for (size_t d = 0; d < kRank; ++d)
      place += c[d] * tensor.strides[d];
    return static_cast<uint64_t>(place);
  }
  /// The element of a tensor at a result's coordinates; dimensions of extent 1 are broadcast.
  float read(size_t tensor, const int64_t (&c)[kRank]) const {
    const std::vector<int64_t> &dims = graph.tensors[tensor].dims;
    int64_t at = 0;
    for (size_t d = 0; d < kRank; ++d)
      at = at * dims[d] + (dims[d] == 1 ? 0 : c[d]);
    return values[tensor][static_cast<size_t>(at)];
  }

  float compute(const DnnGraph::Operation &operation, const int64_t (&c)[kRank]) const {
    const float x = operation.mode == CUDNN_POINTWISE_GEN_INDEX ? 0 : read(operation.x, c);
    const float b = operation.operands > 1 ? read(operation.b, c) : 0;
    switch (operation.mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_EXP:
      return static_cast<float>(std::exp(double(x)));
    case CUDNN_POINTWISE_LOG:
      return static_cast<float>(std::log(double(x)));
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_GEN_INDEX:
      return static_cast<float>(c[operation.axis]);
    case CUDNN_POINTWISE_BINARY_SELECT:
      return read(operation.t, c) != 0 ? x : b;
    }
    return NAN;
  }

  void multiply(const DnnGraph::Operation &operation, std::vector<float> &result) const {
    const DnnGraph::Tensor &a = graph.tensors[operation.x], &b = graph.tensors[operation.b],
                           &y = graph.tensors[operation.y];
    const int64_t depth = a.dims[3], columns = y.dims[3], rows = y.dims[2], part = (depth + parts - 1) / parts;
    std::vector<float> sums(static_cast<size_t>(columns));
    for (int64_t n = 0; n < y.dims[0]; ++n)
      for (int64_t h = 0; h < y.dims[1]; ++h) {
        auto matrix = [&](size_t tensor, const DnnGraph::Tensor &of) {
          const int64_t index = within(n, of.dims[0], y.dims[0]) * of.dims[1] + within(h, of.dims[1], y.dims[1]);
          return values[tensor].data() + index * of.dims[2] * of.dims[3];
        };
        const float *left = matrix(operation.x, a), *right = matrix(operation.b, b);
        // The left factor is rounded to the right one's 16-bit type.
        for (int64_t i = 0; i < rows; ++i) {
          float *row = result.data() + ((n * y.dims[1] + h) * rows + i) * columns;
          for (int64_t first = 0; first < depth; first += part) {
            std::fill(sums.begin(), sums.end(), 0.F);
            for (int64_t k = first; k < std::min(first + part, depth); ++k) {
              const float factor = rounded(left[i * depth + k], b.type);
              for (int64_t j = 0; j < columns; ++j)
                sums[size_t(j)] += factor * right[k * columns + j];
            }
            for (int64_t j = 0; j < columns; ++j)
              row[j] += sums[size_t(j)];
          }
        }
      }
  }

  void reduce(const DnnGraph::Operation &operation, std::vector<float> &result) const {
    const DnnGraph::Tensor &x = graph.tensors[operation.x], &y = graph.tensors[operation.y];
    const bool most = operation.by == CUDNN_REDUCE_TENSOR_MAX;
    if (most)
      std::fill(result.begin(), result.end(), -INFINITY);
    each(x.dims, [&](size_t at, const int64_t(&c)[kRank]) {
      int64_t to = 0;
      for (size_t d = 0; d < kRank; ++d)
        to = to * y.dims[d] + within(c[d], y.dims[d], x.dims[d]);
      float &sum = result[static_cast<size_t>(to)];
      const float value = values[operation.x][at];
      sum = !most ? sum + value : std::isnan(value) || value > sum ? value : sum;
    });
  }

  /// Reshapes: the k-th element of the operand in memory order becomes the k-th of the result in memory order.
  void view(const DnnGraph::Operation &operation, std::vector<float> &result) const {
    const DnnGraph::Tensor &x = graph.tensors[operation.x], &y = graph.tensors[operation.y];
    std::vector<std::pair<uint64_t, size_t>> from, to;
    each(x.dims, [&](size_t at, const int64_t(&c)[kRank]) { from.emplace_back(placeOf(x, c), at); });
    each(y.dims, [&](size_t at, const int64_t(&c)[kRank]) { to.emplace_back(placeOf(y, c), at); });
    std::sort(from.begin(), from.end());
    std::sort(to.begin(), to.end());
    for (size_t i = 0; i < from.size(); ++i)
      result[to[i].second] = values[operation.x][from[i].second];
  }

  const DnnGraph &graph;
  int64_t parts;
  std::vector<std::vector<float>> values;
};

} // namespace

std::optional<Fault> DnnGraphWork::run(uint32_t work) const {
  Memory &memory = standIn().machine.memory();
  const char *what = "cudnnBackendExecute";
  // Row by row, since elements of other tensors may lie between the rows.
  auto touch = [&](const DnnGraph::Tensor &tensor, void *address, AccessKind kind) -> std::optional<Fault> {
    const size_t along = tensor.strides[3] == 1 ? 3 : 2;
    const size_t across = 5 - along;
    for (int64_t n = 0; n < tensor.dims[0]; ++n)
      for (int64_t h = 0; h < tensor.dims[1]; ++h)
        for (int64_t i = 0; i < tensor.dims[across]; ++i) {
          const int64_t place = n * tensor.strides[0] + h * tensor.strides[1] + i * tensor.strides[across];
          const uint64_t bytes = tensor.elementBytes();
          if (auto fault = memory.touchByWork(static_cast<std::byte *>(address) + static_cast<uint64_t>(place) * bytes,
                                              static_cast<uint64_t>(tensor.dims[along]) * bytes, kind, work, what))
            return fault;
        }
    return std::nullopt;
  };
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (const DnnGraph::Tensor &tensor = graph.tensors[i]; tensor.isRead)
      if (auto fault = touch(tensor, addresses[i], kRead))
        return fault;
  if (const uint64_t bytes = dnnGraphWorkspace(graph, configuration)) {
    if (auto fault = memory.touchByWork(workspace, bytes, kWrite, work, what))
      return fault;
    std::memset(workspace, 0xff, bytes);
  }
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (const DnnGraph::Tensor &tensor = graph.tensors[i]; tensor.isWritten)
      if (auto fault = touch(tensor, addresses[i], kWrite))
        return fault;
  GraphRun computed(*this, std::max<int64_t>(1, configuration.tile));
  computed.run();
  computed.store(*this);
  return std::nullopt;
}

} // namespace tcc::emulation
