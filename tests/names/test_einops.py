"""einops on our tensors, whichever of both is imported first; with a stand-in of its backends where it is missing."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf

# How einops finds a backend for a tensor: its classes, and that their framework was imported.
STAND_IN = """
import sys
_loaded = {}

def get_backend(tensor):
    classes = AbstractBackend.__subclasses__()
    for kind in classes:
        if kind.framework_name in sys.modules:
            backend = _loaded.setdefault(kind.framework_name, kind())
            if backend.is_appropriate_type(tensor):
                return backend
    raise RuntimeError(f"Tensor type unknown to einops {type(tensor)}")

class AbstractBackend:
    framework_name: str

    def shape(self, x):
        return x.shape

    def reshape(self, x, shape):
        return x.reshape(shape)
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["pyflame", "einops"])
def test_the_backend_is_found_in_either_order(tmp_path: Path, first: str) -> None:
    (tmp_path / "einops").mkdir()
    (tmp_path / "einops" / "__init__.py").write_text("from einops._backends import get_backend")
    (tmp_path / "einops" / "_backends.py").write_text(STAND_IN)
    both = ["import pyflame as pf", "import einops"]
    program = "\n".join([*(both if first == "pyflame" else both[::-1]), "import gc; gc.collect()", "import sys", CHECK])
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


CHECK = """
x = pf.arange(24.0).reshape(2, 3, 4)
b = einops.get_backend(x)
assert b.framework_name == "pyflame"
assert b.transpose(x, (2, 0, 1)).shape == (4, 2, 3)
assert b.reduce(x, "max", (0, 2)).tolist() == [15.0, 19.0, 23.0]
assert b.reduce(x, "mean", (1,)).shape == (2, 4)
assert b.reduce(x > 3, "all", (0, 1)).tolist() == [False] * 4
assert b.reduce(x[:1, :2] + 1, "prod", (0, 2)).tolist() == [24.0, 1680.0]
assert b.add_axes(x, 5, {0: 5, 4: 2}).shape == (5, 2, 3, 4, 2)
assert b.tile(x, (1, 2, 1)).shape == (2, 6, 4)
assert b.concat([x, x], 1).shape == (2, 6, 4)
assert b.stack_on_zeroth_dimension([x, x]).shape == (2, 2, 3, 4)
assert b.einsum("ijk,ljk->il", x, x).shape == (2, 2)
assert b.is_float_type(x) and not b.is_float_type(x.long())
assert b.from_numpy(b.to_numpy(x)).requires_grad
assert sys.modules["einops._backends"].__spec__.loader.__class__.__name__ == "SourceFileLoader"
print("right")
"""


@pytest.mark.slow
def test_patterns() -> None:
    einops = pytest.importorskip("einops")
    array = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
    x = pf.tensor(array, requires_grad=True)
    for pattern, sizes in (
        ("b c h w -> b (h w) c", {}),
        ("b c (h p) (w q) -> b (h w) (p q c)", {"p": 2, "q": 2}),
        ("b c h w -> (b h) w c", {}),
    ):
        got = einops.rearrange(x, pattern, **sizes)
        np.testing.assert_array_equal(got.detach().numpy(), einops.rearrange(array, pattern, **sizes))
    for how in ("mean", "max", "min", "sum", "prod"):
        got = einops.reduce(x, "b c (h p) w -> b c h", how, p=2)
        want = einops.reduce(array, "b c (h p) w -> b c h", how, p=2)
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-5)
    got = einops.repeat(x, "b c h w -> b c (h r) w", r=3)
    np.testing.assert_array_equal(got.detach().numpy(), einops.repeat(array, "b c h w -> b c (h r) w", r=3))
    got.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(array.shape, 3.0))
    packed, shapes = einops.pack([x, x[:, :1]], "b * h w")
    assert [p.shape for p in einops.unpack(packed, shapes, "b * h w")] == [(2, 3, 4, 4), (2, 1, 4, 4)]
    assert einops.einsum(x, x, "b c h w, b d h w -> b c d").shape == (2, 3, 3)


def test_layers() -> None:
    pytest.importorskip("einops")
    from einops.layers.pyflame import EinMix, Rearrange, Reduce

    model = pf.nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
        EinMix("b n i -> b n o", weight_shape="i o", bias_shape="o", i=12, o=5),
        Reduce("b n c -> b c", "mean"),
    )
    x = pf.randn(2, 3, 4, 4)
    y = model(x)
    patches = x.reshape(2, 3, 2, 2, 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(2, 4, 12)
    want = (patches @ model[1].weight + model[1].bias).mean(1)
    np.testing.assert_allclose(y.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    y.sum().backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None} == {"1.weight", "1.bias"}
    assert isinstance(pickle.loads(pickle.dumps(model[0])), Rearrange)


def test_layers_for_torch_become_ours() -> None:
    pytest.importorskip("einops")
    torch = pytest.importorskip("torch")
    layers = importlib.import_module("einops.layers.torch")

    class Net(pf.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = layers.Rearrange("b c h -> b (c h)")
            self.rest = pf.nn.Sequential(layers.Reduce("b (k n) -> b n", "max", k=2), pf.nn.Linear(6, 2))
            self.mix = layers.EinMix("b i -> b o", weight_shape="i o", i=2, o=3)

    torch.manual_seed(0)
    mix = layers.EinMix("b i -> b o", weight_shape="i o", bias_shape="o", i=12, o=3)
    net, x = Net(), pf.randn(2, 3, 4)
    assert net.mix(net.rest(net.flat(x))).shape == (2, 3)
    net.mix = mix
    want = mix(torch.tensor(x.reshape(2, 12).numpy())).detach().numpy()
    np.testing.assert_allclose(net.mix(net.flat(x)).detach().numpy(), want, rtol=1e-5, atol=1e-6)
