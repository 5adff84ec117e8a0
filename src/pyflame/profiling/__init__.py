"""What a run did: the launches of a step in time, by kind, and a report as a page of HTML.

Reads plans and their times (`pf.explain`); nothing below imports it.
"""

from pyflame.profiling.report import page, what_ran
from pyflame.profiling.timeline import Share, kind_of, seconds, shares, timeline

__all__ = ["Share", "kind_of", "page", "seconds", "shares", "timeline", "what_ran"]
