"""Names under PyTorch's dotted paths, against torch."""

from __future__ import annotations

import importlib
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import pyflame as pf

torch = pytest.importorskip("torch")


def both(array: Any) -> tuple[Any, Any]:
    return pf.tensor(array), torch.tensor(array)


@pytest.mark.parametrize("file", ["activation", "batchnorm", "container", "conv", "linear", "loss", "pooling", "rnn"])
def test_files_of_layers(file: str) -> None:
    ours, theirs = (importlib.import_module(f"{lib}.nn.modules.{file}") for lib in ("pyflame", "torch"))
    public = [n for n in getattr(theirs, "__all__", []) if hasattr(pf.nn, n)]
    assert public
    assert all(getattr(ours, n) is getattr(pf.nn, n) for n in public)
    with pytest.raises(AttributeError):
        ours.NoSuchLayer


def test_files_of_layers_list_them() -> None:
    """Programs look classes up in `vars(nn.modules.activation)`, by names that users give."""
    for file in ("activation", "batchnorm", "container", "conv", "dropout", "loss", "normalization", "pooling", "rnn"):
        ours, theirs = (vars(importlib.import_module(f"{lib}.nn.modules.{file}")) for lib in ("pyflame", "torch"))
        wanted = {name for name in theirs["__all__"] if hasattr(pf.nn, name)}
        assert wanted == set(ours["__all__"]), file
        assert all(ours[name] is getattr(pf.nn, name) for name in wanted)


def test_base_classes() -> None:
    from pyflame.nn.modules.batchnorm import _BatchNorm
    from pyflame.nn.modules.conv import _ConvNd
    from pyflame.nn.modules.utils import _pair

    assert isinstance(pf.nn.BatchNorm2d(3), _BatchNorm) and not isinstance(pf.nn.LayerNorm(3), _BatchNorm)
    assert isinstance(pf.nn.Conv1d(1, 1, 1), _ConvNd) and isinstance(pf.nn.ConvTranspose2d(1, 1, 1), _ConvNd)
    assert _pair(3) == (3, 3) and _pair([1, 2]) == (1, 2)


def test_jit_is_a_module_too() -> None:
    from pyflame.jit import Final, annotate, script
    from pyflame.jit.annotations import BroadcastingList2, List

    assert BroadcastingList2[int] == List[int] and pf.jit._script_if_tracing(pf.relu) is pf.relu
    assert script is pf.jit.script and annotate(List[int], [1]) == [1] and Final is not None
    assert pf.jit(lambda x: x * 2)(pf.ones(2)).tolist() == [2, 2]


CLOSE = [
    ([1.0, 2.0], [1.0, 2.0], {}),
    ([1.0, 2.0], [1.0, 2.00001], {}),
    ([1.0, 2.0], [1.0, 2.1], {}),
    ([1.0], [1.0, 2.0], {}),
    ([1, 2], [1, 2], {}),
    ([1, 2], [1, 3], {}),
    ([1, 2], [1.0, 2.0], {}),
    ([1, 2], [1.0, 2.0], {"check_dtype": False}),
    ([float("nan")], [float("nan")], {}),
    ([float("nan")], [float("nan")], {"equal_nan": True}),
    ([1.0], [1.5], {"rtol": 0.0, "atol": 0.5}),
    (3.0, 3.0000001, {}),
]


@pytest.mark.parametrize(("a", "b", "options"), CLOSE)
def test_assert_close(a: Any, b: Any, options: dict[str, Any]) -> None:
    def verdict(lib: Any) -> bool:
        values = (a, b) if isinstance(a, float) else (lib.tensor(a), lib.tensor(b))
        nested = {"x": [values[0]]}, {"x": [values[1]]}
        for one, other in (values, nested):
            try:
                lib.testing.assert_close(one, other, **options)
            except AssertionError:
                return False
        return True

    assert verdict(pf) == verdict(torch)


def test_assert_close_says_where() -> None:
    with pytest.raises(AssertionError, match=r"\['w'\].*1 of 4.*\(1, 0\)"):
        pf.testing.assert_close({"w": pf.tensor([[1.0, 2], [9, 4]])}, {"w": pf.tensor([[1.0, 2], [3, 4]])})
    with pytest.raises(AssertionError, match="mine"):
        pf.testing.assert_close(pf.ones(1), pf.zeros(1), msg="mine")


def test_pytree() -> None:
    from torch.utils import _pytree as theirs

    from pyflame.utils import _pytree as ours

    pair = namedtuple("pair", "a b")
    for tree in ([1, (2, {"x": 3})], pair(1, [2]), OrderedDict(a=1, b=(2, 3)), 5, [], {"a": None}):
        leaves, spec = ours.tree_flatten(tree)
        assert leaves == theirs.tree_flatten(tree)[0]
        again = ours.tree_unflatten(leaves, spec)
        assert again == tree and type(again) is type(tree)
        assert spec.num_leaves == len(leaves)
    assert ours.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert ours.tree_map_only(int, lambda x: -x, [1, "a"]) == [-1, "a"]
    with pytest.raises(ValueError, match="2 leaves"):
        ours.tree_unflatten([1], ours.tree_flatten([1, 2])[1])


@pytest.mark.slow
def test_foreach() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.random((2, 3)).astype("f") + 0.5, rng.random(4).astype("f") + 0.5]

    def results(lib: Any) -> list[Any]:
        xs, ys = [[lib.tensor(a) for a in group] for group in (arrays, arrays[::1])]
        out = [lib._foreach_add(xs, 2.0), lib._foreach_mul(xs, ys), lib._foreach_sqrt(xs), lib._foreach_neg(xs)]
        out += [lib._foreach_add(xs, ys, alpha=0.5), lib._foreach_div(xs, [2.0, 4.0]), lib._foreach_maximum(xs, 1.0)]
        out.append(lib._foreach_addcmul(xs, xs, ys, 0.1))
        out += [lib._foreach_norm(xs, ord=1), lib._foreach_norm(xs, 3), lib._foreach_powsum(xs, 3)]
        out += [lib._foreach_mul(xs, scalar=2.0), lib._foreach_pow(xs, exponent=[2.0, 3.0])]
        out.append(lib._foreach_addcdiv(xs, tensor1=xs, tensor2=ys, scalars=[0.5, 0.25]))
        out.append(lib._foreach_addcdiv(xs, xs, ys, lib.tensor([0.5, 0.25])))
        for name, args in (
            ("add_", (1.0,)),
            ("mul_", (ys,)),
            ("sqrt_", ()),
            ("lerp_", (ys, 0.25)),
            ("clamp_min_", (1,)),
        ):
            getattr(lib, "_foreach_" + name)(xs, *args)
            out.append([x + 0 for x in xs])
        lib._foreach_zero_(xs)
        return [[t.numpy() for t in group] for group in [*out, xs]]

    for ours, theirs in zip(results(pf), results(torch), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(AttributeError, match="_foreach_nothing"):
        pf._foreach_nothing
    with pytest.raises(pf.ShapeError, match=r"\[_foreach_add\] expected 2 values"):
        pf._foreach_add([pf.ones(1), pf.ones(1)], [1.0])


@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d", "Linear"])
def test_fusion(kind: str) -> None:
    from pyflame.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

    layer = pf.nn.Linear(3, 4, bias=False) if kind == "Linear" else getattr(pf.nn, kind)(3, 4, 3)
    norm = pf.nn.BatchNorm1d(4) if kind == "Linear" else pf.nn.BatchNorm2d(4)
    x = pf.randn(5, 3) if kind == "Linear" else pf.randn(2, 3, 6, 6)
    norm(layer(x) * 3 + 1)
    pf.nn.init.uniform_(norm.weight, 0.5, 2.0)
    pf.nn.init.uniform_(norm.bias)
    layer.eval(), norm.eval()
    fused = fuse_linear_bn_eval(layer, norm) if kind == "Linear" else fuse_conv_bn_eval(layer, norm, "T" in kind)
    np.testing.assert_allclose(fused(x).detach().numpy(), norm(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(pf.ArgumentError, match="eval mode"):
        fuse_conv_bn_eval(layer.train(), norm)


def test_a_device_that_is_not_there_may_be_named() -> None:
    absent = pf.device("rocm:7")
    assert (absent.type, absent.index, absent == "rocm:7") == ("rocm", 7, True)
    with pytest.raises(pf.DeviceError):
        pf.ones(2, device=absent)
    with pytest.raises(pf.DeviceError), absent:
        pass
    assert pf.ones(1).device == "cpu"


def test_datasets_and_samplers_are_generic() -> None:
    from pyflame.utils.data import DataLoader, Dataset, Sampler, Subset

    class Mine(Sampler[int]):
        def __init__(self, data: list[int]) -> None:
            super().__init__(data)
            self.data = data

        def __iter__(self) -> Any:
            return iter(range(len(self.data)))

    loader: DataLoader[int] = DataLoader([1, 2, 3], sampler=Mine([1, 2, 3]), batch_size=2)
    assert [b.tolist() for b in loader] == [[1, 2], [3]]
    assert Dataset[int] is not None and Subset[int] is not None


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


@pytest.mark.slow(16)
def test_flex_attention() -> None:
    from torch.nn.attention import flex_attention as theirs

    from pyflame.nn.attention import flex_attention as ours

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, h, n, 8)).astype("f") for h, n in ((4, 6), (2, 9), (2, 9)))
    bias = rng.standard_normal(4).astype("f")

    def run(lib: Any, attend: Any, score: bool, mask: Any, gradients: bool) -> list[Any]:
        given = [lib.tensor(t, requires_grad=gradients) for t in (q, k, v)]
        slope = lib.tensor(bias)
        out, lse = attend(given, (lambda s, b, h, i, j: s * 2 + slope[h] * (i - j)) if score else None, mask)
        if gradients:
            (out.square().sum() + lse.sum()).backward()
        return [t.detach().numpy() for t in (out, lse)] + [t.grad.numpy() for t in given if gradients]

    def flex(module: Any) -> Any:
        def attend(given: Any, score: Any, mask: Any) -> Any:
            blocks = None if mask is None else module.create_block_mask(mask, 2, 4, 6, 9, device="cpu")
            return module.flex_attention(*given, score, blocks, scale=0.3, enable_gqa=True, return_lse=True)

        return attend

    def plain(given: Any, score: Any, mask: Any) -> Any:
        query, key, value = given
        scores = query @ key.repeat_interleave(2, 1).mT * 0.3
        at = [torch.arange(n).reshape([-1 if a == i else 1 for a in range(4)]) for i, n in enumerate(scores.shape)]
        scores = scores if score is None else score(scores, *at)
        scores = scores if mask is None else scores.masked_fill(~mask(*at), -torch.inf)
        return scores.softmax(-1) @ value.repeat_interleave(2, 1), scores.logsumexp(-1)

    def same(ours: list[Any], theirs: list[Any]) -> None:
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)

    window = ours.and_masks(causal, lambda b, h, i, j: i - j <= 2)
    for score, mask in ((False, None), (True, None), (True, causal), (False, causal)):
        same(run(pf, flex(ours), score, mask, True), run(torch, plain, score, mask, True))
        same(run(pf, flex(ours), score, mask, False), run(torch, flex(theirs), score, mask, False))
    given = [pf.tensor(t) for t in (q, k, v)]
    alone = ours.flex_attention(*given, scale=0.3, enable_gqa=True).numpy()
    same([alone], [ours.flex_attention(*given, scale=0.3, enable_gqa=True, return_lse=True)[0].numpy()])
    assert ours.create_mask(window, None, None, 4, 4).sum().item() == 9
    either = ours.or_masks(causal, lambda b, h, i, j: j == 3)
    assert ours.create_mask(either, 1, 1, 4, 4).sum().item() == 13
    part = ours.create_block_mask(causal, None, None, 256, 256)[:, :, 0]
    with pytest.raises(pf.ArgumentError, match="mask_mod"):
        ours.flex_attention(*[pf.ones(1, 1, 4, 8)] * 3, block_mask=part)
    with pytest.raises(pf.ShapeError, match="heads"):
        ours.flex_attention(pf.ones(1, 3, 4, 8), pf.ones(1, 2, 4, 8), pf.ones(1, 2, 4, 8))


def test_sdpa_kernel() -> None:
    from pyflame.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        assert pf.ones(1).sum().item() == 1
    with pytest.raises(pf.ArgumentTypeError, match="SDPBackend"), sdpa_kernel("math"):
        pass


FILES = [
    "distributed.device_mesh.init_device_mesh", "distributed.distributed_c10d.all_reduce", "distributed.nn.all_gather",
    "distributions.normal.Normal", "distributions.multivariate_normal.MultivariateNormal",
    "distributions.categorical.Categorical", "distributions.utils.broadcast_all", "futures.Future", "futures.wait_all",
    "hub._get_torch_home", "jit.Error", "jit.TracerWarning", "nn.init._no_grad_uniform_", "nn.modules.loss._Loss",
    "nn.modules.transformer._get_activation_fn", "nn.parallel.distributed.DistributedDataParallel",
    "nn.parallel.scatter_gather.scatter", "optim.optimizer.ParamsT", "serialization.DEFAULT_PROTOCOL",
    "serialization.MAP_LOCATION", "types._dtype", "utils._foreach_utils._group_tensors_by_device_and_dtype",
    "utils.checkpoint.get_device_states", "utils.data._utils.collate.default_collate",
    "utils.data._utils.collate.np_str_obj_array_pattern",
]  # fmt: skip


@pytest.mark.parametrize("path", FILES)
def test_paths_that_libraries_import(path: str) -> None:
    file, _, name = path.rpartition(".")
    for library in ("pyflame", "torch"):
        assert hasattr(importlib.import_module(f"{library}.{file}"), name)


def test_small_answers() -> None:
    assert pf._C._get_tracing_state() is None and not pf.onnx.is_in_onnx_export()
    assert pf.cuda._initialized == pf.cuda.is_initialized()
    assert pf.utils.checkpoint.get_device_states(pf.ones(2)) == ([], [])
    assert pf.nn.init._calculate_correct_fan(pf.ones(2, 3), "fan_out") == 2
    assert pf.binomial(pf.tensor([3.0, 4.0]), pf.tensor([0.0, 1.0])).tolist() == [0, 4]
    pf._check(True)
    with pytest.raises(RuntimeError, match="too small"):
        pf._check(False, lambda: "too small")


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_losses_of_ones_own(library: Any) -> None:
    from importlib import import_module

    loss = import_module(f"{library.__name__}.nn.modules.loss")

    class Squares(loss._Loss):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return (x * x).sum() if self.reduction == "sum" else (x * x).mean()

    class Weighted(loss._WeightedLoss):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return (self.weight * x).sum()

    x = library.tensor([1.0, 3.0])
    assert Squares()(x).item() == 5 and Squares(reduction="sum")(x).item() == 10
    assert isinstance(library.nn.MSELoss(), loss._Loss)
    weighted = Weighted(library.tensor([1.0, 2.0]))
    assert weighted(x).item() == 7 and "weight" in weighted.state_dict() and weighted.reduction == "mean"


@pytest.mark.filterwarnings("ignore:size_average")
@pytest.mark.parametrize("old", [(None, None), (True, None), (False, None), (None, False), (False, True)])
def test_old_words_for_reductions(old: tuple[Any, Any]) -> None:
    from pyflame.nn.modules.loss import _Loss

    assert _Loss(*old).reduction == torch.nn.modules.loss._Loss(*old).reduction


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_options_that_every_group_must_give(library: Any) -> None:
    from importlib import import_module

    required = import_module(f"{library.__name__}.optim.optimizer").required
    weight = library.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="lr"):
        library.optim.Optimizer([weight], {"lr": required})
    assert library.optim.Optimizer([{"params": [weight], "lr": 1}], {"lr": required}).param_groups[0]["lr"] == 1


def test_tensors_in_groups_of_one_dtype() -> None:
    def grouped(library: Any) -> Any:
        from importlib import import_module

        file = import_module(f"{library.__name__}.utils._foreach_utils")
        tensors = [library.ones(1), library.ones(2, dtype=library.float64), library.ones(3)]
        found = file._group_tensors_by_device_and_dtype([tensors, [None, None, tensors[0]]], with_indices=True)
        sizes = [[[t is not None and t.numel() for t in row] for row in rows] for rows, _ in found.values()]
        return sorted((str(kind).split(".")[-1], places) for (_, kind), (_, places) in found.items()), sorted(sizes)

    assert grouped(pf) == grouped(torch)


@pytest.mark.parametrize("diag", [-2, -1, 0, 1])
def test_triangles_and_vectors(diag: int) -> None:
    from pyflame.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

    theirs = torch.distributions.utils
    for size in (3, 4):
        ours, other = both(np.tril(np.arange(1.0, size * size + 1).reshape(size, size), diag))
        vector = theirs.tril_matrix_to_vec(other, diag)
        assert tril_matrix_to_vec(ours, diag).tolist() == vector.tolist()
        assert vec_to_tril_matrix(pf.tensor(vector.tolist()), diag).tolist() == other.tolist()


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_futures(library: Any) -> None:
    from importlib import import_module

    futures = import_module(f"{library.__name__}.futures")
    first, second = futures.Future(), futures.Future()
    both_done, failed = futures.collect_all([first, second]), second.then(lambda done: 1 // done.value())
    first.set_result(1)
    assert first.done() and not both_done.done()
    second.set_result(0)
    assert [done.value() for done in both_done.wait()] == [1, 0] == futures.wait_all([first, second])
    with pytest.raises((ZeroDivisionError, RuntimeError)):
        failed.wait()
