//===- DnnGraphFaultsTest.cpp - planted mistakes with attention ----------===//
//
// Each program describes attention to cuDNN's stand-in with one mistake, and without. attention-check and the tests of
// models check values: the gradient here is a graph with the right number of products, but without a meaning.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/faults/DnnScene.h"

#include <gtest/gtest.h>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {

/// softmax(q·kᵀ)·v of two heads with four rows, in f16: q, k and v are columns of one tensor.
struct AttentionScene {
  int64_t features = 8, rowElements = 48, alignment = 16, uid = 0;
  bool sumsBeforeProduct = false, keepsNumber = true;
  CUdeviceptr bias = 0, biasGrad = 0; ///< 0: the graph has none
  cudnnDataType_t biasType = CUDNN_DATA_HALF;
  std::vector<int64_t> biasDims{1, 2, 4, 4}, biasGradDims{1, 2, 4, 4};
  int64_t biasGradRow = 4;  ///< elements from row to row
  void *numberAt = nullptr; ///< used instead of the address of the host's number
  float one = 1;
  DnnScene base; ///< creates, sets and destroys descriptors
  std::vector<cudnnBackendDescriptor_t> operations;
  std::vector<int64_t> uids;
  std::vector<void *> data;

  cudnnBackendDescriptor_t tensor(std::vector<int64_t> dims, std::vector<int64_t> strides, cudnnDataType_t type,
                                  bool isVirtual, bool isByValue = false) {
    auto made = base.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    DnnScene::set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
    DnnScene::set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
    DnnScene::set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    DnnScene::set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{++uid});
    DnnScene::set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
                  std::vector{type == CUDNN_DATA_FLOAT && !isVirtual ? int64_t(4) : alignment});
    const bool yes = true;
    if (isVirtual)
      cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (isByValue)
      cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    cudnnBackendFinalize(made);
    return made;
  }
  cudnnBackendDescriptor_t placed(std::vector<int64_t> dims, std::vector<int64_t> strides, cudnnDataType_t type,
                                  void *at, bool isByValue = false) {
    auto made = tensor(std::move(dims), std::move(strides), type, false, isByValue);
    uids.push_back(uid);
    data.push_back(at);
    return made;
  }
  cudnnBackendDescriptor_t between(int64_t columns, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor({1, 2, 4, columns}, {8 * columns, 4 * columns, columns, 1}, type, true);
  }
  cudnnBackendDescriptor_t
  operation(cudnnBackendDescriptorType_t type,
            std::initializer_list<std::pair<cudnnBackendAttributeName_t, cudnnBackendDescriptor_t>> parts) {
    auto made = base.create(type);
    for (auto [name, part] : parts)
      DnnScene::child(made, name, part);
    cudnnBackendFinalize(made);
    operations.push_back(made);
    return made;
  }
  void multiply(cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t c) {
    auto how = base.create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    DnnScene::set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    cudnnBackendFinalize(how);
    operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                                                          {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                                                          {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c},
                                                          {CUDNN_ATTR_OPERATION_MATMUL_DESC, how}});
  }
  void compute(cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
               cudnnBackendDescriptor_t y) {
    auto how = base.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    DnnScene::set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode});
    DnnScene::set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    cudnnBackendFinalize(how);
    auto made = base.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    DnnScene::child(made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    DnnScene::child(made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
      DnnScene::child(made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    DnnScene::child(made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    cudnnBackendFinalize(made);
    operations.push_back(made);
  }
  void reduce(cudnnReduceTensorOp_t by, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y) {
    auto how = base.create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    DnnScene::set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    DnnScene::set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, std::vector{by});
    cudnnBackendFinalize(how);
    operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                                                             {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y},
                                                             {CUDNN_ATTR_OPERATION_REDUCTION_DESC, how}});
  }

  /// Runs attention on the first stream of `s`. `qkv` has 192 elements, `output` 64.
  void run(Scene &s, CUdeviceptr qkv, CUdeviceptr output, CUdeviceptr workspace) {
    cudnnCreate(&base.handle);
    auto at = [&](int64_t elements) { return reinterpret_cast<void *>(qkv + uint64_t(elements) * 2); };
    const std::vector<int64_t> heads{1, 2, 4, features}, strides{4 * rowElements, features, rowElements, 1};
    auto q = placed(heads, strides, CUDNN_DATA_HALF, at(0)),
         v = placed(heads, strides, CUDNN_DATA_HALF, at(4 * features)),
         k = placed({1, 2, features, 4}, {4 * rowElements, features, 1, rowElements}, CUDNN_DATA_HALF,
                    at(2 * features)),
         o = placed(heads, {8 * features, features, 2 * features, 1}, CUDNN_DATA_HALF,
                    reinterpret_cast<void *>(output));
    auto number = placed({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, numberAt ? numberAt : &one, true);
    auto raw = between(4), score = between(4), most = between(1), relative = between(4), weight = between(4),
         sum = between(1), narrow = between(4, CUDNN_DATA_HALF);
    if (sumsBeforeProduct)
      compute(CUDNN_POINTWISE_MUL, raw, number, score);
    multiply(q, k, raw);
    if (!sumsBeforeProduct)
      compute(CUDNN_POINTWISE_MUL, raw, number, score);
    auto dense = [](const std::vector<int64_t> &dims, int64_t row) {
      return std::vector<int64_t>{dims[1] * dims[2] * row, dims[2] * row, row, 1};
    };
    if (bias) {
      auto added = between(4);
      compute(CUDNN_POINTWISE_ADD, score,
              placed(biasDims, dense(biasDims, biasDims[3]), biasType, reinterpret_cast<void *>(bias)), added);
      score = added;
    }
    if (biasGrad) {
      for (int i = 0; i < 3; ++i)
        multiply(q, k, between(4));
      reduce(
          CUDNN_REDUCE_TENSOR_ADD, score,
          placed(biasGradDims, dense(biasGradDims, biasGradRow), CUDNN_DATA_HALF, reinterpret_cast<void *>(biasGrad)));
    }
    reduce(CUDNN_REDUCE_TENSOR_MAX, score, most);
    compute(CUDNN_POINTWISE_SUB, score, most, relative);
    compute(CUDNN_POINTWISE_EXP, relative, nullptr, weight);
    reduce(CUDNN_REDUCE_TENSOR_ADD, weight, sum);
    compute(CUDNN_POINTWISE_DIV, weight, sum, narrow);
    multiply(narrow, v, o);
    auto graph = base.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    DnnScene::set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{base.handle});
    DnnScene::set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
    auto engine = base.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR),
         configuration = base.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
         plan = base.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
         pack = base.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    DnnScene::child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    DnnScene::set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::vector<int64_t>{kDnnGraphFused});
    DnnScene::child(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    DnnScene::set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{base.handle});
    DnnScene::child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (!keepsNumber)
      uids.pop_back(), data.pop_back();
    DnnScene::set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids);
    DnnScene::set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data);
    DnnScene::set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                  std::vector{reinterpret_cast<void *>(workspace)});
    bool good = true;
    for (cudnnBackendDescriptor_t one : {graph, engine, configuration, plan, pack})
      good = good && cudnnBackendFinalize(one) == CUDNN_STATUS_SUCCESS;
    if (good) {
      cudnnSetStream(base.handle, s.one);
      cudnnBackendExecute(base.handle, plan, pack);
    }
    cuCtxSynchronize();
    base.close();
  }
};

constexpr size_t kHeads = 512, kOutput = 256, kEnough = 512;

void giveHeads(Scene &s, CUdeviceptr to, size_t bytes) { cuMemsetD16Async(to, 0x3c00, bytes / 2, s.one); }

/// Applies `change`, which plants the mistake, and runs attention.
template <typename Change> void attend(Scene &s, Change change, size_t workspaceBytes = kEnough) {
  Extra qkv(kHeads), output(kOutput), workspace(workspaceBytes);
  giveHeads(s, qkv.address, kHeads);
  AttentionScene scene;
  change(scene);
  scene.run(s, qkv.address, output.address, workspace.address);
}

/// Runs attention with a bias of 64 bytes; with `gradient` also its gradient, which needs workspace for score
/// gradients.
constexpr size_t kBias = 128, kGradientWorkspace = 1 << 18;
template <typename Change> void attendBiased(Scene &s, bool gradient, Change change) {
  Extra bias(kBias), biasGrad(kBias);
  giveHeads(s, bias.address, kBias);
  attend(
      s,
      [&](AttentionScene &a) {
        a.bias = bias.address;
        a.biasGrad = gradient ? biasGrad.address : 0;
        change(a);
      },
      kGradientWorkspace);
}

const Planted kGraphPlanted[] = {
    {"HeadsOfSevenFeatures", "misuse",
     [](Scene &s, bool wrong) { attend(s, [&](AttentionScene &a) { a.features = wrong ? 7 : 8; }); }},
    {"RowsOfHeadsNotAligned", "misuse",
     [](Scene &s, bool wrong) { attend(s, [&](AttentionScene &a) { a.rowElements = wrong ? 50 : 48; }); }},
    {"HeadsLessAlignedThanEnginesNeed", "misuse",
     [](Scene &s, bool wrong) { attend(s, [&](AttentionScene &a) { a.alignment = wrong ? 8 : 16; }); }},
    {"VirtualTensorReadBeforeItIsMade", "misuse",
     [](Scene &s, bool wrong) { attend(s, [&](AttentionScene &a) { a.sumsBeforeProduct = wrong; }); }},
    {"NumberWithoutAnAddress", "misuse",
     [](Scene &s, bool wrong) { attend(s, [&](AttentionScene &a) { a.keepsNumber = !wrong; }); }},
    {"NumberByValueOnTheDevice", "misuse",
     [](Scene &s, bool wrong) {
       attend(s, [&](AttentionScene &a) { a.numberAt = wrong ? reinterpret_cast<void *>(s.a) : nullptr; });
     }},
    {"HeadsWithoutAValue", "uninitialised-read",
     [](Scene &s, bool wrong) {
       Extra output(kOutput), workspace(kEnough);
       CUdeviceptr qkv = 0;
       cuMemAlloc_v2(&qkv, kHeads);
       giveHeads(s, qkv, wrong ? 300 : kHeads);
       AttentionScene().run(s, qkv, output.address, workspace.address);
       cuMemFree_v2(qkv);
     }},
    {"HeadsBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) {
       Extra qkv(wrong ? 256 : kHeads), output(kOutput), workspace(kEnough);
       giveHeads(s, qkv.address, wrong ? 256 : kHeads);
       AttentionScene().run(s, qkv.address, output.address, workspace.address);
     }},
    {"OutputOverHeads", "misuse",
     [](Scene &s, bool wrong) {
       Extra qkv(kHeads), output(kOutput), workspace(kEnough);
       giveHeads(s, qkv.address, kHeads);
       AttentionScene().run(s, qkv.address, wrong ? qkv.address + 16 : output.address, workspace.address);
     }},
    {"WorkspaceOfAttentionTooSmall", "out-of-bounds",
     [](Scene &s, bool wrong) {
       Extra qkv(kHeads), output(kOutput), workspace(wrong ? 128 : kEnough);
       giveHeads(s, qkv.address, kHeads);
       AttentionScene().run(s, qkv.address, output.address, workspace.address);
     }},
    {"WorkspaceOverTheOutput", "misuse",
     [](Scene &s, bool wrong) {
       Extra qkv(kHeads), output(kEnough), workspace(kEnough);
       giveHeads(s, qkv.address, kHeads);
       AttentionScene().run(s, qkv.address, output.address, wrong ? output.address + 64 : workspace.address);
     }},
};

const Planted kBiasPlanted[] = {
    {"BiasInF32", "misuse",
     [](Scene &s, bool wrong) {
       attendBiased(s, false, [&](AttentionScene &a) { a.biasType = wrong ? CUDNN_DATA_FLOAT : CUDNN_DATA_HALF; });
     }},
    {"BiasInTheOther16Bits", "misuse",
     [](Scene &s, bool wrong) {
       attendBiased(s, false, [&](AttentionScene &a) { a.biasType = wrong ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF; });
     }},
    {"BiasOfOneRow", "misuse",
     [](Scene &s, bool wrong) {
       attendBiased(s, false, [&](AttentionScene &a) { a.biasDims = {1, 1, wrong ? 1 : 4, 4}; });
     }},
    {"BiasOfAnotherNumberOfHeads", "misuse",
     [](Scene &s, bool wrong) {
       attendBiased(s, false, [&](AttentionScene &a) { a.biasDims = {1, wrong ? 3 : 1, 4, 4}; });
     }},
    {"BiasWithoutAValue", "uninitialised-read",
     [](Scene &s, bool wrong) {
       CUdeviceptr bias = 0;
       cuMemAlloc_v2(&bias, kBias);
       giveHeads(s, bias, wrong ? 32 : 64);
       attend(s, [&](AttentionScene &a) { a.bias = bias; });
       cuMemFree_v2(bias);
     }},
    {"BiasBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) { attendBiased(s, false, [&](AttentionScene &a) { a.bias += wrong ? 96 : 64; }); }},
    {"GradientOfABiasOfOtherSizes", "misuse",
     [](Scene &s, bool wrong) {
       attendBiased(s, true, [&](AttentionScene &a) { a.biasGradDims = {1, wrong ? 1 : 2, 4, 4}; });
     }},
    {"GradientOfABiasWithGaps", "misuse",
     [](Scene &s, bool wrong) { attendBiased(s, true, [&](AttentionScene &a) { a.biasGradRow = wrong ? 5 : 4; }); }},
    {"GradientOverTheBias", "misuse",
     [](Scene &s, bool wrong) {
       attendBiased(s, true, [&](AttentionScene &a) { a.biasGrad = wrong ? a.bias + 16 : a.biasGrad; });
     }},
};

class DnnGraphFaults : public testing::TestWithParam<Planted> {};

TEST_P(DnnGraphFaults, AreFoundByName) { expectFound(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Emulation, DnnGraphFaults, testing::ValuesIn(kGraphPlanted),
                         [](auto &info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Biases, DnnGraphFaults, testing::ValuesIn(kBiasPlanted),
                         [](auto &info) { return info.param.name; });

} // namespace
