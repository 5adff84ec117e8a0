"""The references that are made from the code are current, and their examples do what they show."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame import ops
from pyflame.ir import OPS
from pyflame.tensor.dispatch import FUNCTIONS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_references_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("family", ops.__all__)
def test_examples_of_ops(family: str) -> None:
    parser, found = doctest.DocTestParser(), []
    runner = doctest.DocTestRunner(verbose=False)
    for name in FUNCTIONS:
        if name in OPS and OPS[name].fn.__module__ == f"pyflame.ops.{family}":
            test = parser.get_doctest(OPS[name].fn.__doc__ or "", {"pf": pf, "np": np}, name, None, None)
            runner.run(test, out=found.append)
    assert not found, "".join(found)
