"""Draws programs, runs them and reports what is wrong, smallest first.

    python -m tests.programs --device cpu --count 1000 --seed 7
    python -m tests.programs --device sim:gfx942 --seconds 120 --save found

Devices: cpu, emulated (a GPU on the host), sim:gfx942 and the other simulated targets, cuda, rocm.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.programs.pool import Answer, Worker
from tests.programs.program import MODES, Program, from_json, to_json
from tests.programs.script import script
from tests.programs.shrink import shrink

EACH = 3  # failures of one signature that are shrunk: one bug must not take all the time


@dataclass
class Session:
    """What was run and found."""

    device: str
    small: bool
    modes: tuple[str, ...]
    sanitize: bool = False
    save: Path | None = None
    run: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    found: dict[str, tuple[Program, str, int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, worker: Worker, seed: int) -> None:
        answer = worker.ask({"seed": seed, "small": self.small, "modes": self.modes})
        program = from_json(answer.program) if answer.program else None
        with self.lock:
            self.run["unfit" if answer.outcome == "unfit" else "wrong" if answer.failed else "ok"] += 1
            if program is not None:
                self.run[program.mode] += 1
                self.kinds.update({s.kind for s in program.steps})
            if answer.failed:
                self.seen[answer.outcome] += 1
        if answer.failed and program is None:  # the generator itself broke
            print(f"\n=== seed {seed}: {answer.outcome}\n{answer.details}", flush=True)
        elif answer.failed and program is not None and not self.known(program, answer):
            self.keep(worker, seed, program, answer)

    def known(self, program: Program, answer: Answer) -> bool:
        """Whether enough findings are like this one: the same error, or wrong numbers from the same kinds of steps."""
        if not answer.outcome.startswith("wrong"):
            return self.seen[answer.outcome] > EACH
        kinds = {s.kind for s in program.steps}
        return any(self.seen[n] >= EACH and {s.kind for s in p.steps} <= kinds for n, (p, _, _) in self.found.items())

    def keep(self, worker: Worker, seed: int, program: Program, answer: Answer) -> None:
        """Shrink a failure and show it, unless the same one was found before."""
        kind = answer.outcome.split(" in ")[0].split(" (")[0]

        def fails(candidate: Program) -> bool:
            got = worker.ask({"program": to_json(candidate)})
            return got.failed and got.outcome.split(" in ")[0].split(" (")[0] == kind

        small = shrink(program, fails)
        details = worker.ask({"program": to_json(small)}).details or answer.details
        name = f"{answer.outcome} | {small.mode} {small.order}: " + "; ".join(s.text for s in small.steps)
        if kind.startswith("wrong"):
            name = f"{answer.outcome} | {small.mode} {small.order}: {', '.join(sorted({s.kind for s in small.steps}))}"
        with self.lock:
            self.seen[name] += kind.startswith("wrong")
            if name in self.found:
                return
            self.found[name] = (small, details, seed)
            print(f"\n=== seed {seed}: {name}\n{details}\n{to_json(small)}\n\n{script(small)}", flush=True)
            if self.save is not None:
                self.save.mkdir(parents=True, exist_ok=True)
                (self.save / f"{seed}.json").write_text(to_json(small) + "\n")
                said = "".join(f"# {line}\n" for line in details.splitlines()[-12:])
                (self.save / f"{seed}.py").write_text(f"# {name}\n{said}{script(small)}")

    def summary(self) -> str:
        count = sum(self.run[k] for k in ("ok", "wrong", "unfit"))
        lines = [
            f"{count} programs on {self.device}: " + ", ".join(f"{self.run[k]} {k}" for k in ("ok", "wrong", "unfit"))
        ]
        lines += ["modes: " + ", ".join(f"{self.run[m]} {m}" for m in MODES if self.run[m])]
        lines += ["kinds: " + ", ".join(f"{n} {k}" for k, n in self.kinds.most_common())]
        lines += [f"{n:4d} x {name}" for name, n in self.seen.most_common()]
        return "\n".join(lines)


def explore(session: Session, seeds: range, jobs: int, seconds: float, keep_going: bool) -> None:
    """Run the programs of seeds on several workers until time is up or, unless told to go on, something is found."""
    waiting = iter(seeds)
    until = time.monotonic() + seconds
    show = Progress(len(seeds))

    def work() -> None:
        # Every other program has buffers of its own: the C library then notices what is written behind one.
        workers = [Worker(session.device, session.sanitize, exact=exact) for exact in (False, True)]
        try:
            while time.monotonic() < until and (keep_going or not session.found):
                with session.lock:
                    seed = next(waiting, None)
                if seed is None:
                    break
                session.one(workers[seed % 2], seed)
                show.advance(session)
        finally:
            for worker in workers:
                worker.stop()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    with show:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Progress:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self, total: int) -> None:
        from rich.progress import Progress as Bar

        self.bar = Bar() if sys.stdout.isatty() else None
        self.task = self.bar.add_task("programs", total=total) if self.bar else None
        self.count = 0

    def __enter__(self) -> Progress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar:
            self.bar.stop()

    def advance(self, session: Session) -> None:
        self.count += 1
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=self.count, description=f"{len(session.found)} found")
        elif self.count % 50 == 0:
            print(f"{self.count} programs, {len(session.found)} found", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=200, help="programs to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--mode", choices=MODES, help="run programs of one mode only")
    parser.add_argument("--small", action="store_true", help="small shapes, as on simulated GPUs")
    parser.add_argument("--sanitize", action="store_true", help="build the CPU's kernels with address sanitizer")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first finding")
    parser.add_argument("--save", type=Path, help="folder for findings, as JSON and as scripts")
    o = parser.parse_args()
    modes = (o.mode,) if o.mode else MODES
    session = Session(o.device, o.small or o.device.startswith("sim"), modes, o.sanitize, o.save)
    explore(session, range(o.seed, o.seed + o.count), o.jobs, o.seconds, o.keep_going)
    print(session.summary())
    return 1 if session.run["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
