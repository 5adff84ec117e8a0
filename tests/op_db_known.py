"""What tests/op_db.py finds and what stays: (kinds, names, what) as regular expressions, below the reason.

What a user may meet of it stands in the guide too (tools/differences.py).
"""

from __future__ import annotations

# Ops whose values are drawn, or left as they are found in memory: their shapes and dtypes are compared.
RANDOM = frozenset(
    (
        "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
        "log_normal", "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout",
        "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
        "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
        "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "normal", "rand_like", "randint", "randint_like",
        "randn", "randn_like", "uniform",
    )
)  # fmt: skip

_SPARSE = r"masked\..*|sparse\..*|(Tensor\.)?to_sparse|_segment_reduce"
_INSIDE = (
    r"_.*|torch\._.*|torch\.ops\..*|jiterator_.*|native_.*|(Tensor\.)?hash_tensor|slice|max_pool2d_with_indices_backward"
    r"|constant_pad_nd|grid_sampler_.*|Tensor\.__rdiv__|__rdiv__|(Tensor\.)?(chalf|conj_physical_|as_strided_)"
)

KNOWN: tuple[tuple[str, str, str], ...] = (
    # complex numbers have arithmetic, elementary functions, sums and products; other ops refuse them
    ("refused", ".*", "complex"),
    # names of PyTorch's own machinery, sparse and masked tensors, memory of any strides
    ("missing", _INSIDE, ""),
    ("missing|refused", _SPARSE, ""),
    ("missing|refused", r"(Tensor\.)?(new_empty_strided|empty_strided|empty_permuted)", ""),
    ("bare", "max_pool2d_with_indices_backward", "has no attribute"),
    # not there, and in the guide's table
    ("missing", r"special\..*|linalg\.ldl_.*|nn\.functional\.(fractional|linear_cross|multi_head).*", ""),
    # which of equals is taken is not said
    ("differs", r"(Tensor\.)?(topk|kthvalue|mode|sort|argsort|msort)", r"(int64|bool)\["),
    # arguments are copied for the comparison, so that they overlap and lie in memory otherwise than PyTorch's
    ("accepted", ".*", "unsupported operation|single memory location"),
    ("differs|refused", r"(Tensor\.)?as_strided", "storage_offset"),
    # out= takes every dtype that can hold the result
    ("accepted", ".*", "'out'.*(dtype|scalar type|Long tensor out)"),
    # numbers in place of tensors are taken, and a number that calls an operator's method itself is not thought of
    ("accepted", ".*", "torch raises ''"),
    ("bare", r"__r\w+__", "^2, "),
    # values of arguments are not looked at where that would evaluate them
    ("accepted", "cov", "cannot be negative"),
    # dtypes promote
    ("accepted", r"nn\.functional\.conv\dd", "should be the same"),
    # PyTorch's gradients that are not the function's: of triangles that are not read, of unnormalised probabilities, of
    # what was overwritten, of the imaginary part of a diagonal that is real
    ("differs", r"(Tensor\.)?cholesky_(inverse|solve)", "gradient"),
    ("differs", r"((Tensor|linalg)\.)?cholesky(_ex)?", r"complex128\[.*gradient"),
    ("differs", r"nn\.functional\.ctc_loss", "gradient"),
    ("differs", r"(Tensor\.)?as_strided_scatter", "gradient"),
    # results that do not depend on the argument have no gradient, where PyTorch's have zeros
    ("differs", r".*matrix_power|.*pinv(erse)?|linalg\.householder_product|orgqr|prod", "gradient: none"),
    # PyTorch's digits are lost: float32 sums of 1e4, weights in float32, one element that is its own mean
    ("differs", "logcumsumexp", r"float32\[.*gradient"),
    ("differs", "cov", "aweights"),
    ("differs", r"(nn\.functional\.|native_)?layer_norm", r"float32\[1\]"),
    ("differs", r"special\.bessel_[jy][01]", r"float64\["),
    # here digits are lost, in float32, where PyTorch solves and we have a pseudo-inverse
    ("differs", r"linalg\.lstsq", r"float32\[.*gradient"),
    # logarithms of complex numbers, which differ by whole turns
    ("differs", "logcumsumexp", r"complex128\["),
    # singular vectors of complex matrices, which differ by a phase
    ("differs", "svd", r"complex128\["),
    # random inside
    ("differs", r"nn\.functional\.multi_head_attention_forward", r"False, 0\.[1-9]"),
    ("differs", r"nn\.functional\.scaled_dot_product_attention", "'dropout_p', 0.[1-9]"),
    ("differs", "svd_lowrank|pca_lowrank", ""),
    # refused on purpose
    ("refused", r"nn\.functional\.(avg_pool\dd|local_response_norm)|avg_pool\dd", r"int64\["),
    ("refused", r"nn\.functional\.batch_norm", r"\[0\]"),
    ("refused", r"(Tensor\.)?norm", "'nuc'"),
    ("refused", "normal", "expected a standard deviation of at least 0"),
)
