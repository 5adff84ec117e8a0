"""Kernels side by side: the texts of several in, that of one out whose blocks do the work of one or another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pyflame.ir.kernel import GpuPhase, GpuSource

_GIVEN = ["char *PF_RESTRICT scratch", "const pf_word *PF_RESTRICT uni", "int64_t *PF_RESTRICT err"]


def side_by_side(sources: Sequence[GpuSource]) -> GpuSource:
    """One kernel for generated ones of one phase each, which have blocks of one size and no scratch."""
    phases = [phase for source in sources for phase in source.phases]
    ends = list(accumulate(phase.grid for phase in phases))
    args = ends[:-1]  # where the blocks of each but the first begin
    params: list[str] = []
    texts: list[str] = []
    calls: list[str] = []
    for number, (source, phase) in enumerate(zip(sources, phases, strict=True)):
        head, body = source.text.replace("pf_block()", "group").split("{\npf_await();\n", 1)
        listed = head[head.index("PF_KEY_0(") + len("PF_KEY_0(") : head.rindex(")")]
        name = f"PF_KEY_part{number}"
        texts.append(f"PF_FN void {name}(const int group, {listed}) {{\n{body}")
        buffers = [f"b{len(params) + n}" for n in range(source.buffers)]
        numbers = [f"a{len(args) + n}" for n in range(len(phase.args))]
        group = f"pf_block() - (int)a{number - 1}" if number else "pf_block()"
        call = f"{name}({', '.join([group, *buffers, 'scratch', 'uni', 'err', *numbers])});"
        calls.append(f"if (pf_block() < (int)a{number}) return {call}" if number < len(sources) - 1 else call)
        params += [p.replace(f" b{n}", f" {buffers[n]}") for n, p in enumerate(listed.split(", ")[: source.buffers])]
        args += phase.args
    listed = ", ".join([*params, *_GIVEN, *[f"int64_t a{n}" for n in range(len(args))]])
    block = phases[0].block
    texts.append("\n".join([f"PF_GLOBAL({block}) PF_KEY_0({listed}) {{", "pf_await();", *calls, "}\n"]))
    alignment = tuple(a for source in sources for a in source.alignment[: source.buffers])
    lds = sum(phase.lds_bytes for phase in phases)
    return GpuSource("\n".join(texts), (GpuPhase("_0", ends[-1], block, tuple(args), lds),), len(params), alignment)
