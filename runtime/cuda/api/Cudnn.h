//===- Cudnn.h - the part of cuDNN that we call --------------------------===//
//
// Types, constants and entry points of libcudnn.so.9, declared from the documentation (cuDNN 9, "Backend API"), so that
// the runtime is built on machines without CUDA. Names are those of the documentation, in a namespace of their own;
// CudnnDeclarations.cpp compares them with the real header where the machine has it.
//
// Everything is a descriptor: it is created, given attributes, finalized, and read or executed from then on. A
// convolution is an operation on tensors; operations make a graph; heuristics list engine configurations for a graph;
// an execution plan makes one of them ready; a variant pack has the addresses that a plan runs on.
//
// TCC_CUDNN_ENTRY_POINTS is the list: X(member, symbol, parameters). Every entry point of it returns a cudnnStatus_t.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_API_CUDNN_H
#define TCC_RUNTIME_CUDA_API_CUDNN_H

#include "runtime/cuda/api/Driver.h"

#include <cstddef>
#include <cstdint>

namespace tcc::cuda::api {

using cudnnHandle_t = struct cudnnContext *;
using cudnnBackendDescriptor_t = void *;

enum cudnnStatus_t : int {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_BAD_PARAM_NULL_POINTER = 2002,
  CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER = 2003,
  CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED = 2004,
  CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT = 2006,
  CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE = 2010,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_NOT_SUPPORTED_SHAPE = 3002,
  CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE = 3003,
  CUDNN_STATUS_EXECUTION_FAILED = 5000,
};

enum cudnnDataType_t : int {
  CUDNN_DATA_FLOAT = 0,
  CUDNN_DATA_HALF = 2,
  CUDNN_DATA_INT32 = 4,
  CUDNN_DATA_BFLOAT16 = 9,
  CUDNN_DATA_BOOLEAN = 11,
};

/// The function of x, b and t that a pointwise operation computes for each element; dimensions of extent 1 are
/// repeated.
enum cudnnPointwiseMode_t : int {
  CUDNN_POINTWISE_ADD = 0,
  CUDNN_POINTWISE_MUL = 1,
  CUDNN_POINTWISE_DIV = 6,
  CUDNN_POINTWISE_SUB = 9,
  CUDNN_POINTWISE_EXP = 13,
  CUDNN_POINTWISE_LOG = 15,
  CUDNN_POINTWISE_CMP_GE = 303,
  CUDNN_POINTWISE_GEN_INDEX = 501,     ///< the element's coordinate along an axis
  CUDNN_POINTWISE_BINARY_SELECT = 601, ///< x where t is true, else b
};

enum cudnnReduceTensorOp_t : int { CUDNN_REDUCE_TENSOR_ADD = 0, CUDNN_REDUCE_TENSOR_MAX = 3 };

enum cudnnConvolutionMode_t : int { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 };

/// The heuristic that orders configurations for a graph: a decision tree, a network, or none (engines that always
/// work).
enum cudnnBackendHeurMode_t : int { CUDNN_HEUR_MODE_B = 1, CUDNN_HEUR_MODE_FALLBACK = 2, CUDNN_HEUR_MODE_A = 3 };

/// Notes on an engine's arithmetic.
enum cudnnBackendNumericalNote_t : int {
  CUDNN_NUMERICAL_NOTE_TENSOR_CORE = 0, ///< of f32: operands are rounded to TF32
  CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS = 1,
  CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION = 2,
  CUDNN_NUMERICAL_NOTE_FFT = 3,
  CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC = 4,
  CUDNN_NUMERICAL_NOTE_WINOGRAD = 5,
  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 = 6,
  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 = 7,
  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 = 8,
  CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP = 9,
};

/// Notes on what an engine needs besides cuDNN.
enum cudnnBackendBehaviorNote_t : int {
  CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION = 0,
  CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API = 3,
  CUDNN_BEHAVIOR_NOTE_CUBLASLT_DEPENDENCY = 4,
};

/// A setting of an engine; we only pass on the values from the heuristics.
enum cudnnBackendKnobType_t : int { CUDNN_KNOB_TYPE_TILE_SIZE = 2 };

enum cudnnBackendDescriptorType_t : int {
  CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0,
  CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR = 1,
  CUDNN_BACKEND_ENGINE_DESCRIPTOR = 2,
  CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3,
  CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4,
  CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5,
  CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR = 7,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 11,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 12,
  CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13,
  CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15,
  CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16,
  CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17,
  CUDNN_BACKEND_MATMUL_DESCRIPTOR = 18,
  CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR = 19,
  CUDNN_BACKEND_REDUCTION_DESCRIPTOR = 21,
  CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR = 22,
  CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR = 31,
  CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR = 38, ///< of a card that need not exist on this machine; 9.8 and later
};

/// The type of an attribute's elements.
enum cudnnBackendAttributeType_t : int {
  CUDNN_TYPE_HANDLE = 0,
  CUDNN_TYPE_DATA_TYPE = 1,
  CUDNN_TYPE_BOOLEAN = 2,
  CUDNN_TYPE_INT64 = 3,
  CUDNN_TYPE_FLOAT = 4,
  CUDNN_TYPE_VOID_PTR = 6,
  CUDNN_TYPE_CONVOLUTION_MODE = 7,
  CUDNN_TYPE_HEUR_MODE = 8,
  CUDNN_TYPE_KNOB_TYPE = 9,
  CUDNN_TYPE_NUMERICAL_NOTE = 11,
  CUDNN_TYPE_POINTWISE_MODE = 14,
  CUDNN_TYPE_BACKEND_DESCRIPTOR = 15,
  CUDNN_TYPE_REDUCTION_OPERATOR_TYPE = 18,
  CUDNN_TYPE_BEHAVIOR_NOTE = 19,
  CUDNN_TYPE_CHAR = 24,
};

/// Each with the type and number of its elements.
enum cudnnBackendAttributeName_t : int {
  CUDNN_ATTR_POINTWISE_MODE = 0,      ///< POINTWISE_MODE
  CUDNN_ATTR_POINTWISE_MATH_PREC = 1, ///< DATA_TYPE
  CUDNN_ATTR_POINTWISE_AXIS = 9,      ///< INT64, of GEN_INDEX

  CUDNN_ATTR_CONVOLUTION_COMP_TYPE = 100, ///< DATA_TYPE: what sums are made in
  CUDNN_ATTR_CONVOLUTION_CONV_MODE = 101, ///< CONVOLUTION_MODE
  CUDNN_ATTR_CONVOLUTION_DILATIONS = 102, ///< INT64, one for each spatial dimension; likewise strides and paddings
  CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES = 103,
  CUDNN_ATTR_CONVOLUTION_POST_PADDINGS = 104,
  CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS = 105,
  CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS = 106, ///< INT64

  CUDNN_ATTR_ENGINEHEUR_MODE = 200,            ///< HEUR_MODE
  CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201, ///< BACKEND_DESCRIPTOR
  CUDNN_ATTR_ENGINEHEUR_RESULTS = 202,    ///< BACKEND_DESCRIPTOR, read only: into configurations that the caller made
  CUDNN_ATTR_ENGINEHEUR_DEVICEPROP = 204, ///< BACKEND_DESCRIPTOR

  CUDNN_ATTR_ENGINECFG_ENGINE = 300,       ///< BACKEND_DESCRIPTOR
  CUDNN_ATTR_ENGINECFG_KNOB_CHOICES = 302, ///< BACKEND_DESCRIPTOR, any number

  CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400,         ///< HANDLE
  CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401,  ///< BACKEND_DESCRIPTOR
  CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402, ///< INT64, read only
  CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP = 407,     ///< BACKEND_DESCRIPTOR, instead of a handle

  CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE = 600,  ///< KNOB_TYPE
  CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE = 601, ///< INT64

  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA = 700, ///< FLOAT; likewise every alpha and beta
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA = 701,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702, ///< BACKEND_DESCRIPTOR; likewise every tensor
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W = 703,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X = 704,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y = 705,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA = 706,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA = 707,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC = 708,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W = 709,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX = 710,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY = 711,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA = 712,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA = 713,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC = 714,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW = 715,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X = 716,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY = 717,

  CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750, ///< BACKEND_DESCRIPTOR, like those that follow
  CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751,
  CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752,
  CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753,
  CUDNN_ATTR_OPERATION_POINTWISE_TDESC = 758,

  CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800, ///< HANDLE
  CUDNN_ATTR_OPERATIONGRAPH_OPS = 801,    ///< BACKEND_DESCRIPTOR, any number

  CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900, ///< INT64; what addresses of the tensor are multiples of
  CUDNN_ATTR_TENSOR_DATA_TYPE = 901,      ///< DATA_TYPE
  CUDNN_ATTR_TENSOR_DIMENSIONS = 902,     ///< INT64: N, C, spatial; of a filter outputs, inputs of a group, spatial
  CUDNN_ATTR_TENSOR_STRIDES = 903,        ///< INT64, elements
  CUDNN_ATTR_TENSOR_UNIQUE_ID = 906,      ///< INT64
  CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907,     ///< BOOLEAN: from one operation of a graph to others, in no memory
  CUDNN_ATTR_TENSOR_IS_BY_VALUE = 908,    ///< BOOLEAN: its pointer is the host's, read as the plan is executed

  CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000,    ///< INT64, any number
  CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001, ///< VOID_PTR, as many
  CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003,     ///< VOID_PTR

  CUDNN_ATTR_ENGINE_OPERATION_GRAPH = 1300, ///< BACKEND_DESCRIPTOR
  CUDNN_ATTR_ENGINE_GLOBAL_INDEX = 1301,    ///< INT64
  CUDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303,  ///< NUMERICAL_NOTE, read only, any number
  CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE = 1305,   ///< BEHAVIOR_NOTE, likewise

  CUDNN_ATTR_MATMUL_COMP_TYPE = 1500,       ///< DATA_TYPE
  CUDNN_ATTR_OPERATION_MATMUL_ADESC = 1520, ///< BACKEND_DESCRIPTOR, like those that follow
  CUDNN_ATTR_OPERATION_MATMUL_BDESC = 1521,
  CUDNN_ATTR_OPERATION_MATMUL_CDESC = 1522,
  CUDNN_ATTR_OPERATION_MATMUL_DESC = 1523,

  CUDNN_ATTR_REDUCTION_OPERATOR = 1600,        ///< REDUCTION_OPERATOR_TYPE
  CUDNN_ATTR_REDUCTION_COMP_TYPE = 1601,       ///< DATA_TYPE
  CUDNN_ATTR_OPERATION_REDUCTION_XDESC = 1610, ///< BACKEND_DESCRIPTOR, like those that follow
  CUDNN_ATTR_OPERATION_REDUCTION_YDESC = 1611,
  CUDNN_ATTR_OPERATION_REDUCTION_DESC = 1612,

  CUDNN_ATTR_OPERATION_RESHAPE_XDESC = 2200, ///< BACKEND_DESCRIPTOR: another view of the elements
  CUDNN_ATTR_OPERATION_RESHAPE_YDESC = 2201,

  CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION = 2702, ///< CHAR
};

// clang-format off
#define TCC_CUDNN_ENTRY_POINTS(X)                                                                                      \
  /* A handle belongs to the context that is current */                                                                \
  X(create, cudnnCreate, (cudnnHandle_t *handle))                                                                      \
  X(destroy, cudnnDestroy, (cudnnHandle_t handle))                                                                     \
  X(setStream, cudnnSetStream, (cudnnHandle_t handle, CUstream stream))                                                \
  X(descriptorCreate, cudnnBackendCreateDescriptor,                                                                    \
    (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor))                                         \
  X(descriptorDestroy, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor))                           \
  /* Attributes can be set before this call and read after it */                                                       \
  X(finalize, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor))                                             \
  X(setAttribute, cudnnBackendSetAttribute,                                                                            \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,          \
     int64_t count, const void *elements))                                                                             \
  /* Writes at most `asked` elements and says how many it wrote, or has where nothing was asked. Descriptors are */    \
  /* written into ones of their type that the caller created */                                                        \
  X(getAttribute, cudnnBackendGetAttribute,                                                                            \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,          \
     int64_t asked, int64_t *count, void *elements))                                                                   \
  /* On the handle's stream */                                                                                         \
  X(execute, cudnnBackendExecute,                                                                                      \
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variantPack))
// clang-format on

/// The entry points as pointers, which DnnLibrary looks up in the library.
struct Cudnn {
#define TCC_CUDNN_MEMBER(member, symbol, parameters) cudnnStatus_t(*member) parameters = nullptr;
  TCC_CUDNN_ENTRY_POINTS(TCC_CUDNN_MEMBER)
#undef TCC_CUDNN_MEMBER
  size_t (*getVersion)() = nullptr;                                    ///< cudnnGetVersion: 92600 for 9.26.0
  const char *(*getErrorString)(cudnnStatus_t) = nullptr;              ///< cudnnGetErrorString
  void (*getLastErrorString)(char *message, size_t maximum) = nullptr; ///< cudnnGetLastErrorString
  size_t (*getCudartVersion)() = nullptr;                              ///< cudnnGetCudartVersion: 13000
};

} // namespace tcc::cuda::api

#endif // TCC_RUNTIME_CUDA_API_CUDNN_H
