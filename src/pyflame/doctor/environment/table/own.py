"""PyFlame's own variables, as `core/knobs.py` has them."""

from __future__ import annotations

from pyflame.core.knobs import ALL
from pyflame.doctor.environment.variable import Variable

VARIABLES = tuple(
    Variable(
        knob.name, "PyFlame", knob.doc, "a whole number" if knob.default.isdigit() else "", knob.default,
        r"\s*-?\d+\s*" if knob.default.isdigit() else "", source="docs/knobs.md",
    )
    for knob in ALL
)  # fmt: skip
