"""torch.onnx by its path: said plainly to be missing."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import NotSupportedError

__all__ = ["export"]


def export(*args: Any, **kwargs: Any) -> Any:
    """Raises: there is no ONNX export.

    >>> pf.onnx.export(None, (), "model.onnx")    # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    pyflame.core.errors.NotSupportedError: [onnx] ...
    """
    raise NotSupportedError(
        "[onnx] expected another format but PyFlame has no ONNX export; pf.aot compiles ahead of time"
    )
