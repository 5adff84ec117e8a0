"""What a run did: its launches in time, by kernel and by kind, as a table, a trace file and a page of HTML.

`pf.profile` records a run; `pf.explain` measures a plan. Reads trace events and plans; nothing below imports it.
"""

from pyflame.core.trace import TraceEvent
from pyflame.profiling.annotate import annotate
from pyflame.profiling.kernels import KernelTime, RangeTime
from pyflame.profiling.limits import measure_limit
from pyflame.profiling.profiler import Profile, profile
from pyflame.profiling.report import page, what_ran
from pyflame.profiling.timeline import Share, kind_of, seconds, shares, timeline

__all__ = [
    "KernelTime",
    "Profile",
    "RangeTime",
    "Share",
    "TraceEvent",
    "annotate",
    "kind_of",
    "measure_limit",
    "page",
    "profile",
    "seconds",
    "shares",
    "timeline",
    "what_ran",
]
