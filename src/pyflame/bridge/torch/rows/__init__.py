"""Adapters: aten ops whose form differs from that of our public function, by family."""

from pyflame.bridge.torch.rows import (
    attention,
    creation,
    drawn,
    indexing,
    layers,
    matrices,
    pooling,
    reductions,
    resizing,
    shaping,
    special,
    transforms,
)
from pyflame.bridge.torch.rows.registry import EVALUATING, RANDOM, ROWS, UNUSED

# Ops that torch's decompositions would take apart, and that our catalogue has whole.
WHOLE = frozenset(
    (
        "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training", "native_dropout", "silu", "softplus", "mish", "logsumexp",
        "logaddexp", "baddbmm", "linalg_vector_norm", "upsample_nearest2d", "upsample_bilinear2d",
        "pixel_shuffle", "pixel_unshuffle", "im2col", "col2im", "reflection_pad1d", "reflection_pad2d",
        "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "rand", "randn",
        "rand_like", "randn_like", "bernoulli", "embedding", "avg_pool2d_backward", "reflection_pad1d_backward",
        "reflection_pad2d_backward", "embedding_dense_backward", "adaptive_max_pool2d", "_adaptive_avg_pool2d",
        "index_add", "tril", "triu", "roll", "flip", "logcumsumexp", "grid_sampler_2d", "std", "var",
        "var_mean", "std_mean", "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
        "gelu_backward",
    )
)  # fmt: skip

# Ops that say where in memory to read or write. Ours count in row-major order, whatever the tensor's strides.
BY_MEMORY = frozenset(("as_strided", "as_strided_copy", "as_strided_scatter"))

__all__ = [
    "BY_MEMORY", "EVALUATING", "RANDOM", "ROWS", "UNUSED", "WHOLE", "attention", "creation", "drawn", "indexing",
    "layers", "matrices", "pooling", "reductions", "resizing", "shaping", "special", "transforms",
]  # fmt: skip
