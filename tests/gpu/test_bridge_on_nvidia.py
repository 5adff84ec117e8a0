"""torch.compile(backend="pyflame") and DLPack on a real NVIDIA GPU, beside torch, CuPy and JAX in one context."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.runtime.cuda.device import CUDA
from tests.bridge.conftest import fresh_dynamo as fresh_dynamo  # a fixture of every test here

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        CUDA.count() == 0 or not torch.cuda.is_available(), reason=CUDA.why_absent() or "torch sees no GPU"
    ),
]
CUDA0 = "cuda:0"
LONG = 200_000_000  # clock ticks that a stream sleeps: about 0.1 s


def compiled(fn: Any, **options: Any) -> Any:
    return torch.compile(fn, backend="pyflame", **options)


# --- DLPack -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int64", "bool", "complex64", "float8_e4m3fn"])
def test_memory_is_shared_with_torch_both_ways(name: str) -> None:
    kind = getattr(torch, name)
    theirs = torch.tensor([[0.0, 1.0], [2.0, 3.0]], device=CUDA0).to(kind)
    ours = pf.from_torch(theirs)
    assert ours.device == CUDA0 and ours.dtype is pf.as_dtype(kind)
    assert ours._node.data.address == theirs.data_ptr()
    back = ours.to_torch()
    assert back.device == theirs.device and back.dtype is kind and back.data_ptr() == theirs.data_ptr()
    assert pf.from_torch(theirs.T).to_torch().stride() == theirs.T.stride()
    assert pf.from_torch(theirs[:0]).shape == (0, 2)


def test_torchs_work_comes_first_and_ours_before_its_next() -> None:
    """Both streams sleep before they compute: whoever does not wait reads what was there before."""
    side = torch.cuda.Stream()
    for stream in (torch.cuda.current_stream(), side):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 20, device=CUDA0)
            torch.cuda._sleep(LONG)
            x += 1
            ours = pf.from_torch(x) * 2 + 1
            assert torch.equal(ours.to_torch() + 0, torch.full_like(x, 3))


def test_imported_memory_lives_until_our_last_use_is_done() -> None:
    want = torch.arange(1 << 22, device=CUDA0, dtype=torch.float32)
    for _ in range(20):
        ours = pf.from_torch(want + 1)  # nobody else holds it
        result = ours * 2
        pf.eval(result)
        del ours
        junk = torch.full_like(want, -1.0)  # torch may take the same memory at once
        assert torch.equal(result.to_torch(), (want + 1) * 2)
        del junk


def test_exported_memory_comes_back_when_torch_drops_it() -> None:
    gc.collect()
    pf.synchronize(CUDA0)
    before = pf.memory_stats(CUDA0).allocated
    theirs = (pf.ones(1 << 20, device=CUDA0) * 3).to_torch()
    assert pf.memory_stats(CUDA0).allocated >= before + (4 << 20)
    assert theirs.sum().item() == 3 << 20
    del theirs
    gc.collect()
    pf.synchronize(CUDA0)
    assert pf.memory_stats(CUDA0).allocated < before + (1 << 20)


def test_cupy_reads_and_gives() -> None:
    cupy = pytest.importorskip("cupy")
    ours = pf.arange(12, device=CUDA0).reshape(3, 4) * 2
    theirs = cupy.from_dlpack(ours)
    assert theirs.data.ptr == ours._node.data.address and (cupy.asnumpy(theirs) == ours.numpy()).all()
    assert (cupy.asnumpy(cupy.asarray(ours)) == ours.numpy()).all()  # by __cuda_array_interface__
    with cupy.cuda.Stream(non_blocking=True):
        made = cupy.arange(5, dtype=cupy.float32) + 1
        got = pf.from_dlpack(made) * 2
    del made
    assert got.tolist() == [2, 4, 6, 8, 10]


def test_jax_reads_and_gives() -> None:
    jax = pytest.importorskip("jax")
    if not any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("JAX sees no GPU")
    ours = pf.arange(12, device=CUDA0, dtype=pf.float32).reshape(3, 4) * 2
    theirs = jax.dlpack.from_dlpack(ours)
    assert (np.asarray(theirs) == ours.numpy()).all()
    made = jax.numpy.arange(5, dtype=jax.numpy.float32) + 1
    assert (pf.from_dlpack(made) * 2).tolist() == [2, 4, 6, 8, 10]


# --- torch.compile ----------------------------------------------------------------------------------------------------


class Block(torch.nn.Module):  # type: ignore[misc]
    """Attention and an MLP, as in a small GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.before(x)).chunk(3, dim=-1))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.behind(x))


def steps(model: Any, fn: Any, x: Any, autocast: bool) -> list[Any]:
    """Gradients of a few steps of training, and the last result."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            out = fn(x)
        out.float().square().mean().backward()
        optimizer.step()
    return [out.float(), *(p.grad.float() for p in model.parameters())]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", ["block", "cnn"])
def test_training_steps_equal_eager_ones(kind: str, autocast: bool) -> None:
    import copy

    nn = torch.nn
    if kind == "block":
        model, x = Block(128, 4), torch.randn(3, 32, 128, device=CUDA0)
    else:
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 3),
            nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        )  # fmt: skip
        x = torch.randn(8, 3, 16, 16, device=CUDA0)
    theirs = model.to(CUDA0)
    ours, exact = copy.deepcopy(theirs), copy.deepcopy(theirs).double()
    truth = steps(exact, exact, x.double(), False)
    want = steps(theirs, theirs, x, autocast)
    got = steps(ours, compiled(ours), x, autocast)
    for g, w, t in zip(got, want, truth, strict=True):  # no farther from float64 than torch's own steps, by and large
        assert g.device == w.device and (g - t).norm() <= 3 * (w - t).norm() + 1e-3 * t.norm() + 1e-5
    for (name, a), b in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        assert torch.allclose(a.float(), b.float(), atol=1e-2 if autocast else 1e-4), name


def test_all_of_a_block_runs_here() -> None:
    import pyflame.bridge.torch as bridge

    x = torch.randn(2, 16, 64, device=CUDA0, dtype=torch.bfloat16, requires_grad=True)
    told = bridge.explain(Block(64, 2).to(CUDA0, torch.bfloat16), x)
    assert not told.fallbacks and {graph.device for graph in told.graphs} == {CUDA0}


def test_calls_follow_torchs_current_stream() -> None:
    fn = compiled(lambda x: torch.tanh(x) * 2 + 1)
    side = torch.cuda.Stream()
    for stream in (torch.cuda.current_stream(), side, torch.cuda.current_stream(), side):
        with torch.cuda.stream(stream):
            for _ in range(5):
                x = torch.zeros(1 << 20, device=CUDA0)
                torch.cuda._sleep(LONG // 10)
                x += 1
                got = fn(x) + 0
                assert torch.allclose(got, torch.tanh(x) * 2 + 1)


def test_no_call_waits_for_the_gpu() -> None:
    fn = compiled(torch.nn.Linear(256, 256).to(CUDA0))
    x = torch.randn(64, 256, device=CUDA0)
    for _ in range(3):
        fn(x)
    torch.cuda.synchronize()
    torch.cuda._sleep(10 * LONG)
    done = torch.cuda.Event()
    for _ in range(5):
        out = fn(x)
    done.record()
    assert not done.query()  # the stream still sleeps
    assert torch.isfinite(out).all()


def test_memory_of_activations_is_torchs_and_returns() -> None:
    model = Block(128, 4).to(CUDA0)
    fn, x = compiled(model), torch.randn(4, 64, 128, device=CUDA0)

    def step() -> int:
        fn(x).sum().backward()
        model.zero_grad()
        gc.collect()
        return int(torch.cuda.memory_allocated())

    step()
    first = step()
    assert [step() for _ in range(5)] == [first] * 5


def test_random_views_and_writes() -> None:
    drop = compiled(torch.nn.Dropout(0.5))
    x = torch.ones(1000, device=CUDA0)
    torch.manual_seed(3)
    first = drop(x)
    assert 300 < (first == 0).sum() < 700 and not torch.equal(first, drop(x))
    torch.manual_seed(3)
    assert torch.equal(first, drop(x))

    def writes(y: Any) -> Any:
        y.mul_(3)
        return y[1:], y.flip(0)

    y = torch.arange(4.0, device=CUDA0)
    view, flipped = compiled(writes)(y)
    assert y.tolist() == [0, 3, 6, 9] and flipped.tolist() == [9, 6, 3, 0]
    assert view.data_ptr() == y[1:].data_ptr()


def test_a_number_of_the_cpu_may_meet_the_gpu_and_tensors_may_not() -> None:
    fn = compiled(lambda a, b: a * b + 1)
    a = torch.ones(3, device=CUDA0)
    assert fn(a, torch.tensor(2.0)).tolist() == [3, 3, 3]
    torch._dynamo.reset()
    with pytest.raises(Exception, match="device"):
        compiled(lambda a, b: (a + 1).sum() + (b + 1).sum().to(CUDA0))(a, torch.ones(3))


def test_a_capture_is_refused() -> None:
    fn = compiled(lambda x: x * 2 + 1)
    x = torch.ones(8, device=CUDA0)
    fn(x)
    torch.cuda.synchronize()
    with pytest.raises(pf.NotSupportedError, match="captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        fn(x)


def test_threads_with_streams_of_their_own() -> None:
    fn = compiled(lambda x: (x @ x).relu() + 1)
    x = torch.randn(128, 128, device=CUDA0)
    want = (x @ x).relu() + 1
    fn(x)
    torch.cuda.synchronize()
    wrong: list[str] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                if not torch.allclose(fn(x), want, atol=1e-3):
                    wrong.append("another result")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
