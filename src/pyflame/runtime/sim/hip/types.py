"""Names and numbers of HIP: the enumerations and constants of `rocm.bindings.hip`, so that it need not be installed.

A test compares each with the official bindings.
"""

from __future__ import annotations

import enum

HIP_VERSION = 71526333
HIP_VERSION_MAJOR = 7
HIP_VERSION_MINOR = 15
HIP_VERSION_PATCH = 26333
HIP_LAUNCH_PARAM_BUFFER_POINTER = 1
HIP_LAUNCH_PARAM_BUFFER_SIZE = 2
HIP_LAUNCH_PARAM_END = 3
hipStreamDefault = 0
hipStreamNonBlocking = 1
hipEventDefault = 0
hipEventBlockingSync = 1
hipEventDisableTiming = 2
hipEventInterprocess = 4
hipEventReleaseToDevice = 1073741824
hipEventReleaseToSystem = -2147483648
hipHostMallocDefault = 0
hipHostMallocPortable = 1
hipHostMallocMapped = 2
hipHostMallocWriteCombined = 4
hipHostMallocNumaUser = 536870912
hipHostMallocCoherent = 1073741824
hipHostMallocNonCoherent = -2147483648
hipMemAttachGlobal = 1
hipMemAttachHost = 2
hipMemAttachSingle = 4
hipDeviceMallocDefault = 0
hipDeviceMallocFinegrained = 1
hipMallocSignalMemory = 2
hipHostRegisterDefault = 0
hipHostRegisterPortable = 1
hipHostRegisterMapped = 2
hipHostRegisterIoMemory = 4
hipExtHostRegisterCoarseGrained = 8
hipDeviceScheduleAuto = 0
hipDeviceScheduleSpin = 1
hipDeviceScheduleYield = 2
hipDeviceScheduleBlockingSync = 4
hipDeviceMapHost = 8
hipDeviceLmemResizeToMax = 16
hipCpuDeviceId = -1
hipInvalidDeviceId = -2


class hipError_t(enum.IntEnum):
    """Status codes."""

    hipSuccess = 0
    hipErrorInvalidValue = 1
    hipErrorOutOfMemory = 2
    hipErrorMemoryAllocation = 2
    hipErrorNotInitialized = 3
    hipErrorInitializationError = 3
    hipErrorDeinitialized = 4
    hipErrorProfilerDisabled = 5
    hipErrorProfilerNotInitialized = 6
    hipErrorProfilerAlreadyStarted = 7
    hipErrorProfilerAlreadyStopped = 8
    hipErrorInvalidConfiguration = 9
    hipErrorInvalidPitchValue = 12
    hipErrorInvalidSymbol = 13
    hipErrorInvalidDevicePointer = 17
    hipErrorInvalidMemcpyDirection = 21
    hipErrorInsufficientDriver = 35
    hipErrorMissingConfiguration = 52
    hipErrorPriorLaunchFailure = 53
    hipErrorInvalidDeviceFunction = 98
    hipErrorNoDevice = 100
    hipErrorInvalidDevice = 101
    hipErrorInvalidImage = 200
    hipErrorInvalidContext = 201
    hipErrorContextAlreadyCurrent = 202
    hipErrorMapFailed = 205
    hipErrorMapBufferObjectFailed = 205
    hipErrorUnmapFailed = 206
    hipErrorArrayIsMapped = 207
    hipErrorAlreadyMapped = 208
    hipErrorNoBinaryForGpu = 209
    hipErrorAlreadyAcquired = 210
    hipErrorNotMapped = 211
    hipErrorNotMappedAsArray = 212
    hipErrorNotMappedAsPointer = 213
    hipErrorECCNotCorrectable = 214
    hipErrorUnsupportedLimit = 215
    hipErrorContextAlreadyInUse = 216
    hipErrorPeerAccessUnsupported = 217
    hipErrorInvalidKernelFile = 218
    hipErrorInvalidGraphicsContext = 219
    hipErrorInvalidSource = 300
    hipErrorFileNotFound = 301
    hipErrorSharedObjectSymbolNotFound = 302
    hipErrorSharedObjectInitFailed = 303
    hipErrorOperatingSystem = 304
    hipErrorInvalidHandle = 400
    hipErrorInvalidResourceHandle = 400
    hipErrorIllegalState = 401
    hipErrorNotFound = 500
    hipErrorNotReady = 600
    hipErrorIllegalAddress = 700
    hipErrorLaunchOutOfResources = 701
    hipErrorLaunchTimeOut = 702
    hipErrorPeerAccessAlreadyEnabled = 704
    hipErrorPeerAccessNotEnabled = 705
    hipErrorSetOnActiveProcess = 708
    hipErrorContextIsDestroyed = 709
    hipErrorAssert = 710
    hipErrorHostMemoryAlreadyRegistered = 712
    hipErrorHostMemoryNotRegistered = 713
    hipErrorLaunchFailure = 719
    hipErrorCooperativeLaunchTooLarge = 720
    hipErrorNotSupported = 801
    hipErrorStreamCaptureUnsupported = 900
    hipErrorStreamCaptureInvalidated = 901
    hipErrorStreamCaptureMerge = 902
    hipErrorStreamCaptureUnmatched = 903
    hipErrorStreamCaptureUnjoined = 904
    hipErrorStreamCaptureIsolation = 905
    hipErrorStreamCaptureImplicit = 906
    hipErrorCapturedEvent = 907
    hipErrorStreamCaptureWrongThread = 908
    hipErrorGraphExecUpdateFailure = 910
    hipErrorInvalidChannelDescriptor = 911
    hipErrorInvalidTexture = 912
    hipErrorInvalidResourceType = 914
    hipErrorInvalidResourceConfiguration = 915
    hipErrorStreamDetached = 916
    hipErrorUnknown = 999
    hipErrorRuntimeMemory = 1052
    hipErrorRuntimeOther = 1053
    hipErrorInvalidClusterSize = 1054
    hipErrorTbd = 1055


class hipMemcpyKind(enum.IntEnum):
    """Directions of copies."""

    hipMemcpyHostToHost = 0
    hipMemcpyHostToDevice = 1
    hipMemcpyDeviceToHost = 2
    hipMemcpyDeviceToDevice = 3
    hipMemcpyDefault = 4
    hipMemcpyDeviceToDeviceNoCU = 1024


class hipMemoryType(enum.IntEnum):
    """What a pointer points to."""

    hipMemoryTypeUnregistered = 0
    hipMemoryTypeHost = 1
    hipMemoryTypeDevice = 2
    hipMemoryTypeManaged = 3
    hipMemoryTypeArray = 10
    hipMemoryTypeUnified = 11


class hipStreamCaptureMode(enum.IntEnum):
    """How far a capture forbids calls that could disturb it."""

    hipStreamCaptureModeGlobal = 0
    hipStreamCaptureModeThreadLocal = 1
    hipStreamCaptureModeRelaxed = 2


class hipStreamCaptureStatus(enum.IntEnum):
    """Whether a stream is captured."""

    hipStreamCaptureStatusNone = 0
    hipStreamCaptureStatusActive = 1
    hipStreamCaptureStatusInvalidated = 2


class hipFunction_attribute(enum.IntEnum):
    """What can be asked of a kernel."""

    HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
    HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2
    HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
    HIP_FUNC_ATTRIBUTE_NUM_REGS = 4
    HIP_FUNC_ATTRIBUTE_PTX_VERSION = 5
    HIP_FUNC_ATTRIBUTE_BINARY_VERSION = 6
    HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7
    HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9
    HIP_FUNC_ATTRIBUTE_CLUSTER_DIM_MUST_BE_SET = 10
    HIP_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH = 11
    HIP_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT = 12
    HIP_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH = 13
    HIP_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
    HIP_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15
    HIP_FUNC_ATTRIBUTE_MAX = 16


class hipFuncAttribute(enum.IntEnum):
    """What can be set for a kernel."""

    hipFuncAttributeMaxDynamicSharedMemorySize = 8
    hipFuncAttributePreferredSharedMemoryCarveout = 9
    hipFuncAttributeClusterDimMustBeSet = 10
    hipFuncAttributeRequiredClusterWidth = 11
    hipFuncAttributeRequiredClusterHeight = 12
    hipFuncAttributeRequiredClusterDepth = 13
    hipFuncAttributeNonPortableClusterSizeAllowed = 14
    hipFuncAttributeClusterSchedulingPolicyPreference = 15
    hipFuncAttributeMax = 16


class hipGraphNodeType(enum.IntEnum):
    """Kinds of work in a graph."""

    hipGraphNodeTypeKernel = 0
    hipGraphNodeTypeMemcpy = 1
    hipGraphNodeTypeMemset = 2
    hipGraphNodeTypeHost = 3
    hipGraphNodeTypeGraph = 4
    hipGraphNodeTypeEmpty = 5
    hipGraphNodeTypeWaitEvent = 6
    hipGraphNodeTypeEventRecord = 7
    hipGraphNodeTypeExtSemaphoreSignal = 8
    hipGraphNodeTypeExtSemaphoreWait = 9
    hipGraphNodeTypeMemAlloc = 10
    hipGraphNodeTypeMemFree = 11
    hipGraphNodeTypeMemcpyFromSymbol = 12
    hipGraphNodeTypeMemcpyToSymbol = 13
    hipGraphNodeTypeBatchMemOp = 14
    hipGraphNodeTypeCount = 15


class hipGraphExecUpdateResult(enum.IntEnum):
    """Why a graph could not be put in place of another."""

    hipGraphExecUpdateSuccess = 0
    hipGraphExecUpdateError = 1
    hipGraphExecUpdateErrorTopologyChanged = 2
    hipGraphExecUpdateErrorNodeTypeChanged = 3
    hipGraphExecUpdateErrorFunctionChanged = 4
    hipGraphExecUpdateErrorParametersChanged = 5
    hipGraphExecUpdateErrorNotSupported = 6
    hipGraphExecUpdateErrorUnsupportedFunctionChange = 7


class hipDeviceP2PAttr(enum.IntEnum):
    """What can be asked of two devices."""

    hipDevP2PAttrPerformanceRank = 0
    hipDevP2PAttrAccessSupported = 1
    hipDevP2PAttrNativeAtomicSupported = 2
    hipDevP2PAttrHipArrayAccessSupported = 3


class hipDeviceAttribute_t(enum.IntEnum):
    """What can be asked of a device, as far as the simulator answers."""

    hipDeviceAttributeEccEnabled = 0
    hipDeviceAttributeCanMapHostMemory = 3
    hipDeviceAttributeClockRate = 5
    hipDeviceAttributeComputeMode = 6
    hipDeviceAttributeConcurrentKernels = 8
    hipDeviceAttributeConcurrentManagedAccess = 9
    hipDeviceAttributeCooperativeLaunch = 10
    hipDeviceAttributeIntegrated = 16
    hipDeviceAttributeL2CacheSize = 19
    hipDeviceAttributeComputeCapabilityMajor = 23
    hipDeviceAttributeManagedMemory = 24
    hipDeviceAttributeMaxBlockDimX = 26
    hipDeviceAttributeMaxBlockDimY = 27
    hipDeviceAttributeMaxBlockDimZ = 28
    hipDeviceAttributeMaxGridDimX = 29
    hipDeviceAttributeMaxGridDimY = 30
    hipDeviceAttributeMaxGridDimZ = 31
    hipDeviceAttributeMaxThreadsPerBlock = 56
    hipDeviceAttributeMaxThreadsPerMultiProcessor = 57
    hipDeviceAttributeMemoryBusWidth = 59
    hipDeviceAttributeMemoryClockRate = 60
    hipDeviceAttributeComputeCapabilityMinor = 61
    hipDeviceAttributeMultiprocessorCount = 63
    hipDeviceAttributePageableMemoryAccess = 65
    hipDeviceAttributePciBusId = 67
    hipDeviceAttributePciDeviceId = 68
    hipDeviceAttributePciDomainId = 69
    hipDeviceAttributePciDomainID = 69
    hipDeviceAttributeMaxRegistersPerBlock = 71
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74
    hipDeviceAttributeSharedMemPerBlockOptin = 75
    hipDeviceAttributeSharedMemPerMultiprocessor = 76
    hipDeviceAttributeStreamPrioritiesSupported = 78
    hipDeviceAttributeTotalConstantMemory = 83
    hipDeviceAttributeUnifiedAddressing = 85
    hipDeviceAttributeWarpSize = 87
    hipDeviceAttributeMemoryPoolsSupported = 88
    hipDeviceAttributeHostRegisterSupported = 90
    hipDeviceAttributeMaxSharedMemoryPerMultiprocessor = 10002
    hipDeviceAttributePhysicalMultiProcessorCount = 10015
    hipDeviceAttributeWallClockRate = 10017
