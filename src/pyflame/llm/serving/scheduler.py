"""Scheduler: which sequences have rows and pages, which wait, and who must leave when there are too few pages.

Higher priorities come first, and older requests before younger ones of the same. A sequence gets a row when there are
pages for its prompt and a few to grow. When pages run out, the youngest of the lowest priority loses its own and
waits; it is read again later, with what it has written, and goes on as if nothing had been. The oldest of the highest
priority is never stopped, and one alone always fits, so all end.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

from pyflame.llm.cache import PAGE, pages_of
from pyflame.llm.serving.pages import PagePool, extend_keys
from pyflame.llm.serving.request import TextSequence


class Scheduler:
    """Sequences over `rows` rows and the pages of a pool. `window`: how far back layers look, where all have one."""

    def __init__(self, rows: int, pages: int, window: int | None = None) -> None:
        self.pool = PagePool(pages)
        self.window = window
        self.waiting: list[TextSequence] = []  # in the order in which they get rows
        self.reading: deque[TextSequence] = deque()  # whose prompts are read, in turns
        self.running: list[TextSequence] = []
        self.salt = b"0"
        self._free_rows = list(range(rows - 1, -1, -1))
        self._changes = 0

    @property
    def active(self) -> list[TextSequence]:
        """All that have rows."""
        return [*self.running, *self.reading]

    @property
    def count(self) -> int:
        """How many those are; any thread may ask."""
        return len(self.running) + len(self.reading)

    def forget(self) -> None:
        """Lines of other weights must not be shared from here on."""
        self._changes += 1
        self.salt = str(self._changes).encode()
        self.pool.forget_all()

    def wait(self, sequence: TextSequence) -> None:
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def admit(self) -> list[TextSequence]:
        """Give rows to those that wait, as far as there are rows and pages."""
        admitted = []
        while self.waiting and self._free_rows and self._place(self.waiting[0]):
            one = self.waiting.pop(0)
            one.row = self._free_rows.pop()
            self.reading.append(one)
            admitted.append(one)
        return admitted

    def _place(self, one: TextSequence) -> bool:
        """Pages for all that is to be read of a sequence, those included that others have read. Each that has a row
        keeps a page to grow."""
        tokens = one.tokens
        salt = b"%s:%d" % (self.salt, one.request.adapter)  # another adapter makes other lines
        if one.salt != salt:
            one.salt, one.keys = salt, []
        extend_keys(one.keys, tokens, one.salt)
        shared = self.pool.share(one.keys[: (len(tokens) - 1) // PAGE])
        wanted = pages_of(min(len(tokens) + 1, one.most_lines)) - len(shared)
        if wanted + self.count > self.pool.available:
            self.pool.give_back(shared)
            return False
        one.pages = shared + self.pool.take(wanted)
        one.known, one.lines = len(shared), len(shared) * PAGE
        one.shared = one.lines
        one.picked = len(one.text.tokens)
        return True

    def share_more(self, one: TextSequence) -> bool:
        """Take pages that others have filled since instead of own ones; gives whether there were any."""
        if one.lines % PAGE:
            return False
        at, tokens = one.lines // PAGE, len(one.request.prompt) + len(one.text.tokens)
        found = self.pool.share(one.keys[at : (tokens - 1) // PAGE])
        self.pool.give_back(one.pages[at : at + len(found)])
        one.pages[at : at + len(found)] = found
        one.known, one.lines = at + len(found), one.lines + len(found) * PAGE
        one.shared += len(found) * PAGE
        return bool(found)

    def turned(self, one: TextSequence) -> None:
        """A sequence was read from: others come first now."""
        self.reading.remove(one)
        self.reading.append(one)

    def filled(self, one: TextSequence) -> None:
        """Let others share the pages of a sequence that are full of known tokens."""
        full = min(one.lines, len(one.request.prompt) + len(one.text.tokens)) // PAGE
        if full > one.known:
            extend_keys(one.keys, one.tokens, one.salt)
            for page, key in zip(one.pages[one.known : full], one.keys[one.known : full], strict=True):
                self.pool.keep(page, key)
            one.known = full

    def slide(self, one: TextSequence) -> int:
        """Give back the first pages of a sequence once the window has passed them; gives how many of them are gone,
        or 0 if it is no more than before. Their places in `pages` name the spare page."""
        if self.window is None:
            return 0
        gone = min((one.lines - self.window + 1) // PAGE, one.known)  # the next token sees window - 1 before it
        if gone <= one.gone:
            return 0
        self.pool.give_back(one.pages[one.gone : gone])
        one.pages[one.gone : gone] = [0] * (gone - one.gone)
        one.gone = gone
        return gone

    def runs(self, one: TextSequence) -> None:
        """All tokens of a sequence are read: from here on it writes."""
        self.reading.remove(one)
        self.running.append(one)
        one.running = True

    def victim(self, below: int | None = None) -> TextSequence | None:
        """Who leaves first: the youngest of the lowest priority, if that is below a given one."""
        last = max(self.active, key=lambda s: s.rank, default=None)
        return last if last is not None and (below is None or last.request.priority < below) else None

    @property
    def weaker(self) -> TextSequence | None:
        """Who would leave for the first that waits."""
        return self.victim(self.waiting[0].request.priority) if self.waiting else None

    @property
    def may_admit(self) -> bool:
        """Whether the first that waits may get a row: a free one, or another's."""
        return bool(self.waiting) and (bool(self._free_rows) or self.weaker is not None)

    def preempt(self, one: TextSequence) -> None:
        """Take row and pages from a sequence, which waits for others."""
        self.leave(one)
        self.wait(one)

    def leave(self, one: TextSequence) -> None:
        """A sequence gives back what it has, if it is here at all."""
        if one in self.waiting:
            self.waiting.remove(one)
        if one.row is None:
            return
        if one.running:
            self.running.remove(one)
        else:
            self.reading.remove(one)
        self._free_rows.append(one.row)
        self.pool.give_back(one.pages[one.gone :])
        one.pages, one.gone, one.lines, one.row, one.running = [], 0, 0, None, False
