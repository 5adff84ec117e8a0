"""`pyflame profile script.py [args]`: run a script, and show what it launched and how long that took."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from pathlib import Path

import pyflame as pf
from pyflame import profiling
from pyflame.core.device import parse_device
from pyflame.core.errors import PyFlameError

_FOLDER = Path("pyflame-profile")


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyflame profile", description=__doc__, usage="pyflame profile [options] (script.py | -m module) [args]"
    )
    parser.add_argument("--device", help="where to run, such as cpu or rocm:0 (default: the current device)")
    parser.add_argument("--out", type=Path, default=_FOLDER, help=f"folder of what is written (default {_FOLDER})")
    parser.add_argument("--rows", type=int, default=30, help="kernels to print (default 30)")
    parser.add_argument("--shapes", action="store_true", help="tell launches with different results apart")
    parser.add_argument("--graphs", action="store_true", help="time replays of captured graphs as one")
    parser.add_argument(
        "--limit", action="store_true", help="measure what the memory of the devices can do, to compare with"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module, as in python -m")
    parser.add_argument("script", help="the script, or the module's name")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="what the script is given")
    options = parser.parse_args(argv)
    if not options.module and not Path(options.script).is_file():
        parser.error(f"expected a script but there is no file {options.script}")
    return options


def run(argv: list[str]) -> int:
    options = options_from(argv)
    try:
        if options.device:
            pf.set_device(options.device)
        with pf.profile(graphs=options.graphs) as profile:
            code = _run_script(options)
    except PyFlameError as error:
        print(f"pyflame profile: {error}", file=sys.stderr)
        return 1
    sys.stdout.flush()
    if options.limit:
        for name in profile.device_seconds:
            if parse_device(name).kind != "null":
                profiling.measure_limit(name)
    print(profile.table(options.rows, options.shapes), end="")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, what in (("trace.json", "for ui.perfetto.dev"), ("report.html", "a page"), ("table.txt", "all kernels")):
        print(f"{profile.save(options.out / name)}  {what}")
    return code


def _run_script(options: argparse.Namespace) -> int:
    """Run it as Python would; gives its exit status. An error is shown and ends it, not the report."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [options.script, *options.args]
    try:
        if options.module:
            sys.path.insert(0, "")
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(options.script).resolve().parent))
            runpy.run_path(options.script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # KeyboardInterrupt too: what ran until then is what the user asked for
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0
