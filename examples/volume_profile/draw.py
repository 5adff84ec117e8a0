"""A session's profile as bars: text for the terminal, SVG in a page of HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzer import VolumeProfile


def rows(profile: VolumeProfile, number: int, most: int = 30) -> list[tuple[float, float, str]]:
    """(price, volume, mark) from the highest price down, at most about `most` rows: levels are joined to fit."""
    prices, volume = profile.prices.numpy(), profile.volume.numpy()[number]
    low, high = (int(abs(prices - t.numpy()[number]).argmin()) for t in (profile.low, profile.high))
    step = -(-(high - low + 1) // most)
    out = []
    for top in range(high, low - 1, -step):
        bottom = max(top - step + 1, low)
        inside = [
            name
            for name, price in (("POC", profile.poc), ("close", profile.close), ("open", profile.open))
            if abs(prices[bottom : top + 1] - price.numpy()[number]).min() <= (prices[1] - prices[0]) / 2
        ]
        in_area = (
            prices[top] >= profile.value_low.numpy()[number] and prices[bottom] <= profile.value_high.numpy()[number]
        )
        mark = ("value area " if in_area else "") + " ".join(inside)
        out.append((float(prices[bottom]), float(volume[bottom : top + 1].sum()), mark.strip()))
    return out


def text(profile: VolumeProfile, number: int, width: int = 40) -> str:
    """One line per row: price, bar and what lies there. Levels of the value area have full bars."""
    table = rows(profile, number)
    most = max(volume for _, volume, _ in table) or 1.0
    lines = [f"session {profile.sessions[number]}: volume {profile.total.numpy()[number]:,}"]
    for price, volume, mark in table:
        bar = ("█" if mark.startswith("value area") else "░") * round(volume / most * width)
        lines.append(f"{price:10.2f} {bar:{width}} {mark.removeprefix('value area').strip()}".rstrip())
    return "\n".join(lines)


def page(profile: VolumeProfile, number: int) -> str:
    """The same as a page of its own."""
    table = rows(profile, number, most=80)
    most = max(volume for _, volume, _ in table) or 1.0
    parts = []
    for at, (price, volume, mark) in enumerate(table):
        colour = "#d9730d" if "POC" in mark else "#f2b37f" if mark.startswith("value area") else "#ccc"
        label = html.escape(f"{price:.2f}: {volume:,.0f} {mark}".strip())
        parts.append(
            f'<rect x="70" y="{12 * at}" width="{volume / most * 600:.1f}" height="11" fill="{colour}">'
            f'<title>{label}</title></rect><text x="62" y="{12 * at + 9}" text-anchor="end">{price:.2f}</text>'
        )
    title = html.escape(f"Volume profile of session {profile.sessions[number]}")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
        f'<svg width="700" height="{12 * len(table)}" font-family="system-ui" font-size="10" role="img" '
        f'aria-label="{title}">{"".join(parts)}</svg></html>'
    )
