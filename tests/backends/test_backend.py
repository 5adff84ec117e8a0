"""AMDBackend and NVIDIABackend: where models run, what they keep, and what is refused."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.backends import models
from pyflame.backends.amd import AMDBackend, AMDMemoryManager, HIPUtilities, ROCmCompiler
from pyflame.backends.nvidia import NVIDIABackend
from pyflame.core.config import AMDArchitecture, AMDConfig, KernelPyTorchConfig
from pyflame.core.errors import (
    AMDConfigurationError,
    AMDDeviceError,
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    HIPCompilationError,
    ROCmMemoryError,
    ROCmNotAvailableError,
)
from pyflame.core.targets import TARGETS

torch = pytest.importorskip("torch")
SIM = "sim:gfx942"
DEVICES = ["cpu", SIM, "sim:gfx1100"]
needs_no_gpu = pytest.mark.skipif(pf.rocm.is_available(), reason="there is an AMD GPU, so nothing falls back")


def mlp(library: Any) -> Any:
    library.manual_seed(0)
    return library.nn.Sequential(library.nn.Linear(8, 16), library.nn.GELU(), library.nn.Linear(16, 4))


@pytest.mark.slow(16)
@pytest.mark.parametrize("library", [torch, pf], ids=["torch", "pyflame"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_prepared_model_computes_on_the_device_and_trains(device: str, library: Any) -> None:
    backend = AMDBackend(AMDConfig(device=device))
    assert backend.is_available() == (device != "cpu")
    model, plain = mlp(library), mlp(library)
    prepared = backend.prepare_model(model)
    assert isinstance(prepared, type(plain)) and [*prepared.state_dict()] == [*plain.state_dict()]
    x = library.randn(3, 8)
    want, got = plain(x), prepared(x.to(backend.device))
    assert np.allclose(got.detach().cpu().numpy(), want.detach().numpy(), atol=1e-5)
    got.sum().backward()
    want.sum().backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert np.allclose(p.grad.cpu().numpy(), q.grad.numpy(), atol=1e-4)
    if library is torch:
        assert [g.device for g in models.graphs_of(prepared)] == [device] * 2
        assert all(g.in_torch == 0 for g in models.graphs_of(prepared))
    else:
        assert str(got.device) == device
    backend.synchronize()
    backend.cleanup()


@pytest.mark.slow
def test_many_prepared_models_all_run_here() -> None:
    """Dynamo gives a code object up after eight compilations, and runs it in eager torch."""
    backend = AMDBackend(AMDConfig(device="cpu"))
    for width in range(1, 11):
        prepared = backend.prepare_model(torch.nn.Sequential(torch.nn.Linear(width, 2)))
        prepared(torch.ones(1, width))
        assert models.graphs_of(prepared)


def test_a_model_that_dynamo_leaves_alone_is_told() -> None:
    prepared = AMDBackend(AMDConfig(device="cpu")).prepare_model(torch.nn.LSTM(4, 4))
    with pytest.warns(RuntimeWarning, match="eager torch ran it"):
        prepared(torch.ones(2, 1, 4))


@pytest.mark.parametrize("library", [torch, pf], ids=["torch", "pyflame"])
def test_prepared_models_are_copied_and_pickled(library: Any) -> None:
    prepared = AMDBackend(AMDConfig(device="cpu")).prepare_model(mlp(library))
    x = library.ones(2, 8)
    want = prepared(x).detach().numpy()
    for other in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert np.array_equal(other(x).detach().numpy(), want)
        with library.no_grad():
            next(iter(other.parameters())).zero_()
        assert not np.array_equal(other(x).detach().numpy(), want)
    assert np.array_equal(prepared(x).detach().numpy(), want)


@pytest.mark.parametrize("library", [torch, pf], ids=["torch", "pyflame"])
def test_hooks_and_modes_of_the_model_hold(library: Any) -> None:
    model = library.nn.Dropout(0.5)
    seen: list[int] = []
    prepared = AMDBackend(AMDConfig(device="cpu")).prepare_model(model)
    prepared.register_forward_hook(lambda *_: seen.append(1))
    x = library.ones(64)
    assert (prepared(x).numpy() == 0).any() and len(seen) == 1
    prepared.eval()
    assert (prepared(x).numpy() == 1).all() and len(seen) == 2


@pytest.mark.parametrize("library", [torch, pf], ids=["torch", "pyflame"])
@pytest.mark.parametrize("mixed", [True, False])
def test_precision_is_of_products_or_of_all(library: Any, mixed: bool) -> None:
    config = AMDConfig(device="cpu", default_precision="bf16", enable_mixed_precision=mixed)
    prepared = AMDBackend(config).prepare_model(mlp(library))
    dtypes = {str(p.dtype).rpartition(".")[2] for p in prepared.parameters()}
    assert dtypes == {"float32" if mixed else "bfloat16"}
    x = library.randn(3, 8)
    got, want = prepared(x).float().detach().numpy(), mlp(library)(x).detach().numpy()
    assert 0 < abs(got - want).max() < 0.05


def product_text(config: AMDConfig) -> str:
    """The source of a product's kernel, as the planner made it."""
    layer, x = nn.Linear(64, 64).half(), pf.ones(64, 64, dtype=pf.float16, device=config.device)
    held = vars(AMDBackend(config).prepare_model(layer))["_prepared"]
    with held.settings.modes(), pf.no_grad():
        traced, _ = held.run.find((x,), {})
    (source,) = traced.runner.executable.plan.sources
    return str(source.text)


@pytest.mark.slow
def test_switches_reach_the_planner() -> None:
    """Without matrix cores the product is another kernel; without fusion every op is a launch."""
    config = AMDConfig(device=SIM)
    settings = AMDBackend(config).settings()

    def chain(x: Any) -> Any:
        return (x + 1).exp().sin()

    def launches(fuse: bool) -> int:
        chosen = AMDBackend(AMDConfig(device=SIM, enable_operator_fusion=fuse)).settings()
        with chosen.modes():
            return len(pf.explain(pf.jit(chain), pf.ones(8, device=SIM), run=False).launches)

    assert settings.matrix_cores and launches(True) == 1 and launches(False) == 3
    assert "pf_mma_f16" in product_text(config)
    assert "pf_mma_f16" not in product_text(AMDConfig(device=SIM, enable_matrix_cores=False))


@pytest.mark.slow
def test_a_state_dict_goes_from_any_backend_to_any_other() -> None:
    source = "sim:gfx1100"
    for library in (torch, pf):
        trained = AMDBackend(AMDConfig(device=source)).prepare_model(mlp(library))
        saved = {k: v.cpu() for k, v in trained.state_dict().items()}
        x = library.ones(2, 8)
        for other in (
            AMDBackend(AMDConfig(device=SIM)),
            NVIDIABackend(KernelPyTorchConfig(device="cpu")),
        ):
            fresh = library.nn.Sequential(library.nn.Linear(8, 16), library.nn.GELU(), library.nn.Linear(16, 4))
            loaded = other.prepare_model(fresh)
            loaded.load_state_dict(saved)
            got, want = loaded(x.to(other.device)), trained(x.to(source) if library is pf else x)
            assert np.allclose(got.detach().cpu().numpy(), want.detach().cpu().numpy(), atol=1e-5)


@needs_no_gpu
def test_the_cpu_stands_in_and_says_so() -> None:
    with pytest.warns(RuntimeWarning, match="no GPU of AMD is available.*run on the CPU"):
        backend = AMDBackend(AMDConfig(max_memory_fraction=0.5, miopen_find_mode="FAST"))
    assert not backend.is_available() and backend.device.type == "cpu" and backend.device == "cpu"
    info = backend.get_device_info()
    assert info["fallback"] and info["without_effect"] == ["max_memory_fraction", "miopen_find_mode"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AMDBackend(AMDConfig(device="cpu"))  # asked for
    with pytest.raises(ROCmNotAvailableError, match="enable_strict_validation=False"):
        AMDBackend(AMDConfig(enable_strict_validation=True))


def test_a_device_says_what_it_is() -> None:
    backend = AMDBackend(AMDConfig(device=SIM))
    info = backend.get_device_info()
    assert info["family"] == "cdna3" and info["wave_size"] == 64 and info["simulated"] and not info["fallback"]
    device = backend.device
    assert f"{device}" == SIM and device == SIM and device.type == "sim" and hash(device) == hash(SIM)
    assert pickle.loads(pickle.dumps(device)) == device and device != "cpu"
    assert torch.ones(2).to(device).device.type == "cpu"  # torch's tensors stay
    assert pf.ones(2).to(device).device == SIM


def test_what_contradicts_the_device_is_refused() -> None:
    with pytest.raises(AMDConfigurationError, match="cdna3"):
        AMDBackend(AMDConfig(device=SIM, architecture=AMDArchitecture.RDNA3))
    with pytest.raises(AMDConfigurationError, match="AMDConfig"):
        AMDBackend(KernelPyTorchConfig())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="device of NVIDIA"):
        NVIDIABackend(KernelPyTorchConfig(device=SIM))
    with pytest.raises(AMDConfigurationError, match="no matrix cores"):
        AMDConfig(enable_matrix_cores=True).check_matrix_cores(TARGETS["gfx1030"])
    with pytest.raises(ArgumentTypeError, match=r"torch\.nn or pyflame\.nn"):
        AMDBackend(AMDConfig(device="cpu")).prepare_model(lambda x: x)


def test_models_that_do_not_fit_or_are_broken_are_refused() -> None:
    class Large:
        """As many bytes as no GPU has."""

        def numel(self) -> int:
            return 1 << 50

        def element_size(self) -> int:
            return 4

    model = nn.Linear(2, 2)
    object.__setattr__(model, "buffers", lambda: [Large()])
    with pytest.raises(ROCmMemoryError, match="max_memory_fraction"):
        AMDBackend(AMDConfig(device=SIM)).prepare_model(model)
    broken = torch.nn.Linear(2, 2)
    with torch.no_grad():
        broken.weight[0, 0] = float("nan")
    with pytest.raises(AMDConfigurationError, match="finite weights but weight"):
        AMDBackend(AMDConfig(device="cpu", enable_strict_validation=True)).prepare_model(broken)


def test_memory_is_what_the_pool_says() -> None:
    manager = AMDMemoryManager(AMDConfig(device=SIM, enable_memory_pooling=False))
    before = manager.get_memory_stats()
    address = manager.allocate(1 << 20)
    assert manager.get_memory_stats().allocated_mb >= before.allocated_mb + 1
    manager.deallocate(address)
    after = manager.get_memory_stats()
    assert after.allocated_mb == before.allocated_mb and after.cached_mb == 0
    assert manager.get_allocation_summary()["allocations"] == pf.memory_stats(SIM).allocations
    host = AMDMemoryManager(AMDConfig(device="cpu"))
    assert 0 < host.get_memory_stats().free_mb <= host.get_memory_stats().total_mb
    with pytest.raises(AMDDeviceError, match="expected an AMD GPU"):
        host.allocate(16)


@pytest.mark.parametrize("device", ["cpu", SIM])
def test_streams_and_regions(device: str) -> None:
    utils = HIPUtilities(AMDConfig(device=device, enable_profiling=True))
    stream = utils.create_stream("compute", priority=0)
    assert utils.get_stream("compute") is stream
    with pytest.raises(ArgumentError, match="new name"):
        utils.create_stream("compute")
    for _ in range(2):
        with utils.profile_region("sum"), stream:
            pf.eval(pf.ones(8, device=device).sum())
    region = utils.get_profiling_summary()["regions"]["sum"]
    assert region["count"] == 2 and 0 < region["min_ms"] <= region["avg_ms"] <= region["max_ms"]
    if device == "cpu":
        with pytest.raises(DeviceError):
            utils.create_event()
    else:
        utils.create_event().record()
    utils.cleanup()
    with pytest.raises(ArgumentError, match="none was made"):
        utils.get_stream("compute")
    silent = HIPUtilities(AMDConfig(device=device))
    with silent.profile_region("sum"):
        pass
    assert silent.get_profiling_summary() == {"enabled": False, "device": device, "regions": {}}


SCALE = 'extern "C" __global__ void scale(float* x, float by) { x[threadIdx.x] *= by; }'


def test_a_compiled_kernel_runs(tmp_path: Any) -> None:
    compiler = ROCmCompiler(AMDConfig(device=SIM, hip_compiler_cache_dir=str(tmp_path), hip_compiler_cache_size=1))
    kernel = compiler.compile_kernel(SCALE, "scale")
    x = pf.arange(4.0, device=SIM)
    kernel(x, 2.0, grid=1, block=4)
    assert x.tolist() == [0, 2, 4, 6]
    assert compiler.compile_kernel(SCALE, "scale") is kernel
    assert compiler.get_compilation_stats()["cache_hit_rate_percent"] == 50
    assert compiler.clear_cache() > 0 and not any(p.is_file() for p in (tmp_path / "v1").rglob("*"))
    compiler.compile_kernel(SCALE, "scale")
    assert compiler.get_compilation_stats()["compiled"] == 2


def test_kernels_for_an_architecture_are_built_not_launched() -> None:
    compiler = ROCmCompiler(AMDConfig(device="cpu", architecture="rdna3", hip_kernel_cache_enabled=False))
    kernel = compiler.compile_kernel(SCALE, "scale")
    assert kernel.architecture == "gfx1100" and kernel.code[:4] == b"\x7fELF"
    compiler.compile_kernel(SCALE, "scale")
    assert compiler.get_compilation_stats()["compiled"] == 2
    with pytest.raises(DeviceError, match="only built"):
        kernel(None, 1.0, grid=1, block=1)
    with pytest.raises(HIPCompilationError, match="undeclared identifier"):
        compiler.compile_kernel(SCALE.replace("*= by", "*= bye"), "scale")
    with pytest.warns(RuntimeWarning, match="compiled for gfx942"):
        assert ROCmCompiler(AMDConfig(device="cpu")).target.name == "gfx942"
