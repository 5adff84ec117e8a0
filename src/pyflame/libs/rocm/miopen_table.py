"""MIOpen's constants, signatures and structs, by the names of miopen.h."""

from __future__ import annotations

import ctypes

from pyflame.libs.conv import BACKWARD_DATA, BACKWARD_FILTER, FORWARD

FILES = ("libMIOpen.so.1", "libMIOpen.so")


class C:
    """Constants."""

    miopenStatusSuccess = 0
    miopenStatusNotInitialized = 1
    miopenStatusInvalidValue = 2
    miopenStatusBadParm = 3
    miopenStatusAllocFailed = 4
    miopenStatusInternalError = 5
    miopenStatusNotImplemented = 6
    miopenStatusUnknownError = 7
    miopenStatusUnsupportedOp = 8
    miopenStatusGpuOperationsSkipped = 9
    miopenStatusVersionMismatch = 10

    miopenHalf = 0
    miopenFloat = 1
    miopenBFloat16 = 5

    miopenConvolution = 0
    MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC = 1

    miopenPoolingMax = 0
    miopenPoolingAverage = 1
    miopenPoolingAverageInclusive = 2

    miopenBNSpatial = 1

    miopenActivationPASTHRU = 0
    miopenActivationLOGISTIC = 1
    miopenActivationTANH = 2
    miopenActivationRELU = 3
    miopenActivationSOFTRELU = 4
    miopenActivationABS = 5
    miopenActivationLEAKYRELU = 8
    miopenActivationELU = 9

    MIOPEN_SOFTMAX_ACCURATE = 1
    MIOPEN_SOFTMAX_LOG = 2
    MIOPEN_SOFTMAX_MODE_CHANNEL = 1

    MIOPEN_REDUCE_TENSOR_ADD = 0
    MIOPEN_REDUCE_TENSOR_MUL = 1
    MIOPEN_REDUCE_TENSOR_MIN = 2
    MIOPEN_REDUCE_TENSOR_MAX = 3
    MIOPEN_REDUCE_TENSOR_AMAX = 4
    MIOPEN_REDUCE_TENSOR_AVG = 5
    MIOPEN_REDUCE_TENSOR_NORM1 = 6
    MIOPEN_REDUCE_TENSOR_NORM2 = 7
    MIOPEN_PROPAGATE_NAN = 1
    MIOPEN_REDUCE_TENSOR_NO_INDICES = 0
    MIOPEN_32BIT_INDICES = 0


NAMES = {FORWARD: "Forward", BACKWARD_DATA: "BackwardData", BACKWARD_FILTER: "BackwardWeights"}
# The order of operands differs between the function that searches and those that run a solution. What is written
# comes last in both.
_GRADIENTS = {BACKWARD_DATA: ("y", "w", "x"), BACKWARD_FILTER: ("y", "x", "w")}
FIND_ORDER = {FORWARD: ("x", "w", "y"), **_GRADIENTS}
SOLUTION_ORDER = {FORWARD: ("w", "x", "y"), **_GRADIENTS}
_PARAMETER = {  # what the header calls an operand in each direction
    FORWARD: {"x": "x", "w": "w", "y": "y"},
    BACKWARD_DATA: {"x": "dx", "w": "w", "y": "dy"},
    BACKWARD_FILTER: {"x": "x", "w": "dw", "y": "dy"},
}


def _convolution(direction: str) -> dict[str, str]:
    """The functions of one direction."""
    name, called = NAMES[direction], _PARAMETER[direction]
    first, second, last = (called[o] for o in SOLUTION_ORDER[direction])
    described = f"ptr handle, ptr {first}Desc, ptr {second}Desc, ptr convDesc, ptr {last}Desc"
    a, b, c = (called[o] for o in FIND_ORDER[direction])
    return {
        f"miopenConvolution{name}GetWorkSpaceSize": f"{described}, ptr workSpaceSize",
        f"miopenFindConvolution{name}Algorithm": (
            f"ptr handle, ptr {a}Desc, ptr {a}, ptr {b}Desc, ptr {b}, ptr convDesc, ptr {c}Desc, ptr {c}, "
            "i32 requestAlgoCount, ptr returnedAlgoCount, ptr perfResults, ptr workSpace, size workSpaceSize, "
            "bool exhaustiveSearch"
        ),
        f"miopenConvolution{name}GetSolution": f"{described}, size maxSolutionCount, ptr solutionCount, ptr solutions",
        f"miopenConvolution{name}CompileSolution": f"{described}, u64 solution_id",
        f"miopenConvolution{name}Immediate": (
            f"ptr handle, ptr {first}Desc, ptr {first}, ptr {second}Desc, ptr {second}, ptr convDesc, ptr {last}Desc, "
            f"ptr {last}, ptr workSpace, size workSpaceSize, u64 solution_id"
        ),
    }


_THROUGH = "ptr alpha, ptr xDesc, ptr x, ptr beta, ptr yDesc, ptr y"
_NORM = (
    "ptr handle, i32 bn_mode, ptr alpha, ptr beta, ptr xDesc, ptr x, ptr yDesc, ptr y, ptr bnScaleBiasMeanVarDesc, "
    "ptr bnScale, ptr bnBias"
)
FUNCTIONS = {
    "miopenGetVersion": "ptr major, ptr minor, ptr patch",
    "miopenCreate": "ptr handle",
    "miopenDestroy": "ptr handle",
    "miopenSetStream": "ptr handle, ptr streamID",
    "miopenCreateTensorDescriptor": "ptr tensorDesc",
    "miopenSetTensorDescriptor": "ptr tensorDesc, i32 dataType, i32 nbDims, ptr dimsA, ptr stridesA",
    "miopenDestroyTensorDescriptor": "ptr tensorDesc",
    "miopenCreateConvolutionDescriptor": "ptr convDesc",
    "miopenInitConvolutionNdDescriptor": (
        "ptr convDesc, i32 spatialDim, ptr padA, ptr strideA, ptr dilationA, i32 c_mode"
    ),
    "miopenSetConvolutionGroupCount": "ptr convDesc, i32 groupCount",
    "miopenSetConvolutionAttribute": "ptr convDesc, i32 attr, i32 value",
    "miopenDestroyConvolutionDescriptor": "ptr convDesc",
    **{name: declared for direction in NAMES for name, declared in _convolution(direction).items()},
    "miopenCreatePoolingDescriptor": "ptr poolDesc",
    "miopenSetNdPoolingDescriptor": "ptr poolDesc, i32 mode, i32 nbDims, ptr windowDimA, ptr padA, ptr stridesA",
    "miopenPoolingForward": (
        f"ptr handle, ptr poolDesc, {_THROUGH}, bool do_backward, ptr workSpace, size workSpaceSize"
    ),
    "miopenDestroyPoolingDescriptor": "ptr poolDesc",
    "miopenBatchNormalizationForwardTraining": (
        f"{_NORM}, f64 expAvgFactor, ptr resultRunningMean, ptr resultRunningVariance, f64 epsilon, "
        "ptr resultSaveMean, ptr resultSaveInvVariance"
    ),
    "miopenBatchNormalizationForwardInference": f"{_NORM}, ptr estimatedMean, ptr estimatedVariance, f64 epsilon",
    "miopenCreateActivationDescriptor": "ptr activDesc",
    "miopenSetActivationDescriptor": "ptr activDesc, i32 mode, f64 activAlpha, f64 activBeta, f64 activGamma",
    "miopenActivationForward": f"ptr handle, ptr activDesc, {_THROUGH}",
    "miopenDestroyActivationDescriptor": "ptr activDesc",
    "miopenSoftmaxForward_V2": f"ptr handle, {_THROUGH}, i32 algorithm, i32 mode",
    "miopenCreateReduceTensorDescriptor": "ptr reduceTensorDesc",
    "miopenSetReduceTensorDescriptor": (
        "ptr reduceTensorDesc, i32 reduceTensorOp, i32 reduceTensorCompType, i32 reduceTensorNanOpt, "
        "i32 reduceTensorIndices, i32 reduceTensorIndicesType"
    ),
    "miopenGetReductionWorkspaceSize": "ptr handle, ptr reduceTensorDesc, ptr aDesc, ptr cDesc, ptr sizeInBytes",
    "miopenReduceTensor": (
        "ptr handle, ptr reduceTensorDesc, ptr indices, size indicesSizeInBytes, ptr workspace, "
        "size workspaceSizeInBytes, ptr alpha, ptr aDesc, ptr A, ptr beta, ptr cDesc, ptr C"
    ),
    "miopenDestroyReduceTensorDescriptor": "ptr reduceTensorDesc",
}


class ConvAlgoPerf(ctypes.Structure):
    """miopenConvAlgoPerf_t: a union of the three directions' algorithms comes first."""

    _fields_ = (("algo", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t))


class ConvSolution(ctypes.Structure):
    """miopenConvSolution_t."""

    _fields_ = (
        ("time", ctypes.c_float),
        ("workspace_size", ctypes.c_size_t),
        ("solution_id", ctypes.c_uint64),
        ("algorithm", ctypes.c_int),
    )


STRUCTS = {"miopenConvAlgoPerf_t": ConvAlgoPerf, "miopenConvSolution_t": ConvSolution}

TYPES = {"float16": C.miopenHalf, "float32": C.miopenFloat, "bfloat16": C.miopenBFloat16}
POOLINGS = {
    "max_pool": C.miopenPoolingMax,
    "avg_pool": C.miopenPoolingAverageInclusive,  # padding counts, as in PyFlame and PyTorch
    "avg_pool_exclusive": C.miopenPoolingAverage,
}
ACTIVATIONS = {  # name -> (mode, alpha, beta, gamma); None is the alpha of the call
    "identity": (C.miopenActivationPASTHRU, 0.0, 0.0, 0.0),
    "sigmoid": (C.miopenActivationLOGISTIC, 0.0, 0.0, 0.0),
    "tanh": (C.miopenActivationTANH, 1.0, 1.0, 0.0),  # beta * tanh(alpha x)
    "relu": (C.miopenActivationRELU, 0.0, 0.0, 0.0),
    "softplus": (C.miopenActivationSOFTRELU, 0.0, 0.0, 0.0),
    "abs": (C.miopenActivationABS, 0.0, 0.0, 0.0),
    "leaky_relu": (C.miopenActivationLEAKYRELU, None, 0.0, 0.0),
    "elu": (C.miopenActivationELU, None, 0.0, 0.0),
}
REDUCTIONS = {
    "sum": C.MIOPEN_REDUCE_TENSOR_ADD,
    "prod": C.MIOPEN_REDUCE_TENSOR_MUL,
    "min": C.MIOPEN_REDUCE_TENSOR_MIN,
    "max": C.MIOPEN_REDUCE_TENSOR_MAX,
    "amax": C.MIOPEN_REDUCE_TENSOR_AMAX,
    "mean": C.MIOPEN_REDUCE_TENSOR_AVG,
    "norm1": C.MIOPEN_REDUCE_TENSOR_NORM1,
    "norm2": C.MIOPEN_REDUCE_TENSOR_NORM2,
}
