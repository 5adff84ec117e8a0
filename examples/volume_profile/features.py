"""What the model sees of a session, and what it shall foretell.

All numbers are lengths in units of the session's range, or shares of its volume, so a session looks the same at any
price. Signed features and the target change sign when the chart is turned upside down; the others stay. A market
that falls is a market that rises seen from the other side, which doubles what there is to learn from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyflame as pf

if TYPE_CHECKING:
    from analyzer import VolumeProfile

SIGNED = ("close - POC", "close - VWAP", "close - open", "close - middle of range", "close - middle of value area",
          "volume above - below POC")  # fmt: skip
UNSIGNED = ("value area", "volume at POC", "spread of volume", "log of range")
NAMES = SIGNED + UNSIGNED


def session_range(profile: VolumeProfile) -> pf.Tensor:
    """(sessions,) from the lowest to the highest level, both included."""
    step = profile.prices[1] - profile.prices[0] if len(profile.prices) > 1 else 1.0
    return profile.high - profile.low + step


def features(profile: VolumeProfile) -> pf.Tensor:
    """(sessions, len(NAMES)) float32."""
    p, size = profile, session_range(profile)
    share = p.volume / p.total.unsqueeze(1)
    away = p.prices - p.poc.unsqueeze(1)
    spread = (share * pf.square(p.prices - p.vwap.unsqueeze(1))).sum(1).sqrt()
    lengths = [
        p.close - p.poc,
        p.close - p.vwap,
        p.close - p.open,
        p.close - (p.high + p.low) / 2,
        p.close - (p.value_high + p.value_low) / 2,
        (share * pf.sign(away)).sum(1) * size,
        p.value_high - p.value_low,
        share.amax(1) * size,
        spread,
        pf.log(size) * size,
    ]
    return (pf.stack(lengths, 1) / size.unsqueeze(1)).to(pf.float32)


def next_displacement(profile: VolumeProfile) -> pf.Tensor:
    """(sessions - 1,) float32: how far the next session's POC lies above this session's close."""
    return ((profile.poc[1:] - profile.close[:-1]) / session_range(profile)[:-1]).to(pf.float32)


def mirrored(x: pf.Tensor, y: pf.Tensor) -> tuple[pf.Tensor, pf.Tensor]:
    """The sessions and, after them, the same ones upside down."""
    sign = pf.tensor([-1.0] * len(SIGNED) + [1.0] * len(UNSIGNED))
    return pf.cat([x, x * sign]), pf.cat([y, -y])
