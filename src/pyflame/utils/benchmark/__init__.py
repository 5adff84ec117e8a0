"""torch.utils.benchmark by its path: how long statements take. `pf.profile` says where the time goes."""

from pyflame.utils.benchmark.compare import Colorize, Compare
from pyflame.utils.benchmark.measurement import Measurement, TaskSpec, select_unit, trim_sigfig, unit_to_english
from pyflame.utils.benchmark.timer import Timer, timer

__all__ = [
    "Colorize", "Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig", "unit_to_english",
]  # fmt: skip
