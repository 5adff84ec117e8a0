"""The examples in the docstrings of nn run and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn

MODULES = [m.name for m in pkgutil.walk_packages(nn.__path__, "pyflame.nn.")]


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(
        module, extraglobs={"pf": pf, "nn": nn, "np": np}, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0
