//===- DnnScene.h - a convolution of cuDNN in a test ---------------------===//
#ifndef TCC_TEST_EMULATION_FAULTS_DNNSCENE_H
#define TCC_TEST_EMULATION_FAULTS_DNNSCENE_H

#include "test/emulation/driver/DnnConvolution.h"
#include "test/emulation/faults/BlasScene.h"

namespace tcc::emulation {

/// y = x ∗ w with one sample, two channels of 3 × 3 pixels, four features and 2 × 2 taps, or one of its gradients, in
/// f32. Tests set the members before open() to omit or falsify a step; close() destroys the descriptors.
struct DnnScene {
  DnnProblem::Direction direction = DnnProblem::Forward;
  int64_t alignment = 16, engine = 9, tile = 2; ///< engine 9: sums in f32, in `tile` parts
  bool finalizeTensor = true, finalizePlan = true, setAlignment = true;
  int64_t outputs = 2;                                      ///< rows and columns of y
  cudnnBackendAttributeType_t sizes = CUDNN_TYPE_INT64;     ///< the type that is given for dimensions
  DnnProblem::Finish finish = DnnProblem::Sums;             ///< forward only: a bias, which is tensor 3
  int64_t biases = 4;                                       ///< elements of the bias
  bool keepsSums = true, addsSums = true, adds = true; ///< the sums are virtual; the bias's op reads them; it adds
  std::vector<cudnnBackendDescriptor_t> made;

  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t tensors[6] = {}, graph = nullptr, configuration = nullptr, plan = nullptr, pack = nullptr;

  cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t one = nullptr;
    cudnnBackendCreateDescriptor(type, &one);
    made.push_back(one);
    return one;
  }
  template <typename T>
  static cudnnStatus_t set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, const std::vector<T> &elements) {
    return cudnnBackendSetAttribute(to, name, type, int64_t(elements.size()), elements.data());
  }
  static void child(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t one) {
    set(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{one});
  }

  /// Makes all descriptors up to the plan. False: a call refused something.
  bool open() {
    cudnnCreate(&handle);
    const std::vector<int64_t> y = {1, 4, outputs, outputs};
    const std::vector<int64_t> dims[6] = {{1, 2, 3, 3}, {4, 2, 2, 2}, y, {1, biases, 1, 1}, y, y};
    for (int i = 0; i < (finish == DnnProblem::Sums ? 3 : 6); ++i) {
      tensors[i] = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
      const auto &d = dims[i];
      set(tensors[i], CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
      set(tensors[i], CUDNN_ATTR_TENSOR_DIMENSIONS, sizes, d);
      set(tensors[i], CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
          std::vector<int64_t>{d[1] * d[2] * d[3], d[2] * d[3], d[3], 1});
      set(tensors[i], CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector<int64_t>{i});
      if (const bool isVirtual = i == 5 || (i == 4 && keepsSums); isVirtual)
        set(tensors[i], CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, std::vector<unsigned char>{1});
      if (setAlignment || i != 1)
        set(tensors[i], CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector{alignment});
      if ((finalizeTensor || i != 2) && cudnnBackendFinalize(tensors[i]) != CUDNN_STATUS_SUCCESS)
        return false;
    }
    auto window = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const std::vector<int64_t> ones = {1, 1}, zeros = {0, 0};
    set(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::vector<int64_t>{2});
    set(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    set(window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector{CUDNN_CROSS_CORRELATION});
    set(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, ones);
    set(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, ones);
    set(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, zeros);
    set(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, zeros);
    cudnnBackendFinalize(window);
    struct Names {
      cudnnBackendDescriptorType_t type;
      cudnnBackendAttributeName_t first; ///< alpha; then beta, window, and the tensors
      int tensors[3];                    ///< operands whose attributes follow the window, in order
    };
    const Names names[] = {{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            {1, 0, 2}},
                           {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                            {1, 0, 2}},
                           {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                            {1, 0, 2}}};
    const Names &of = names[direction];
    auto name = [&](int i) { return static_cast<cudnnBackendAttributeName_t>(of.first + i); };
    auto operation = create(of.type);
    set(operation, name(0), CUDNN_TYPE_FLOAT, std::vector{1.0F});
    set(operation, name(1), CUDNN_TYPE_FLOAT, std::vector{0.0F});
    child(operation, name(2), window);
    for (int i = 0; i < 3; ++i)
      child(operation, name(3 + i), tensors[of.tensors[i] == 2 && finish != DnnProblem::Sums ? 4 : of.tensors[i]]);
    if (cudnnBackendFinalize(operation) != CUDNN_STATUS_SUCCESS)
      return false;
    graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    std::vector<cudnnBackendDescriptor_t> operations = {operation};
    if (finish != DnnProblem::Sums)
      addFinish(operations);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
    if (cudnnBackendFinalize(graph) != CUDNN_STATUS_SUCCESS)
      return false;
    auto chosen = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    child(chosen, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    set(chosen, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::vector{engine});
    cudnnBackendFinalize(chosen);
    configuration = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    child(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, chosen);
    if (tile) {
      auto knob = create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, std::vector{CUDNN_KNOB_TYPE_TILE_SIZE});
      set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, std::vector{tile});
      cudnnBackendFinalize(knob);
      child(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knob);
    }
    cudnnBackendFinalize(configuration);
    plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    return !finalizePlan || cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS;
  }

  void addFinish(std::vector<cudnnBackendDescriptor_t> &operations) {
    auto how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), one = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
        std::vector{adds ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_MUL});
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    cudnnBackendFinalize(how);
    child(one, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    child(one, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors[addsSums ? 4 : 5]);
    child(one, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors[3]);
    child(one, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors[2]);
    cudnnBackendFinalize(one);
    operations.push_back(one);
  }

  cudnnStatus_t execute(CUdeviceptr x, CUdeviceptr w, CUdeviceptr y, CUdeviceptr workspace, CUstream stream,
                        CUdeviceptr bias = 0) {
    auto at = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
    pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    std::vector<int64_t> uids = {0, 1, 2};
    std::vector<void *> pointers = {at(x), at(w), at(y)};
    if (bias) {
      uids.push_back(3);
      pointers.push_back(at(bias));
    }
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{at(workspace)});
    cudnnBackendFinalize(pack);
    cudnnSetStream(handle, stream);
    return cudnnBackendExecute(handle, plan, pack);
  }

  void destroy(cudnnBackendDescriptor_t one) {
    std::erase(made, one);
    cudnnBackendDestroyDescriptor(one);
  }
  void close() {
    for (cudnnBackendDescriptor_t one : made)
      cudnnBackendDestroyDescriptor(one);
    made.clear();
    cudnnDestroy(handle);
  }
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_FAULTS_DNNSCENE_H
