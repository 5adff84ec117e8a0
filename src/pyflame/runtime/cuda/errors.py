"""CUDA's status codes: what happened and what to do. Codes and names are those of `CUresult`."""

from __future__ import annotations

from pyflame.core.errors import CompileError, DeviceError, DeviceFaultError, NotAvailableError, OutOfMemoryError
from pyflame.runtime.gpu.driver import Cause, table

_DEAD = "no further call can use this GPU in this process: go on with another device, or restart"
_FIND = (
    "run again with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer to see the kernel at fault, and check the "
    "indices and sizes it was given; " + _DEAD
)
_ARCH = "compile for the GPU's own sm number"
_UPDATE = "update the NVIDIA driver"
_CAPTURE = "run it outside of the capture"

CAUSES = table(
    Cause(1, "CUDA_ERROR_INVALID_VALUE", DeviceError,
          "an argument has no meaning", "check addresses, sizes, grid and block"),
    Cause(2, "CUDA_ERROR_OUT_OF_MEMORY", OutOfMemoryError, "the GPU has no memory left for it",
          "delete tensors, use a smaller batch or dtype, or stop other processes on this GPU"),
    Cause(3, "CUDA_ERROR_NOT_INITIALIZED", NotAvailableError, "the CUDA driver did not start", "check nvidia-smi"),
    Cause(4, "CUDA_ERROR_DEINITIALIZED", NotAvailableError, "the CUDA driver has shut down",
          "use no device while the interpreter ends"),
    Cause(34, "CUDA_ERROR_STUB_LIBRARY", NotAvailableError,
          "the library found is the stub that programs are linked with",
          "take the toolkit's stubs folder out of LD_LIBRARY_PATH"),
    Cause(36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", NotAvailableError,
          "the driver is too old for this call", _UPDATE),
    Cause(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", NotAvailableError, "the GPU is in use, exclusively, or not ready",
          "see nvidia-smi for its compute mode and who uses it"),
    Cause(100, "CUDA_ERROR_NO_DEVICE", NotAvailableError, "the driver finds no NVIDIA GPU",
          "check nvidia-smi; CUDA_VISIBLE_DEVICES may hide it; a container needs --gpus all"),
    Cause(101, "CUDA_ERROR_INVALID_DEVICE", DeviceError, "there is no GPU of that number",
          "count them with nvidia-smi; CUDA_VISIBLE_DEVICES renumbers them"),
    Cause(200, "CUDA_ERROR_INVALID_IMAGE", CompileError, "the code is damaged or for another GPU", _ARCH),
    Cause(201, "CUDA_ERROR_INVALID_CONTEXT", DeviceError, "no GPU is current in this thread, or it was reset",
          "open the device again"),
    Cause(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", CompileError, "the code holds nothing for this GPU", _ARCH),
    Cause(214, "CUDA_ERROR_ECC_UNCORRECTABLE", DeviceFaultError, "the GPU's memory has an error it cannot correct",
          "look at `nvidia-smi -q -d ECC` and reset or replace the GPU"),
    Cause(217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", DeviceError, "these two GPUs cannot reach each other's memory",
          "copy through the host"),
    Cause(218, "CUDA_ERROR_INVALID_PTX", CompileError, "the PTX is not valid", "read the compiler's message"),
    Cause(222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", CompileError, "the PTX is newer than the driver", _UPDATE),
    Cause(300, "CUDA_ERROR_INVALID_SOURCE", CompileError,
          "the kernel's source is not valid", "read the compiler's message"),
    Cause(304, "CUDA_ERROR_OPERATING_SYSTEM", DeviceError, "the operating system refused", "look at dmesg"),
    Cause(400, "CUDA_ERROR_INVALID_HANDLE", DeviceError, "a stream, event or module is not of this GPU, or is gone",
          "make it on the device that uses it"),
    Cause(401, "CUDA_ERROR_ILLEGAL_STATE", DeviceError, "the object is in a state that forbids the call",
          "end what was begun first"),
    Cause(500, "CUDA_ERROR_NOT_FOUND", CompileError, "there is no kernel of that name in the code",
          "declare it extern \"C\" and check its spelling"),
    Cause(600, "CUDA_ERROR_NOT_READY", DeviceError, "work is still under way", "synchronise first"),
    Cause(700, "CUDA_ERROR_ILLEGAL_ADDRESS", DeviceFaultError,
          "a kernel read or wrote memory that is not its own", _FIND),
    Cause(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", DeviceError,
          "the kernel needs more registers or LDS than a block has", "use fewer threads per block"),
    Cause(702, "CUDA_ERROR_LAUNCH_TIMEOUT", DeviceFaultError, "a kernel ran for too long", _FIND),
    Cause(705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", DeviceError, "peer access between these GPUs is not enabled",
          "enable it, or copy through the host"),
    Cause(709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", DeviceFaultError, "the GPU was reset", _DEAD),
    Cause(710, "CUDA_ERROR_ASSERT", DeviceFaultError, "an assertion in a kernel failed", _FIND),
    Cause(714, "CUDA_ERROR_HARDWARE_STACK_ERROR", DeviceFaultError, "a kernel's stack is corrupt or too small", _FIND),
    Cause(715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", DeviceFaultError, "a kernel came to an illegal instruction", _FIND),
    Cause(716, "CUDA_ERROR_MISALIGNED_ADDRESS", DeviceFaultError,
          "a kernel's address is not a multiple of what it loads", _FIND),
    Cause(717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", DeviceFaultError,
          "a kernel's address is of another kind of memory", _FIND),
    Cause(718, "CUDA_ERROR_INVALID_PC", DeviceFaultError, "a kernel jumped out of its code", _FIND),
    Cause(719, "CUDA_ERROR_LAUNCH_FAILED", DeviceFaultError, "a kernel failed while it ran", _FIND),
    Cause(720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", DeviceError, "not all blocks fit on the GPU at once",
          "use fewer blocks"),
    Cause(801, "CUDA_ERROR_NOT_SUPPORTED", DeviceError, "this GPU or this driver cannot do it", _UPDATE),
    Cause(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", NotAvailableError,
          "the kernel module and the driver's library differ", "reboot after a driver update"),
    Cause(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", NotAvailableError,
          "the forward compatibility library does not work on this GPU",
          "take it out of LD_LIBRARY_PATH, or update the driver"),
    Cause(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", DeviceError, "it cannot be part of a captured graph", _CAPTURE),
    Cause(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", DeviceError, "an earlier error ended the capture", _CAPTURE),
    Cause(904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", DeviceError,
          "another stream took part in the capture and was not waited for", "let the captured stream wait for it"),
    Cause(905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", DeviceError,
          "the capture depends on work outside of it", _CAPTURE),
    Cause(906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", DeviceError,
          "the default stream was used during a capture", _CAPTURE),
    Cause(908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", DeviceError, "a capture was ended by another thread",
          "begin and end it in one"),
    Cause(999, "CUDA_ERROR_UNKNOWN", DeviceError, "the driver does not know why", "look at dmesg"),
)  # fmt: skip
