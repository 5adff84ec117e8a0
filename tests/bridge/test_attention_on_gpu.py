"""The attention ops that torch's GPUs dispatch to, traced by their shapes alone and run here on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import scaled_dot_product_attention

import pyflame as pf
from pyflame.bridge.torch.attention_on_gpu import flash_backward
from pyflame.bridge.torch.backend import drop_unread
from pyflame.bridge.torch.options import Options
from pyflame.bridge.torch.program import Program
from pyflame.bridge.torch.split import fallen
from pyflame.ir.graph import Graph

aten = torch.ops.aten
Q, KV = (2, 4, 8, 16), (2, 4, 12, 16)


def flash(q: Any, k: Any, v: Any, _: Any, g: Any) -> Any:
    out, sums, a, b, m, n, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, scale=0.3)
    back = aten._scaled_dot_product_flash_attention_backward
    return out, *back(g, q, k, v, out, sums, a, b, m, n, 0.0, True, seed, offset, scale=0.3)


def efficient(q: Any, k: Any, v: Any, bias: Any, g: Any) -> Any:
    out, sums, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)
    back = aten._scaled_dot_product_efficient_attention_backward
    return out, *back(g, q, k, v, bias, out, sums, seed, offset, 0.0, [True, True, True, True])


def cudnn(q: Any, k: Any, v: Any, bias: Any, g: Any) -> Any:
    out, sums, a, b, m, n, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True)
    back = aten._scaled_dot_product_cudnn_attention_backward
    return out, *back(g, q, k, v, out, sums, seed, offset, bias, a, b, m, n, 0.0, False)


@pytest.mark.parametrize(("fn", "options"), [(flash, {"is_causal": True, "scale": 0.3}), (efficient, {}), (cudnn, {})])
def test_forward_and_backward(fn: Any, options: dict[str, Any]) -> None:
    q, k, v = torch.randn(Q), torch.randn(KV), torch.randn(KV)
    bias, g = torch.randn(2, 4, 8, 12), torch.randn(Q)
    graph: GraphModule = make_fx(fn, tracing_mode="fake")(q, k, v, bias, g)
    drop_unread(graph)
    program = Program(graph, Options())
    assert not fallen(program.why)
    got = program([q, k, v, bias, g])
    leaves = [t.clone().requires_grad_() for t in (q, k, v, bias)]
    mask = None if options else leaves[3]
    want = scaled_dot_product_attention(*leaves[:3], attn_mask=mask, **options)
    grads = torch.autograd.grad(want, leaves[: len(got) - 1], g)
    torch.testing.assert_close(list(got), [want.detach(), *grads])


def test_gradients_read_the_result_that_the_forward_pass_left() -> None:
    """And do not compute it again."""
    q, k, v, out, g = (pf.randn(2, 4, 8, 16) for _ in range(5))
    found = flash_backward(g, q, k, v, out, *[None] * 5, 0.0, True, None, None)
    order = Graph([t._node for t in found]).order
    assert out._node in order and not any(node.op.name == "attention" for node in order)
