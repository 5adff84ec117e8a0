"""Runs programs in a process of its own: seeds or programs come in as lines of JSON, what came of them goes out.

The line that announces a program is written before it runs, so that whoever started this process knows which one
killed it.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from pyflame.ir import recipe
from tests.programs.compare import Expected, difference, expected
from tests.programs.draw import draw
from tests.programs.program import Program, Unfit, from_json, to_json
from tests.programs.run import PyFlame, execute

ROOT = str(Path(__file__).parents[2])


def open_device(name: str) -> str:
    """The name PyFlame knows a device by; `emulated` is made here."""
    if name != "emulated":
        return name
    from pyflame.core.device import DeviceId
    from pyflame.engine import devices
    from tests.emulated import emulated_device

    place = DeviceId("rocm", 40)
    devices._open[place] = emulated_device(40, "gfx1100")
    return str(place)


def signature(error: BaseException) -> str:
    """The error's type, its place in PyFlame, and what it says without numbers: equal for equal causes."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "/pyflame/" in f.filename]
    place = (
        f"{Path(inside[-1].filename).relative_to(Path(inside[-1].filename).parents[1])}:{inside[-1].name}"
        if inside
        else ""
    )
    said = next((line for line in str(error).splitlines() if "error:" in line), str(error).split("\n")[0])
    said = said.split("error:")[-1]
    return f"{type(error).__name__} in {place}: {re.sub(r'[0-9]+', '#', said)[:110]}"


def _run(program: Program, wanted: list[Expected], device: str) -> str | None:
    """What differs. Calls that come again are made in C from the fourth time on, if the first is not too seldom."""
    before, recipe.SELDOM = recipe.SELDOM, 1
    try:
        for _ in range(4 if program.mode in ("lazy", "again") else 1):
            found = difference(execute(program, PyFlame(program.mode, device)), wanted)
            if found is not None:
                return found
        return None
    finally:
        recipe.SELDOM = before


def judge(program: Program, wanted: list[Expected], device: str) -> tuple[str, str]:
    """("ok", "") or the signature of what is wrong and the details."""
    try:
        found = _run(program, wanted, device)
    except Exception as error:
        return signature(error), "".join(traceback.format_exception(error)[-4:])[-3000:]
    if found is None:
        return "ok", ""
    kind = found.split(":")[1].split()[0] if "dtype" in found or "shape" in found else "numbers"
    return f"wrong {kind}", found


def answer(task: dict[str, Any], device: str) -> dict[str, Any]:
    if "program" in task:
        program = from_json(task["program"])
        try:
            wanted = expected(program)
        except (Unfit, RuntimeError, ValueError, IndexError, TypeError, KeyError) as error:
            return {"outcome": "unfit", "details": f"{type(error).__name__}: {error}"}
    else:
        drawn = draw(task["seed"], task["small"], tuple(task["modes"]))
        if drawn is None:
            return {"outcome": "unfit"}
        program, wanted = drawn
    print(json.dumps({"runs": to_json(program)}), flush=True)
    outcome, details = judge(program, wanted, device)
    return {"outcome": outcome, "details": details}


def main() -> None:
    warnings.simplefilter("ignore")
    device = open_device(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), device)), flush=True)


if __name__ == "__main__":
    main()
