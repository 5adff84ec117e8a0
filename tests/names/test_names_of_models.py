"""Names that modelling code asks for: switches of attention, of compilers and of checkpoints."""

from functools import partial
from typing import Any

import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

BOTH = pytest.mark.parametrize("library", [pf, pytest.param(torch, marks=needs_torch)], ids=["pyflame", "torch"])


@BOTH
def test_switches_of_attention(library: Any) -> None:
    attention, switches = library.nn.attention, library.backends.cuda
    assert str(attention.SDPBackend.MATH) == "SDPBackend.MATH"
    before = switches.cudnn_sdp_enabled()
    switches.enable_cudnn_sdp(False)
    assert not switches.cudnn_sdp_enabled()
    switches.enable_cudnn_sdp(before)


@BOTH
def test_queries_and_decorators_of_compilers(library: Any) -> None:
    assert "inductor" in library.compiler.list_backends()
    assert not library._dynamo.external_utils.is_compiling()
    x = library.ones(2)
    library._dynamo.mark_static(x)
    library._dynamo.mark_dynamic(x, 0)

    @library.compiler.set_stance("force_eager")
    def double(x: Any) -> Any:
        return x * 2

    with library.compiler.set_stance("default"):
        assert double(x).tolist() == [2.0, 2.0]


@BOTH
def test_selective_checkpoints(library: Any) -> None:
    tools = library.utils.checkpoint

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return tools.CheckpointPolicy.PREFER_RECOMPUTE

    x = library.ones(2, requires_grad=True)
    contexts = partial(tools.create_selective_checkpoint_contexts, policy)
    with tools.set_checkpoint_debug_enabled(False):
        tools.checkpoint(lambda x: x.sin().cos(), x, use_reentrant=False, context_fn=contexts).sum().backward()
    expected = library.ones(2, requires_grad=True)
    expected.sin().cos().sum().backward()
    assert x.grad.tolist() == pytest.approx(expected.grad.tolist())


@BOTH
def test_a_missing_attribute_reads_as_in_python(library: Any) -> None:
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'zzz'"):
        _ = library.nn.Linear(1, 1).zzz
