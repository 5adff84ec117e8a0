"""Headers of kernels that gcc has read before (its precompiled headers), in the disk cache.

Reading ours takes gcc 25 ms and those of intrinsics a quarter of a second, often more than the kernel itself. What it
has read is loaded in a few. It is as large as 30 MB, so it is made for the second kernel that a process compiles.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence

from pyflame.core.locks import lock
from pyflame.runtime.cache import DiskCache, digest
from pyflame.runtime.sources import scratch_folder

# What hand-written templates include besides: the one of their files that costs most.
INTRINSICS = (
    "#if defined(__x86_64__)\n#include <immintrin.h>\n#elif defined(__aarch64__)\n#include <arm_neon.h>\n#endif\n"
)
_PART = 16  # of the cache is the most that they may take: kernels would have to go
_ENDING = ".gch"  # gcc looks for it beside the file that -include names


class ReadHeaders:
    """A text of includes, read with the flags of whoever asks. `salt`: what the compiler and the headers are."""

    def __init__(self, path: str, cache: DiskCache, salt: str) -> None:
        self.path = path
        self.cache = cache
        self._salt = salt
        self._asked: Counter[str] = Counter()
        self._options: dict[str, list[str]] = {}
        self._lock = lock()

    def options(self, text: str, flags: Sequence[str]) -> list[str]:
        """What lets the compiler load them before it reads a file; nothing where that would not pay."""
        name = digest(self._salt, text, *flags) + ".h" + _ENDING
        with self._lock:
            if name not in self._options:
                found = self.cache.find(name)
                self._asked[name] += 1
                if found is None and self._asked[name] == 1:
                    return []
                if found is None and (code := self._read(text, flags)) and len(code) <= self.cache.limit // _PART:
                    found = self.cache.write(name, code)
                self._options[name] = [] if found is None else ["-include", str(found).removesuffix(_ENDING)]
            return self._options[name]

    def give_up(self) -> None:
        """The compiler does not take them: it has changed, or they are gone."""
        with self._lock:
            self._options = {name: [] for name in self._options}

    def _read(self, text: str, flags: Sequence[str]) -> bytes | None:
        with scratch_folder() as folder:
            file, out = folder / "headers.h", folder / "headers.h.gch"
            file.write_text(text)
            command = [self.path, *flags, "-x", "c-header", str(file), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, check=False, start_new_session=True)
            return out.read_bytes() if done.returncode == 0 else None
