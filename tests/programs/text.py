"""The Python text of a program's steps: one function that torch and PyFlame both run."""

from __future__ import annotations

from tests.programs.program import Program


def _line(program: Program, value: int, watched: bool) -> list[str]:
    """The lines of one step. `watched` text lets the oracle see every value, and check guards."""
    step = program.step_of(value)
    assert step is not None
    names = [f"v{o}" for o in step.operands]
    lines = [f"guard({value}, {step.guard.format(*names)})"] if watched and step.guard else []
    if step.write:
        lines += [f"v{value} = own({names[0]})", step.text.format(f"v{value}", *names[1:])]
        return [*lines, f"v{value} = watch({value}, v{value})"] if watched else lines
    text = step.text.format(*names)
    return [*lines, f"v{value} = watch({value}, {text})" if watched else f"v{value} = {text}"]


def _last_use(program: Program) -> dict[int, int]:
    """The step after which nothing reads a value; values that are returned, held or a call's state have none."""
    n = len(program.inputs)
    last = {v: v for v in range(n, n + len(program.steps))}
    for k, step in enumerate(program.steps):
        for o in step.operands:
            last[o] = n + k
    ends = {*program.outputs, *program.held, *[v for _, v in program.state], *range(n)}
    return {v: s for v, s in last.items() if v not in ends}


def crossing(program: Program) -> tuple[list[int], list[int]]:
    """What a checkpointed part reads from before it, and what it gives to the steps behind it and the outputs."""
    first, end = program.part
    inside = range(first, end)
    reads = {o for v in inside for o in program.steps[v - len(program.inputs)].operands if o < first}
    later = {o for s in program.steps[end - len(program.inputs) :] for o in s.operands}
    later |= {*program.outputs, *program.held}
    return sorted(reads), [v for v in inside if v in later]


def _steps(program: Program, values: range, watched: bool, drop: bool = True) -> list[str]:
    last = _last_use(program)
    lines = []
    for value in values:
        lines += _line(program, value, watched)
        if not watched:
            lines += [f"held.append(v{value})"] if value in program.held and drop else []
            lines += [f"look(v{value})"] if value in program.evaluated else []
        gone = [f"v{v}" for v, at in last.items() if at == value and v in values] if drop else []
        lines += [f"del {', '.join(gone)}"] if gone else []
    return lines


def body(program: Program, watched: bool = False) -> str:
    """`def body(L, v0, v1, ...)`, which returns outputs and then the new values of state."""
    n = len(program.inputs)
    first, end = program.part
    everything = range(n, n + len(program.steps))
    lines = [f"v{v} = watch({v}, v{v})" for v in range(n)] if watched else []
    if first < end:
        reads, gives = crossing(program)
        lines += _steps(program, range(n, first), watched, drop=False)
        lines += [f"def part({', '.join(f'v{v}' for v in reads)}):"]
        inner = [*_steps(program, range(first, end), watched, drop=False)]
        inner += [f"return ({''.join(f'v{v}, ' for v in gives)})"]
        lines += ["    " + line for line in inner]
        lines += [f"({''.join(f'v{v}, ' for v in gives)}) = checkpoint(part, {', '.join(f'v{v}' for v in reads)})"]
        lines += _steps(program, range(end, everything.stop), watched, drop=False)
    else:
        lines += _steps(program, everything, watched)
    returned = [*program.outputs, *[v for _, v in program.state]]
    lines += [f"return [{', '.join(f'v{v}' for v in returned)}]"]
    head = f"def body({', '.join(['L', *[f'v{v}' for v in range(n)]])}):"
    return "\n".join([head, *["    " + line for line in lines]]) + "\n"
