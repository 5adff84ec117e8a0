"""HIP's status codes, and sources that its compilers refuse: what happened and what to do.

Codes and names are those of `hipError_t`.
"""

from __future__ import annotations

import re

from pyflame.core.device import Target
from pyflame.core.errors import (
    AMDDeviceError,
    AMDDeviceFaultError,
    HIPCompilationError,
    MatrixCoreError,
    ROCmMemoryError,
    ROCmNotAvailableError,
)
from pyflame.runtime.gpu.driver import Cause, table

_GROUPS = (
    "check that the amdgpu kernel module is loaded and that you may read /dev/kfd and /dev/dri/render* (groups render "
    "and video)"
)
_HIDDEN = (
    "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES may hide it; a container needs --device=/dev/kfd --device=/dev/dri"
)
_ARCH = (
    "compile for the gfx name that rocminfo shows, and unset HSA_OVERRIDE_GFX_VERSION unless the GPU needs it (an "
    "integrated GPU may be the one meant: choose with HIP_VISIBLE_DEVICES)"
)
_DEAD = "no further call can use this GPU in this process: go on with another device, or restart"
_FIND = (
    "run again with AMD_SERIALIZE_KERNEL=3 to see the kernel at fault, and check the indices and sizes it was given; "
    + _DEAD
)
_CAPTURE = "run it outside of the capture"

CAUSES = table(
    Cause(1, "hipErrorInvalidValue", AMDDeviceError, "an argument has no meaning",
          "check addresses, sizes, grid and block"),
    Cause(2, "hipErrorOutOfMemory", ROCmMemoryError, "the GPU has no memory left for it",
          "delete tensors, use a smaller batch or dtype, or stop other processes on this GPU"),
    Cause(3, "hipErrorNotInitialized", ROCmNotAvailableError, "the HIP runtime did not start", _GROUPS),
    Cause(4, "hipErrorDeinitialized", ROCmNotAvailableError, "the HIP runtime has shut down",
          "use no device while the interpreter ends"),
    Cause(9, "hipErrorInvalidConfiguration", AMDDeviceError,
          "the grid, the block or its LDS is larger than the GPU allows",
          "use at most 1024 threads and the LDS that device info shows"),
    Cause(13, "hipErrorInvalidSymbol", AMDDeviceError, "the code holds no variable of that name",
          "check its spelling, and that it is declared __device__"),
    Cause(17, "hipErrorInvalidDevicePointer", AMDDeviceError, "an address is not memory of this GPU",
          "check that the memory lives on it and was not freed"),
    Cause(21, "hipErrorInvalidMemcpyDirection", AMDDeviceError,
          "a copy goes another way than its addresses say", "check on which side, host or GPU, each address is"),
    Cause(35, "hipErrorInsufficientDriver", ROCmNotAvailableError, "the kernel driver is older than the HIP runtime",
          "update amdgpu, or install an older ROCm"),
    Cause(53, "hipErrorPriorLaunchFailure", AMDDeviceFaultError, "an earlier kernel failed", _FIND),
    Cause(52, "hipErrorMissingConfiguration", AMDDeviceError, "a launch has no grid and block", "give it both"),
    Cause(98, "hipErrorInvalidDeviceFunction", HIPCompilationError,
          "the code holds no such kernel for this GPU", _ARCH),
    Cause(100, "hipErrorNoDevice", ROCmNotAvailableError, "HIP finds no AMD GPU",
          f"{_GROUPS}; {_HIDDEN}"),
    Cause(101, "hipErrorInvalidDevice", AMDDeviceError, "there is no GPU of that number",
          "count them with rocminfo; HIP_VISIBLE_DEVICES renumbers them"),
    Cause(200, "hipErrorInvalidImage", HIPCompilationError, "the code object is damaged or for another GPU", _ARCH),
    Cause(201, "hipErrorInvalidContext", AMDDeviceError, "no GPU is current in this thread, or it was reset",
          "open the device again"),
    Cause(202, "hipErrorContextAlreadyCurrent", AMDDeviceError, "the GPU is current already", "leave the call out"),
    Cause(209, "hipErrorNoBinaryForGpu", HIPCompilationError, "the code object holds nothing for this GPU", _ARCH),
    Cause(214, "hipErrorECCNotCorrectable", AMDDeviceFaultError, "the GPU's memory has an error it cannot correct",
          "look at `amd-smi metric --ecc` and reset or replace the GPU"),
    Cause(215, "hipErrorUnsupportedLimit", AMDDeviceError, "this GPU has no such limit", "leave it as it is"),
    Cause(216, "hipErrorContextAlreadyInUse", AMDDeviceError, "another thread or process holds the GPU for itself",
          "wait for it, or use another GPU"),
    Cause(217, "hipErrorPeerAccessUnsupported", AMDDeviceError, "these two GPUs cannot reach each other's memory",
          "copy through the host"),
    Cause(218, "hipErrorInvalidKernelFile", HIPCompilationError, "the file is no code object that HIP can read",
          "build it anew: pf.clear_cache() forgets what is on disk"),
    Cause(300, "hipErrorInvalidSource", HIPCompilationError,
          "the kernel's source is not valid", "read the compiler's message"),
    Cause(301, "hipErrorFileNotFound", AMDDeviceError, "a file of ROCm is missing", "reinstall ROCm"),
    Cause(302, "hipErrorSharedObjectSymbolNotFound", ROCmNotAvailableError, "the HIP runtime lacks a function",
          "install a newer ROCm, and only one"),
    Cause(303, "hipErrorSharedObjectInitFailed", ROCmNotAvailableError, "a library of ROCm did not start",
          "check that all of ROCm is of one version"),
    Cause(304, "hipErrorOperatingSystem", AMDDeviceError, "the operating system refused", "look at dmesg"),
    Cause(400, "hipErrorInvalidHandle", AMDDeviceError, "a stream, event or module is not of this GPU, or is gone",
          "make it on the device that uses it"),
    Cause(401, "hipErrorIllegalState", AMDDeviceError, "the object is in a state that forbids the call",
          "end what was begun first"),
    Cause(500, "hipErrorNotFound", HIPCompilationError, "there is no kernel of that name in the code",
          "declare it extern \"C\" and check its spelling"),
    Cause(600, "hipErrorNotReady", AMDDeviceError, "work is still under way", "synchronise first"),
    Cause(700, "hipErrorIllegalAddress", AMDDeviceFaultError,
          "a kernel read or wrote memory that is not its own", _FIND),
    Cause(701, "hipErrorLaunchOutOfResources", AMDDeviceError,
          "the kernel needs more registers or LDS than a block has", "use fewer threads per block"),
    Cause(702, "hipErrorLaunchTimeOut", AMDDeviceFaultError, "a kernel ran for too long", _FIND),
    Cause(704, "hipErrorPeerAccessAlreadyEnabled", AMDDeviceError, "peer access between these GPUs is enabled already",
          "leave the call out"),
    Cause(705, "hipErrorPeerAccessNotEnabled", AMDDeviceError, "peer access between these GPUs is not enabled",
          "enable it, or copy through the host"),
    Cause(708, "hipErrorSetOnActiveProcess", AMDDeviceError, "it can be set only before the GPU is first used",
          "set it when the program starts"),
    Cause(709, "hipErrorContextIsDestroyed", AMDDeviceFaultError, "the GPU was reset", _DEAD),
    Cause(710, "hipErrorAssert", AMDDeviceFaultError, "an assertion in a kernel failed", _FIND),
    Cause(712, "hipErrorHostMemoryAlreadyRegistered", AMDDeviceError, "this host memory is pinned already",
          "use it as it is"),
    Cause(713, "hipErrorHostMemoryNotRegistered", AMDDeviceError, "this host memory is not pinned, or no longer",
          "give back only what was pinned, and once"),
    Cause(719, "hipErrorLaunchFailure", AMDDeviceFaultError, "a kernel failed while it ran", _FIND),
    Cause(720, "hipErrorCooperativeLaunchTooLarge", AMDDeviceError, "not all blocks fit on the GPU at once",
          "use fewer blocks"),
    Cause(801, "hipErrorNotSupported", AMDDeviceError, "this GPU or this ROCm cannot do it",
          "install a newer ROCm, or go without it"),
    Cause(900, "hipErrorStreamCaptureUnsupported", AMDDeviceError, "it cannot be part of a captured graph", _CAPTURE),
    Cause(901, "hipErrorStreamCaptureInvalidated", AMDDeviceError, "an earlier error ended the capture", _CAPTURE),
    Cause(902, "hipErrorStreamCaptureMerge", AMDDeviceError, "two captures would become one",
          "let their streams wait for each other outside of them"),
    Cause(903, "hipErrorStreamCaptureUnmatched", AMDDeviceError, "the capture was not begun on this stream",
          "end it on the stream that began it"),
    Cause(904, "hipErrorStreamCaptureUnjoined", AMDDeviceError,
          "another stream took part in the capture and was not waited for", "let the captured stream wait for it"),
    Cause(905, "hipErrorStreamCaptureIsolation", AMDDeviceError, "the capture depends on work outside of it", _CAPTURE),
    Cause(906, "hipErrorStreamCaptureImplicit", AMDDeviceError,
          "the default stream was used during a capture", _CAPTURE),
    Cause(907, "hipErrorCapturedEvent", AMDDeviceError, "the event was recorded in a capture", _CAPTURE),
    Cause(908, "hipErrorStreamCaptureWrongThread", AMDDeviceError, "a capture was ended by another thread",
          "begin and end it in one"),
    Cause(910, "hipErrorGraphExecUpdateFailure", AMDDeviceError, "the graph differs too much from the one in use",
          "make a new one"),
    Cause(999, "hipErrorUnknown", AMDDeviceError, "the HIP runtime does not know why",
          "look at dmesg, and run again with AMD_LOG_LEVEL=3"),
    Cause(1052, "hipErrorRuntimeMemory", AMDDeviceError, "ROCm's runtime could not get memory for itself",
          "check the limits of the process (ulimit -l, ulimit -v) and the host's free memory"),
    Cause(1053, "hipErrorRuntimeOther", AMDDeviceError, "a call of ROCm's runtime failed",
          "look at dmesg, and run again with AMD_LOG_LEVEL=3"),
)  # fmt: skip

_MATRIX = re.compile(r"'__builtin_amdgcn_(?:mfma|smfmac|wmma|swmmac)_\w+' needs target feature")


def refusal(message: str, log: str, target: Target) -> HIPCompilationError:
    """The error of a source that clang or hiprtc refused, from what they wrote."""
    if not _MATRIX.search(log):
        return HIPCompilationError(message)
    has = f"its matrix instructions are {target.matrix_core.upper()}" if target.matrix_core else "it has none"
    return MatrixCoreError(
        f"{message}\n{target.name} has no such matrix instruction ({has}); guard it with __has_builtin"
    )
