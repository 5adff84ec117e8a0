"""The table, bars and plots of `pyflame monitor`."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pyflame.doctor.monitor.sample import Gpu, Sample
from pyflame.doctor.monitor.summary import size

_STEPS = "▁▂▃▄▅▆▇█"
_WIDTH = 10  # of a bar


def sparkline(values: Iterable[float | None], top: float = 100.0) -> str:
    """A plot in one line.

    >>> sparkline([0, 50, 100, None])
    '▁▅█ '
    """
    last = len(_STEPS) - 1
    scaled = (None if v is None else round(min(1.0, max(0.0, v / top if top > 0 else 0.0)) * last) for v in values)
    return "".join(" " if step is None else _STEPS[step] for step in scaled)


def bar(percent: float | None, width: int = _WIDTH) -> Text:
    """A bar that turns yellow at 70 and red at 90 percent."""
    if percent is None:
        return Text("-")
    full = round(min(100.0, max(0.0, percent)) / 100 * width)
    style = "red" if percent >= 90 else "yellow" if percent >= 70 else "green"
    return Text.assemble(("█" * full, style), ("░" * (width - full), "dim"), f" {percent:3.0f}%")


class View:
    """Keeps what the plots show, and draws a sample."""

    def __init__(self, history: int = 40) -> None:
        self._use: dict[str, deque[float | None]] = defaultdict(lambda: deque(maxlen=history))
        self._power: dict[str, deque[float | None]] = defaultdict(lambda: deque(maxlen=history))

    def draw(self, sample: Sample, notes: dict[str, str] | None = None) -> RenderableType:
        """The sample as tables, with what came before as plots."""
        parts: list[RenderableType] = [self._host(sample)]
        for gpu in sample.gpus:
            self._use[gpu.bus].append(gpu.use)
            self._power[gpu.bus].append(gpu.power)
        if sample.gpus:
            parts.append(_gpus(sample.gpus))
            parts += [self._plots(number, gpu) for number, gpu in enumerate(sample.gpus)]
        else:
            parts.append(Text("no GPU is to be seen", "yellow"))
            parts += [Text(f"  {name}: {why}", "dim") for name, why in (notes or {}).items()]
        if sample.processes:
            parts.append(_processes(sample))
        return Group(*parts)

    def _host(self, sample: Sample) -> RenderableType:
        host = sample.host
        self._use["host"].append(host.cpu_use)
        memory = 100.0 * host.memory_used / host.memory_total if host.memory_used and host.memory_total else None
        return Text.assemble(
            ("CPU ", "bold"), bar(host.cpu_use), " ", (sparkline(self._use["host"]), "cyan"),
            ("  RAM ", "bold"), bar(memory), f"  {size(host.memory_used)} of {size(host.memory_total)}",
        )  # fmt: skip

    def _plots(self, number: int, gpu: Gpu) -> Text:
        told = [watts for watts in self._power[gpu.bus] if watts is not None]
        power = sparkline(self._power[gpu.bus], gpu.power_limit or max(told, default=1.0))
        return Text.assemble(
            f"{number:3} use ", (sparkline(self._use[gpu.bus]), "cyan"), "  memory ", bar(_share(gpu)),
            "  power ", (power, "magenta"),
        )  # fmt: skip


def _gpus(gpus: tuple[Gpu, ...]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for head in ("gpu", "name", "use", "memory", "power", "clock", "temp", "limits", "ECC"):
        right = head in ("gpu", "power", "clock", "temp")
        table.add_column(head, justify="right" if right else "left", no_wrap=head != "name")
    for number, gpu in enumerate(gpus):
        table.add_row(
            str(number), gpu.name, bar(gpu.use, 6), _memory(gpu), _power(gpu),
            "-" if gpu.clock is None else f"{gpu.clock:.0f} MHz",
            "-" if gpu.temperature is None else f"{gpu.temperature:.0f} °C", _limits(gpu), _ecc(gpu),
        )  # fmt: skip
    return table


def _share(gpu: Gpu) -> float | None:
    return 100.0 * gpu.memory_used / gpu.memory_total if gpu.memory_used is not None and gpu.memory_total else None


def _memory(gpu: Gpu) -> Text:
    text = Text(_gigabytes(gpu.memory_used, gpu.memory_total))
    if gpu.gtt_used is not None:
        text.append(f"\nGTT {_gigabytes(gpu.gtt_used, gpu.gtt_total)}", "dim")
    return text


def _gigabytes(*sizes: int | None) -> str:
    return "/".join("-" if count is None else f"{count / 2**30:.1f}" for count in sizes) + " GB"


def _power(gpu: Gpu) -> str:
    if gpu.power is None:
        return "-"
    return f"{gpu.power:.0f} W" if gpu.power_limit is None else f"{gpu.power:.0f}/{gpu.power_limit:.0f} W"


def _limits(gpu: Gpu) -> Text:
    if gpu.throttled is None:
        return Text("-")
    return Text(", ".join(gpu.throttled), "bold red") if gpu.throttled else Text("none", "dim")


def _ecc(gpu: Gpu) -> Text:
    if gpu.ecc_corrected is None and gpu.ecc_uncorrected is None:
        return Text("-")
    return Text(f"{gpu.ecc_corrected or 0}/{gpu.ecc_uncorrected or 0}", "bold red" if gpu.ecc_uncorrected else "")


def _processes(sample: Sample) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for head in ("gpu", "pid", "process", "memory", "use"):
        table.add_column(head, justify="left" if head == "process" else "right")
    numbers = {gpu.bus: str(number) for number, gpu in enumerate(sample.gpus)}
    for p in sorted(sample.processes, key=lambda p: (numbers.get(p.bus, ""), -(p.memory or 0))):
        use = "-" if p.use is None else f"{p.use:.0f}%"
        table.add_row(numbers.get(p.bus, "?"), str(p.pid), p.name, size(p.memory), use)
    return table
