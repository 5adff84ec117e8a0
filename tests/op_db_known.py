"""What tests/op_db.py finds and what stays: (kinds, names, what) as regular expressions, below the reason."""

from __future__ import annotations

# Ops whose values are drawn, or left as they are found in memory: their shapes and dtypes are compared.
RANDOM = frozenset(
    (
        "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
        "log_normal", "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout",
        "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
        "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "normal", "rand_like", "randint", "randint_like",
        "randn", "randn_like", "uniform",
    )
)  # fmt: skip

KNOWN: tuple[tuple[str, str, str], ...] = ()
