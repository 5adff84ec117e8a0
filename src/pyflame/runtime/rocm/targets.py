"""From an AMD GPU's own words to a Target: its gfx name, known or derived from its family."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

from pyflame.core.device import Target
from pyflame.core.errors import AMDConfigurationError
from pyflame.core.targets import TARGETS
from pyflame.runtime.gpu.driver import DeviceProperties

# A known relative, by the major and minor number: the same instructions, matrix ones too.
_RELATIVES = {
    (9, 4): "gfx942",
    (9, 5): "gfx950",
    (10, 3): "gfx1030",
    (11, 0): "gfx1100",
    (11, 5): "gfx1151",
    (12, 0): "gfx1201",
}
# Else by the major number alone: the same model of waves and memory, but nothing taken for granted beyond it.
_ELDERS = {9: "gfx906", 10: "gfx1030", 11: "gfx1100", 12: "gfx1201"}


def plain(arch: str) -> str:
    """A gfx name without the features behind it.

    >>> plain("gfx90a:sramecc+:xnack-")
    'gfx90a'
    """
    return arch.split(":", 1)[0].strip()


def numbers(name: str) -> tuple[int, int, int] | None:
    """Major, minor and stepping of a gfx name; the last two are hexadecimal digits.

    >>> numbers("gfx90a"), numbers("gfx1100")
    ((9, 0, 10), (11, 0, 0))
    """
    found = re.fullmatch(r"gfx(\d{1,2})([0-9a-f])([0-9a-f])", name)
    return (int(found[1]), int(found[2], 16), int(found[3], 16)) if found else None


def memory_transfers(name: str) -> int:
    """How often a line of the memory bus changes per clock that HIP tells: 2 for HBM2, 4 for HBM3 and HBM3E, 16 for
    GDDR6, whose clock is told as an eighth of its data clock. 0 for what is not known.

    >>> memory_transfers("gfx942"), memory_transfers("gfx1100")
    (4, 16)
    """
    parts = numbers(name) or (0, 0, 0)
    if parts[0] == 9:
        return 4 if parts[1] in (4, 5) else 2
    return 16 if parts[:2] in ((10, 1), (10, 3), (11, 0), (12, 0)) else 0


def family_target(name: str) -> Target:
    """The Target of a gfx name: known, or derived from its family with a warning."""
    known = TARGETS.get(name)
    if known is not None and known.language == "hip":
        return known
    parts = numbers(name)
    if parts is None or parts[0] not in _ELDERS:
        raise AMDConfigurationError(
            f"[rocm] expected a GPU of gfx9 or newer but got {name or 'no gfx name'!r}; PyFlame's kernels need waves "
            "and memory of that model. Set HSA_OVERRIDE_GFX_VERSION only for a GPU whose instructions are the same"
        )
    relative = _RELATIVES.get(parts[:2])
    if relative is not None:
        derived = replace(TARGETS[relative], name=name)
    else:
        derived = replace(TARGETS[_ELDERS[parts[0]]], name=name, matrix_core="", fp8="")
    kin = relative or f"{_ELDERS[parts[0]]}, without matrix cores"
    warnings.warn(
        f"PyFlame does not know {name} and takes it for a relative of {kin}. Kernels are not tuned for it.",
        RuntimeWarning,
        stacklevel=2,
    )
    return derived


def target_of(properties: DeviceProperties) -> Target:
    """The Target of a device: what its name implies, and the sizes it reports where it reports them."""
    known = family_target(plain(properties.arch_full))
    return replace(
        known,
        workers=properties.compute_units or known.workers,
        wave_size=properties.wave_size or known.wave_size,
        lds_bytes=properties.lds_per_block or known.lds_bytes,
    )
