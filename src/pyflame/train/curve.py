"""Curves over steps as a page of HTML with inline SVG, which needs nothing, or as PNG, which needs matplotlib.

The SVG is written here rather than by a library because it is all that a report of a run on a bare machine has.
"""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyflame.core.errors import ArgumentError

Series = Mapping[str, Sequence[tuple[float, float]]]
_COLOURS = ("#d9730d", "#2563eb", "#15803d", "#9333ea", "#be123c", "#0e7490")
_WIDTH, _HEIGHT = 760, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 44
_MOST_POINTS = 1500  # more than there are pixels


def _points(values: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """What can be drawn, thinned evenly; the last point stays."""
    finite = [(float(x), float(y)) for x, y in values if math.isfinite(x) and math.isfinite(y)]
    every = -(-len(finite) // _MOST_POINTS)
    return finite[::every] + ([finite[-1]] if every > 1 and (len(finite) - 1) % every else []) if finite else []


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) from low to high.

    >>> ticks(0.0, 10.0)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


class _Plot:
    """The area that curves are drawn in, just as large as their points need it."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        x0, x1 = min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=1.0)
        y0, y1 = min((y for _, y in points), default=0.0), max((y for _, y in points), default=1.0)
        self._x = x0, x1 if x1 > x0 else x0 + 1.0
        self._y = y0, y1 if y1 > y0 else y0 + (abs(y0) or 1.0) * 0.1

    def at_x(self, x: float) -> float:
        low, high = self._x
        return _LEFT + (x - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def at_y(self, y: float) -> float:
        low, high = self._y
        return _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self, x_label: str, y_label: str) -> Iterator[str]:
        for y in ticks(*self._y):
            at = self.at_y(y)
            yield f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="#e5e5e5"/>'
            yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y:.4g}</text>'
        for x in ticks(*self._x):
            yield f'<text x="{self.at_x(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:.6g}</text>'
        across, down = html.escape(x_label), html.escape(y_label)
        yield f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#888"/>'
        yield f'<text x="{(_LEFT + _WIDTH) // 2}" y="{_HEIGHT - 6}" text-anchor="middle">{across}</text>'
        yield f'<text transform="translate(14 {_HEIGHT // 2}) rotate(-90)" text-anchor="middle">{down}</text>'

    def curve(self, number: int, label: str, points: Sequence[tuple[float, float]]) -> Iterator[str]:
        """A line, its last point, and its entry in the legend."""
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        last = ""
        if points:
            x, y = points[-1]
            last = f" {y:.4g}"
            yield f'<circle cx="{self.at_x(x):.1f}" cy="{self.at_y(y):.1f}" r="3" fill="{colour}">'
            yield f"<title>{label}: {y:.6g} at {x:.6g}</title></circle>"
        top = _TOP + 8 + 18 * number
        yield f'<rect x="{_WIDTH - 190}" y="{top}" width="12" height="3" fill="{colour}"/>'
        yield f'<text x="{_WIDTH - 172}" y="{top + 5}">{label}{last}</text>'


def svg(series: Series, x_label: str = "step", y_label: str = "loss") -> str:
    """Curves with axes and a legend, as one <svg> element to put into any page.

    >>> svg({"train": [(0, 2.0), (10, 1.0)]}).startswith("<svg")
    True
    """
    drawn = {name: _points(values) for name, values in series.items()}
    plot = _Plot([point for points in drawn.values() for point in points])
    parts = [*plot.axes(x_label, y_label)]
    for number, (name, points) in enumerate(drawn.items()):
        parts += plot.curve(number, html.escape(name), points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="{html.escape(y_label)} over {html.escape(x_label)}" '
        f'font-family="system-ui" font-size="12">{"".join(parts)}</svg>'
    )


def page(series: Series, title: str = "loss", y_label: str = "loss") -> str:
    """A page of its own with the curves, without any outside resource."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        "<style>body{font:14px system-ui;margin:2em;color:#222}</style>"
        f"<h1>{html.escape(title)}</h1>{svg(series, y_label=y_label)}</html>"
    )


def check_png() -> None:
    """Say how to get matplotlib where it is missing."""
    try:
        import matplotlib  # noqa: F401  an extra: only PNG needs it
    except ImportError:
        raise ArgumentError(
            "[curve] expected matplotlib for a .png file but it is not installed; "
            "pip install 'pyflame-rocm[plots]', or write .html"
        ) from None


def png(series: Series, title: str = "loss", y_label: str = "loss") -> bytes:
    """The curves as a PNG file, drawn by matplotlib."""
    check_png()
    from matplotlib.figure import Figure  # not pyplot: no window system, no global state

    figure: Any = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, (name, values) in enumerate(series.items()):
        points = _points(values)
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, color=_COLOURS[number % len(_COLOURS)])
    axes.set(title=title, xlabel="step", ylabel=y_label)
    axes.grid(alpha=0.3)
    if series:
        axes.legend()
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()
