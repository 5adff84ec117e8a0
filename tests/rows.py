"""Calls of jitted functions by rows (transform/jitted_call.py), and evaluations by rows (engine/known.py): whether one
is, and what it gives."""

from __future__ import annotations

from typing import Any

from pyflame.engine import known, native
from pyflame.transform import jitted_call
from pyflame.transform.jitted_call import MISSED


def by_row(jitted: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call gives that is made in C; it fails where it was left to Python."""
    out = jitted._rows.call(args, kwargs)
    assert out is not MISSED, "left to Python"
    return out


def left_to_python(jitted: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether C leaves a call to Python. It has been made if not."""
    return jitted._rows.call(args, kwargs) is MISSED


def in_python(monkeypatch: Any) -> None:
    """Have no rows, as without a compiler or without the GIL."""
    monkeypatch.setattr(jitted_call, "_call", None)  # of all functions
    monkeypatch.setattr(jitted_call.native, "caller_of", lambda *_: None)


def said_of_each(monkeypatch: Any) -> list[int]:
    """What C says of each evaluation from now on."""
    native.load()
    in_c, out = known.in_c, []
    assert in_c is not None

    def noted(*args: Any) -> int:
        out.append(in_c(*args))
        return out[-1]

    monkeypatch.setattr(known, "in_c", noted)
    monkeypatch.setattr("pyflame.engine.evaluate.misses.count", 0)
    return out
