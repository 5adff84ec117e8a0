"""The peers, where they are installed: torch (eager and compiled), jax and onnxruntime."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def have(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def torch_has_bf16() -> bool:
    """Whether torch is here and has fast products of bfloat16 on this CPU: one of 2048 takes it minutes otherwise."""
    if not have("torch"):
        return False
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def torch_on(device: str) -> Iterator[None]:
    """Have torch make tensors on a device where a program names none. Its default device would do so too, in Python at
    every call, which takes as long as the call."""
    import torch

    if not device.startswith("cuda"):
        yield
        return
    torch.cuda.set_device(device if ":" in device else 0)
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    try:
        yield
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)


def torch_tensor(array: np.ndarray[Any, Any], device: str = "cpu") -> Any:
    """A copy of an array. NumPy's bfloat16 is nothing that torch knows: it goes there as int16."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).to(device, copy=True).view(torch.bfloat16)
    return torch.from_numpy(array).to(device, copy=True)


def torch_contenders(
    fn: Callable[..., Any], *arrays: Any, compiled: bool = True, device: str = "cpu"
) -> dict[str, Callable[[], Any]]:
    """fn(torch, *tensors) eager and through torch.compile. On a GPU the calls do not wait."""
    if not have("torch"):
        return {}
    import torch

    tensors = [torch_tensor(a, device) for a in arrays]
    out: dict[str, Callable[[], Any]] = {"torch": lambda: fn(torch, *tensors)}
    if compiled:
        fused = torch.compile(lambda *t: fn(torch, *t))
        out["torch.compile"] = lambda: fused(*tensors)
    return out


def jax_contender(fn: Callable[..., Any], *arrays: Any, blocking: bool = True) -> dict[str, Callable[[], Any]]:
    """fn(jax, jnp, *arrays) through jax.jit. `blocking`: a call waits for its result."""
    if not have("jax"):
        return {}
    import jax
    import jax.numpy as jnp

    values = [jnp.asarray(a) for a in arrays]
    jitted = jax.jit(lambda *v: fn(jax, jnp, *v))
    return {"jax.jit": (lambda: jax.block_until_ready(jitted(*values))) if blocking else (lambda: jitted(*values))}


def onnx_contender(nodes: list[Any], inputs: dict[str, Any], constants: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """ONNX nodes over inputs 'x', ... to output 'y', run by onnxruntime on all cores."""
    if not (have("onnx") and have("onnxruntime")):
        return {}
    import onnx
    import onnxruntime

    value = [onnx.helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, list(v.shape)) for k, v in inputs.items()]
    result = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    initial = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = onnx.helper.make_graph(nodes, "bench", value, result, initial)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {"onnxruntime": lambda: session.run(None, inputs)}
