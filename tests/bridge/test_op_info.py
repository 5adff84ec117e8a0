"""PyTorch's samples of its ops through the compiled path: of a few ops in each run, of all in the thorough one.

In processes of their own: torch's tables of samples freeze `torch.backends` for the process that imports them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import pytest

from tests.children import printed

_SWEEP = "import sys; from tests.bridge.sweep import main; main(sys.argv[1:])"
FEW = ("gather", "nn.functional.conv2d", "sort")


@pytest.mark.slow
@pytest.mark.parametrize("names", [FEW, pytest.param((), marks=pytest.mark.thorough)], ids=["few", "all"])
def test_samples(names: Sequence[str]) -> None:
    """No result differs from eager torch's, nothing raises, and 95% of what there is to run runs wholly here."""
    text = printed(_SWEEP, *names)
    counts = ast.literal_eval(next(line for line in text.splitlines() if line.startswith("{")))
    assert not {"differs", "raises"} & counts.keys(), text
    assert counts["here"] >= 0.95 * (counts["here"] + counts.get("fell back", 0))
