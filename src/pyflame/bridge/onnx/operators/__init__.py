"""ONNX's operators, one file per family. Importing this fills the table."""

from pyflame.bridge.onnx.operators import (  # noqa: F401
    attention,
    control,
    convolution,
    elementwise,
    indexing,
    linear_algebra,
    losses,
    norms,
    pooling,
    quantisation,
    random,
    recurrent,
    reductions,
    resizing,
    sequences,
    shapes,
    signals,
    vision,
)
