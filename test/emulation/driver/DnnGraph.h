//===- DnnGraph.h - graphs of several operations of cuDNN ----------------===//
//
// Products, arithmetic, reductions and views on tensors of four dimensions, as attention is described by them. The
// graph is computed as it stands, so a graph with a mistake gives other numbers; graphs that the library has no engine
// for are refused by rules of its documentation ("Supported Graph Patterns").
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_DNNGRAPH_H
#define TCC_TEST_EMULATION_DRIVER_DNNGRAPH_H

#include "test/emulation/driver/DnnConvolution.h"

namespace tcc::emulation {

struct DnnGraph {
  struct Tensor {
    int64_t uid = 0, alignment = 0;
    cuda::api::cudnnDataType_t type = cuda::api::CUDNN_DATA_FLOAT;
    std::vector<int64_t> dims, strides;
    bool isVirtual = false, isByValue = false;
    bool isRead = false, isWritten = false; ///< the graph reads it from memory; writes it to memory
    bool isBias = false;                    ///< in memory: a bias that is added to scores, or such a bias's gradient

    int64_t elements() const;
    uint64_t elementBytes() const;
    /// Elements from its first to its last in memory, gaps included.
    uint64_t span() const;
  };
  struct Operation {
    enum Kind { Product, Pointwise, Reduction, Reshape } kind = Product;
    cuda::api::cudnnPointwiseMode_t mode = cuda::api::CUDNN_POINTWISE_ADD;
    cuda::api::cudnnReduceTensorOp_t by = cuda::api::CUDNN_REDUCE_TENSOR_ADD;
    int64_t axis = -1;
    size_t x = 0, b = 0, t = 0, y = 0; ///< numbers of tensors; b and t where the kind has them
    int operands = 1;
  };
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;

  /// Finds out which tensors are read and written. Returns why the descriptors are no graph; "" if they are.
  std::string connect();
  /// Why no engine computes it; "" if some engine does.
  std::string unknown() const;
  bool isGradient() const;

private:
  std::string unknownBias(const Tensor &tensor) const;
};

/// The engines that heuristics of a mode list for a graph.
std::vector<DnnConfiguration> dnnGraphHeuristics(cuda::api::cudnnBackendHeurMode_t mode);
uint64_t dnnGraphWorkspace(const DnnGraph &graph, const DnnConfiguration &configuration);

/// A submitted graph, as it runs.
struct DnnGraphWork {
  DnnGraph graph;
  DnnConfiguration configuration;
  std::vector<void *> addresses; ///< by tensor
  std::vector<float> numbers;    ///< values of the tensors passed by value, read at submission
  void *workspace = nullptr;

  /// Touches the operands, fills the workspace with NaN, computes.
  std::optional<Fault> run(uint32_t work) const;
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_DNNGRAPH_H
