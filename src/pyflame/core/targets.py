"""Known targets by name. LDS is what one workgroup may use; facts from AMD's GPU specifications."""

from __future__ import annotations

from pyflame.core.device import Target

KIB = 1024


def _gfx(name: str, wave: int, units: int, matrix: str = "", fp8: str = "", lds: int = 64) -> Target:
    return Target(name, "hip", (), units, wave, lds * KIB, matrix, fp8)


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("cpu", "c", (), 2),
        _gfx("gfx906", 64, 60),
        _gfx("gfx908", 64, 120, "mfma"),
        _gfx("gfx90a", 64, 110, "mfma"),
        _gfx("gfx942", 64, 304, "mfma", "fnuz"),
        _gfx("gfx950", 64, 256, "mfma", "ocp", lds=160),
        _gfx("gfx1030", 32, 40),
        _gfx("gfx1100", 32, 48, "wmma"),
        _gfx("gfx1151", 32, 20, "wmma"),
        _gfx("gfx1200", 32, 16, "wmma", "ocp"),
        _gfx("gfx1201", 32, 32, "wmma", "ocp"),
        Target("sm_90", "cuda", (), 132, 32, 227 * KIB, "wgmma", "ocp"),
    )
}
