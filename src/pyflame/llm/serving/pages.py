"""Which pages of the cache are free, whose they are, and which still hold the beginning of a prompt.

A full page is known by a key: a hash of its tokens and of the key before it. Sequences whose tokens begin alike share
pages of the same keys; a page that is partly filled is always one sequence's own. Pages that nobody uses any more keep
their lines until they are wanted for something else, the one used longest ago first. Page 0 is never given out: rows
and positions that do not count write there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

from pyflame.core.errors import OutOfMemoryError
from pyflame.llm.cache import PAGE


class PagePool:
    """`count` pages, of which one is spare."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count - 1, 0, -1))
        self._users = [0] * count
        self._idle: OrderedDict[int, None] = OrderedDict()  # pages with a key that nobody uses, oldest first
        self._known: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}

    @property
    def available(self) -> int:
        """How many pages may be taken."""
        return len(self._free) + len(self._idle)

    @property
    def cached(self) -> int:
        """How many of them hold lines that a prompt may begin with."""
        return len(self._idle)

    def take(self, count: int) -> list[int]:
        """Pages for one sequence alone."""
        if count > self.available:
            raise OutOfMemoryError(f"[engine] expected {count} pages of the cache but {self.available} are free")
        while len(self._free) < count:
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
            self._free.append(page)
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._users[page] = 1
        return taken

    def share(self, keys: Iterable[bytes]) -> list[int]:
        """The pages of these keys, as far as they are known, for one more sequence."""
        found: list[int] = []
        for key in keys:
            page = self._known.get(key)
            if page is None:
                break
            self._idle.pop(page, None)
            self._users[page] += 1
            found.append(page)
        return found

    def keep(self, page: int, key: bytes) -> None:
        """Note what a page holds, now that it is full. Another page of the same lines stays the known one."""
        if key not in self._known and page not in self._keys:
            self._known[key] = page
            self._keys[page] = key

    def give_back(self, pages: Sequence[int]) -> None:
        """A sequence leaves its pages. Its last ones are wanted for something else before its first ones."""
        for page in reversed(pages):
            self._users[page] -= 1
            if self._users[page]:
                continue
            if page in self._keys:
                self._idle[page] = None
            else:
                self._free.append(page)

    def forget_all(self) -> None:
        """No lines may be shared any more: other weights make others."""
        self._free += self._idle
        self._idle.clear()
        self._known.clear()
        self._keys.clear()

    def _forget(self, page: int) -> None:
        del self._known[self._keys.pop(page)]


def page_key(before: bytes, tokens: Sequence[int]) -> bytes:
    """The key of a full page behind the one with the key `before`."""
    return blake2b(np.array(tokens, np.int32).tobytes(), key=before, digest_size=16).digest()


def extend_keys(keys: list[bytes], tokens: Sequence[int], salt: bytes) -> None:
    """Add the keys of pages that these tokens have filled since. `salt`: of what makes lines."""
    for at in range(len(keys), len(tokens) // PAGE):
        keys.append(page_key(keys[-1] if keys else salt, tokens[at * PAGE : (at + 1) * PAGE]))
