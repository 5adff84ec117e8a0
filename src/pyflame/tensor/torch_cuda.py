"""`pf.cuda` and `pf.rocm`: kinds.py, and what `torch.cuda` has beside it: seeds, and facts that programs ask for."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from pyflame.core.device import meaning, parse_device
from pyflame.core.errors import AMDDeviceError, OutOfMemoryError
from pyflame.core.torch_paths import refused
from pyflame.tensor import random
from pyflame.tensor.kinds import GpuKind
from pyflame.tensor.tensor import Tensor

_GRAPHS = "pf.jit captures graphs of what it runs on a GPU"


class TorchGpus(GpuKind):
    """All GPUs of a kind.

    There is one random generator for all devices here, so that numbers are the same on each of them: seeds and states
    are those of `pf.manual_seed`, `pf.get_rng_state` and `pf.set_rng_state`.

    >>> pf.cuda.manual_seed_all(0)
    """

    OutOfMemoryError = OutOfMemoryError
    CUDAGraph = refused("CUDAGraph", _GRAPHS)
    graph = refused("graph", _GRAPHS)

    # --- random numbers -----------------------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> None:
        """Start the generator over from this seed."""
        random.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Start the generator over from this seed."""
        random.manual_seed(seed)

    def seed(self) -> None:
        """Start the generator over from a seed of the operating system."""
        random.seed()

    def seed_all(self) -> None:
        """Start the generator over from a seed of the operating system."""
        random.seed()

    def initial_seed(self) -> int:
        """The seed that the generator started from."""
        return random.initial_seed()

    def get_rng_state(self, device: object = "cuda") -> Tensor:
        """The generator's state, of which there is one for all devices."""
        return random.get_rng_state()

    def set_rng_state(self, new_state: Tensor, device: object = "cuda") -> None:
        """Continue where `get_rng_state` was called."""
        random.set_rng_state(new_state)

    def get_rng_state_all(self) -> list[Tensor]:
        """The generator's state, once for each device."""
        return [random.get_rng_state()] * self.device_count()

    def set_rng_state_all(self, new_states: Any) -> None:
        """Continue where `get_rng_state_all` was called."""
        for state in new_states:
            random.set_rng_state(state)

    # --- facts --------------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Devices are opened when they are first used: there is nothing to do."""

    def is_initialized(self) -> bool:
        """Whether there is a device; it is opened when it is first used."""
        return self.device_count() > 0

    _initialized = property(is_initialized)

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Whether bfloat16 works: on every GPU that can be used, in float32 where it has no instructions for it."""
        return self.device_count() > 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        """(major, minor): (9, 0) for sm_90, (9, 4) for gfx942, as in PyTorch."""
        arch = str(self.get_device_properties(device).arch)
        digits = arch.removeprefix("sm_").removeprefix("gfx")
        if arch.startswith("sm_"):
            return int(digits[:-1]), int(digits[-1])
        return int(digits[:-2]), int(digits[-2], 16)

    def get_arch_list(self) -> list[str]:
        """What kernels are compiled for when they are first used: the devices of this machine."""
        return sorted({str(self.get_device_properties(i).arch) for i in range(self.device_count())})

    def device_of(self, obj: Any) -> Any:
        """The device of a tensor as the current one within a `with` block, where it is of this kind."""
        found = parse_device(obj.device)
        return self.device(found) if found.kind == self.kind else nullcontext()

    def is_current_stream_capturing(self) -> bool:
        """False: programs capture no graphs. `pf.jit` does, while a program waits for its results."""
        return False

    def memory_cached(self, device: object = None) -> int:
        """The older name of memory_reserved."""
        return self.memory_reserved(device)

    def max_memory_cached(self, device: object = None) -> int:
        """The older name of max_memory_reserved."""
        return self.max_memory_reserved(device)

    def reset_max_memory_cached(self, device: object = None) -> None:
        """Measure peaks from here on: the older name of reset_peak_memory_stats."""
        self.reset_peak_memory_stats(device)

    def ipc_collect(self) -> None:
        """Memory is not shared between processes: there is nothing to collect."""

    def reset_max_memory_allocated(self, device: object = None) -> None:
        """Measure peaks from here on: the older name of reset_peak_memory_stats."""
        self.reset_peak_memory_stats(device)


class AnyGpu(TorchGpus):
    """The GPUs that programs written for PyTorch call cuda: AMD's on a machine that has no others."""

    @property
    def kind(self) -> str:
        """'rocm' or 'cuda'."""
        return meaning.cuda()


cuda = AnyGpu("cuda", "an NVIDIA GPU")
rocm = TorchGpus("rocm", "an AMD GPU", AMDDeviceError)
