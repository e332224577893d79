//===- DnnObjects.cpp - what handles of cuDNN stand for ------------------===//
#include "test/emulation/driver/DnnObjects.h"

#include <algorithm>
#include <array>

using namespace tcc::cuda::api;

namespace tcc::emulation {

namespace {
constexpr int64_t kMostDims = 8, kMostKnobs = 46, kMany = 1024;

/// cuDNN 9, "Backend Descriptor Types". The handle of a graph and of a plan is required, as it was before 9.28.
constexpr DnnRule kRules[] = {
#define TCC_RULE(of, name, type, least, most, use)                                                                     \
  {CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, least, most, DnnRule::use},
    TCC_RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1, Required) TCC_RULE(
        TENSOR, TENSOR_DIMENSIONS, INT64, 1, kMostDims,
        Required) TCC_RULE(TENSOR, TENSOR_STRIDES, INT64, 1, kMostDims,
                           Required) TCC_RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1,
                                              Required) TCC_RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1,
                                                                 Required) TCC_RULE(CONVOLUTION, CONVOLUTION_COMP_TYPE,
                                                                                    DATA_TYPE, 1, 1, Required)
        TCC_RULE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, 1, Required) TCC_RULE(
            CONVOLUTION,
            CONVOLUTION_DILATIONS,
            INT64, 1, kMostDims,
            Required) TCC_RULE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 1, kMostDims, Required)
            TCC_RULE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 1, kMostDims, Required) TCC_RULE(
                CONVOLUTION,
                CONVOLUTION_POST_PADDINGS,
                INT64, 1, kMostDims,
                Required) TCC_RULE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1, Required)
#define TCC_OPERATION(of, prefix, x, w, y)                                                                             \
  TCC_RULE(of, prefix##_ALPHA, FLOAT, 1, 1, Required)                                                                  \
  TCC_RULE(of, prefix##_BETA, FLOAT, 1, 1, Required)                                                                   \
  TCC_RULE(of, prefix##_CONV_DESC, BACKEND_DESCRIPTOR, 1, 1, Required)                                                 \
  TCC_RULE(of, prefix##_##x, BACKEND_DESCRIPTOR, 1, 1, Required)                                                       \
  TCC_RULE(of, prefix##_##w, BACKEND_DESCRIPTOR, 1, 1, Required)                                                       \
  TCC_RULE(of, prefix##_##y, BACKEND_DESCRIPTOR, 1, 1, Required)
                TCC_OPERATION(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD, X, W, Y) TCC_OPERATION(
                    OPERATION_CONVOLUTION_BACKWARD_DATA,
                    OPERATION_CONVOLUTION_BWD_DATA,
                    DX,
                    W,
                    DY) TCC_OPERATION(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY)
#undef TCC_OPERATION
                    TCC_RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1, Required) TCC_RULE(
                        OPERATIONGRAPH,
                        OPERATIONGRAPH_OPS,
                        BACKEND_DESCRIPTOR,
                        1, kMany,
                        Required) TCC_RULE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, 1, Required)
                        TCC_RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1, Required) TCC_RULE(
                            ENGINEHEUR,
                            ENGINEHEUR_RESULTS,
                            BACKEND_DESCRIPTOR,
                            0, kMany,
                            ReadOnly) TCC_RULE(ENGINE, ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, 1, Required)
                            TCC_RULE(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1, 1, Required) TCC_RULE(
                                ENGINE,
                                ENGINE_NUMERICAL_NOTE,
                                NUMERICAL_NOTE,
                                0, kMany,
                                ReadOnly) TCC_RULE(ENGINE, ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE, 0, kMany, ReadOnly)
                                TCC_RULE(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, 1, Required) TCC_RULE(
                                    ENGINECFG, ENGINECFG_KNOB_CHOICES,
                                    BACKEND_DESCRIPTOR,
                                    0, kMostKnobs,
                                    Optional) TCC_RULE(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1, 1, Required)
                                    TCC_RULE(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64, 1, 1, Required) TCC_RULE(
                                        EXECUTION_PLAN,
                                        EXECUTION_PLAN_HANDLE, HANDLE,
                                        1, 1, Required)
                                        TCC_RULE(
                                            EXECUTION_PLAN,
                                            EXECUTION_PLAN_ENGINE_CONFIG,
                                            BACKEND_DESCRIPTOR,
                                            1, 1,
                                            Required) TCC_RULE(EXECUTION_PLAN,
                                                               EXECUTION_PLAN_WORKSPACE_SIZE, INT64, 1, 1, ReadOnly)
                                            TCC_RULE(
                                                VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS,
                                                INT64, 1, kMany,
                                                Required) TCC_RULE(VARIANT_PACK,
                                                                   VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, kMany, Required)
                                                TCC_RULE(
                                                    VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1,
                                                    Required) TCC_RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, 1, Optional)
                                                    TCC_RULE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, 1, Optional) TCC_RULE(
                                                        POINTWISE, POINTWISE_MODE,
                                                        POINTWISE_MODE,
                                                        1,
                                                        1, Required) TCC_RULE(POINTWISE,
                                                                              POINTWISE_MATH_PREC, DATA_TYPE, 1, 1, Required)
                                                        TCC_RULE(
                                                            POINTWISE, POINTWISE_AXIS,
                                                            INT64, 1,
                                                            1, Optional) TCC_RULE(OPERATION_POINTWISE,
                                                                                  OPERATION_POINTWISE_PW_DESCRIPTOR,
                                                                                  BACKEND_DESCRIPTOR, 1, 1, Required)
                                                            TCC_RULE(
                                                                OPERATION_POINTWISE,
                                                                OPERATION_POINTWISE_XDESC,
                                                                BACKEND_DESCRIPTOR,
                                                                1, 1,
                                                                Required) TCC_RULE(OPERATION_POINTWISE,
                                                                                   OPERATION_POINTWISE_BDESC,
                                                                                   BACKEND_DESCRIPTOR, 1, 1, Optional)
                                                                TCC_RULE(
                                                                    OPERATION_POINTWISE,
                                                                    OPERATION_POINTWISE_TDESC,
                                                                    BACKEND_DESCRIPTOR,
                                                                    1, 1,
                                                                    Optional) TCC_RULE(OPERATION_POINTWISE,
                                                                                       OPERATION_POINTWISE_YDESC,
                                                                                       BACKEND_DESCRIPTOR, 1, 1, Required)
                                                                    TCC_RULE(
                                                                        MATMUL,
                                                                        MATMUL_COMP_TYPE, DATA_TYPE,
                                                                        1, 1,
                                                                        Required) TCC_RULE(OPERATION_MATMUL,
                                                                                           OPERATION_MATMUL_ADESC,
                                                                                           BACKEND_DESCRIPTOR, 1, 1, Required)
                                                                        TCC_RULE(
                                                                            OPERATION_MATMUL, OPERATION_MATMUL_BDESC,
                                                                            BACKEND_DESCRIPTOR,
                                                                            1, 1,
                                                                            Required) TCC_RULE(OPERATION_MATMUL,
                                                                                               OPERATION_MATMUL_CDESC,
                                                                                               BACKEND_DESCRIPTOR, 1, 1, Required)
                                                                            TCC_RULE(
                                                                                OPERATION_MATMUL, OPERATION_MATMUL_DESC,
                                                                                BACKEND_DESCRIPTOR,
                                                                                1,
                                                                                1, Required) TCC_RULE(REDUCTION,
                                                                                                      REDUCTION_COMP_TYPE,
                                                                                                      DATA_TYPE, 1, 1, Required)
                                                                                TCC_RULE(REDUCTION, REDUCTION_OPERATOR,
                                                                                         REDUCTION_OPERATOR_TYPE, 1, 1,
                                                                                         Required)
                                                                                    TCC_RULE(OPERATION_REDUCTION,
                                                                                             OPERATION_REDUCTION_XDESC,
                                                                                             BACKEND_DESCRIPTOR, 1, 1,
                                                                                             Required)
                                                                                        TCC_RULE(
                                                                                            OPERATION_REDUCTION,
                                                                                            OPERATION_REDUCTION_YDESC,
                                                                                            BACKEND_DESCRIPTOR, 1, 1,
                                                                                            Required)
                                                                                            TCC_RULE(
                                                                                                OPERATION_REDUCTION,
                                                                                                OPERATION_REDUCTION_DESC,
                                                                                                BACKEND_DESCRIPTOR, 1,
                                                                                                1, Required)
                                                                                                TCC_RULE(
                                                                                                    OPERATION_RESHAPE,
                                                                                                    OPERATION_RESHAPE_XDESC,
                                                                                                    BACKEND_DESCRIPTOR,
                                                                                                    1, 1, Required)
                                                                                                    TCC_RULE(
                                                                                                        OPERATION_RESHAPE,
                                                                                                        OPERATION_RESHAPE_YDESC,
                                                                                                        BACKEND_DESCRIPTOR,
                                                                                                        1, 1, Required)
#undef TCC_RULE
};
} // namespace

const DnnRule *findRule(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name) {
  for (const DnnRule &rule : kRules)
    if (rule.of == of && rule.name == name)
      return &rule;
  return nullptr;
}

const DnnRule *missingRule(const DnnObject &descriptor) {
  for (const DnnRule &rule : kRules)
    if (rule.of == descriptor.type && rule.use == DnnRule::Required && !descriptor.values.contains(rule.name))
      return &rule;
  return nullptr;
}

bool knowsDnnType(cudnnBackendDescriptorType_t type) {
  return std::any_of(std::begin(kRules), std::end(kRules), [&](const DnnRule &rule) { return rule.of == type; });
}

size_t bytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return 8;
  case CUDNN_TYPE_BOOLEAN:
    return sizeof(bool);
  default:
    return 4;
  }
}

} // namespace tcc::emulation
