"""llama.cpp's matrix products, called through ctypes: what encoded_linear is compared with.

PYFLAME_GGML names the folder of libggml*.so, as `npm install node-llama-cpp` leaves it in
node_modules/@node-llama-cpp/<platform>/bins/<platform>. Weights lie in the buffer type that llama.cpp would choose: the
repacked one where that serves the encoding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_new_tensor_2d": (c_void_p, [c_void_p, c_int, c_int64, c_int64]),
    "ggml_mul_mat": (c_void_p, [c_void_p, c_void_p, c_void_p]),
    "ggml_new_graph": (c_void_p, [c_void_p]),
    "ggml_build_forward_expand": (None, [c_void_p, c_void_p]),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, [c_void_p, c_void_p]),
    "ggml_backend_tensor_set": (None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_graph_compute": (c_int, [c_void_p, c_void_p]),
    "ggml_backend_dev_by_type": (c_void_p, [c_int]),
    "ggml_backend_dev_init": (c_void_p, [c_void_p, c_char_p]),
    "ggml_backend_dev_backend_reg": (c_void_p, [c_void_p]),
    "ggml_backend_dev_buffer_type": (c_void_p, [c_void_p]),
    "ggml_backend_dev_supports_op": (c_bool, [c_void_p, c_void_p]),
    "ggml_backend_reg_get_proc_address": (c_void_p, [c_void_p, c_char_p]),
    "ggml_backend_load_all_from_path": (None, [c_char_p]),
    "ggml_backend_buft_alloc_buffer": (c_void_p, [c_void_p, c_size_t]),
    "ggml_backend_buffer_free": (None, [c_void_p]),
}
_F32 = 0


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class Ggml:
    """The CPU backend of the libraries in a folder, with so many threads."""

    def __init__(self, folder: Path, threads: int) -> None:
        names = ("libggml-base.so", *sorted(p.name for p in folder.glob("libggml.*so*")))
        self._libraries = [ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in names]
        self._bind("ggml_init", c_void_p, [_InitParams])
        for name, (result, arguments) in _PROTOTYPES.items():
            self._bind(name, result, arguments)
        self.ggml_backend_load_all_from_path(str(folder).encode())
        self._device = self.ggml_backend_dev_by_type(0)
        self._backend = self.ggml_backend_dev_init(self._device, None)
        self._registry = self.ggml_backend_dev_backend_reg(self._device)
        set_threads = self._function(b"ggml_backend_set_n_threads", None, [c_void_p, c_int])
        set_threads(self._backend, threads)

    def _bind(self, name: str, result: Any, arguments: list[Any]) -> None:
        function = next(getattr(library, name) for library in self._libraries if hasattr(library, name))
        function.restype, function.argtypes = result, arguments
        setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ggml has no {name}")

    def _function(self, name: bytes, result: Any, arguments: list[Any]) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(self.ggml_backend_reg_get_proc_address(self._registry, name))

    def _context(self) -> int:
        return int(self.ggml_init(_InitParams(1 << 20, None, True)))

    def _repacking(self) -> list[int]:
        extra = self._function(b"ggml_backend_dev_get_extra_bufts", POINTER(c_void_p), [c_void_p])(self._device)
        found: list[int] = []
        while extra and extra[len(found)]:
            found.append(extra[len(found)])
        return found

    def _place(self, context: int, weight: int, product: int, kinds: list[int]) -> None:
        """Memory for the weight, of the first kind that the product can be computed from, as llama.cpp chooses."""
        holder = c_void_p.from_address(weight + 8)  # ggml_tensor.buffer
        for kind in kinds:
            trial = self.ggml_backend_buft_alloc_buffer(kind, 0)
            holder.value = trial
            fits = self.ggml_backend_dev_supports_op(self._device, product)
            holder.value = None
            self.ggml_backend_buffer_free(trial)
            if fits:
                self.ggml_backend_alloc_ctx_tensors_from_buft(context, kind)
                return

    def linear(self, kind: int, data: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> Callable[[], None]:
        """A function that multiplies float32 x (rows, width) with weights of a GGUF type (out, row bytes)."""
        (rows, width), out = x.shape, len(data)
        weights, products = self._context(), self._context()
        w = self.ggml_new_tensor_2d(weights, kind, width, out)
        inputs = self.ggml_new_tensor_2d(products, _F32, width, rows)
        y = self.ggml_mul_mat(products, w, inputs)
        graph = self.ggml_new_graph(products)
        self.ggml_build_forward_expand(graph, y)
        plain = self.ggml_backend_dev_buffer_type(self._device)
        self._place(weights, w, y, [*self._repacking(), plain])
        self.ggml_backend_alloc_ctx_tensors_from_buft(products, plain)
        self.ggml_backend_tensor_set(w, data.ctypes.data, 0, data.nbytes)
        self.ggml_backend_tensor_set(inputs, x.ctypes.data, 0, x.nbytes)

        def run() -> None:
            self.ggml_backend_graph_compute(self._backend, graph)

        return run
