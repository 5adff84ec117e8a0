"""Kernels by their text: compiled in batches, kept on disk and loaded once. What CPU and GPU compilers share.

A plan's missing kernels are compiled in files of up to `batch` and in parallel: most of a small file's time goes into
its headers. A small entry on disk per kernel names the library (a shared object, a code object) that holds it. Who
knows early what will be asked for has it compiled in the background (`Ahead`).
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pyflame.core import knobs, trace
from pyflame.core.errors import ArgumentError, CompileError
from pyflame.core.locks import rlock
from pyflame.runtime.cache import DiskCache, digest, stats

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

F = TypeVar("F")
Text = tuple[str, Sequence[str]]  # of a kernel, and the suffixes of its functions
FEW, TURNS = 4, 4  # more cores than that find four files each, fewer one


class Ahead:
    """Compiles a table's kernels in the background, in the order in which they are added. Who asks the table for one
    that is on its way waits for it; what does not compile is compiled again by who asks for it, and raises there."""

    def __init__(self, table: KernelTable[Any]) -> None:
        self._table = table
        self._workers: ThreadPoolExecutor | None = None
        self._files: deque[tuple[Future[None], Callable[[], None]]] = deque()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        while kind is not None and self._files:  # nobody wants the rest
            self._files.popleft()[0].set_exception(CompileError("[compile] given up"))
        if self._workers is not None:
            self._workers.shutdown(wait=False)

    def add(self, texts: Sequence[Text], soon: bool = False) -> None:
        """Begin with what is missing of these. `soon`: before all that waits."""
        self._table._begin(texts, partial(self._start, soon))

    def _start(self, soon: bool, work: Callable[[], None]) -> Future[None]:
        from concurrent.futures import Future, ThreadPoolExecutor  # imported here: most programs find all in the cache

        if self._workers is None:
            cores = len(os.sched_getaffinity(0))
            self._workers = ThreadPoolExecutor(max(cores - 1, min(cores, 2)))  # who adds has work of its own
        done: Future[None] = Future()
        (self._files.appendleft if soon else self._files.append)((done, work))
        self._workers.submit(self._next)
        return done

    def _next(self) -> None:
        with suppress(IndexError):  # given up
            done, work = self._files.popleft()
            try:
                done.set_result(work())
            except BaseException as error:  # who asks for such a kernel compiles it, and says so
                done.set_exception(error)


class KernelTable(ABC, Generic[F]):
    """Functions of type F by text. A text defines functions PF_KEY<suffix>. Thread safe."""

    batch: ClassVar[int]  # kernels of a file
    extension: str  # of a library on disk
    head: ClassVar[str]  # what every file begins with
    damaged: ClassVar[tuple[type[Exception], ...]]  # how a library says that it cannot be used: it is made anew

    def __init__(self, cache: DiskCache, salt: str) -> None:
        self.cache = cache
        self._salt = salt
        self._functions: dict[str, F] = {}
        self._libraries: dict[str, Any] = {}
        self._coming: dict[str, Future[None]] = {}  # kernels that are compiled in the background
        self._process = os.getpid()  # whose threads do that
        self._lock = rlock()  # of the tables
        self._compiling = rlock()  # of who compiles: a thread that finds its kernels waits for nobody

    @abstractmethod
    def build(self, source: str) -> bytes:
        """Compile one source to a library."""

    @abstractmethod
    def open(self, library: str) -> Any:
        """Load a library that the cache holds; None when it does not."""

    def opened(self, library: str) -> Any:
        """As `open`, and None for a library that cannot be used: it is to be built anew."""
        try:
            return self.open(library)
        except self.damaged:
            return None

    def open_built(self, library: str, code: bytes) -> Any:
        """Keep a library that was just built, and load it; from a temporary folder if the cache's does not do."""
        self.cache.write(library, code)
        try:
            handle = self.open(library)
            reason = f"{self.cache.path(library)}, just written, is gone"
        except OSError as error:  # as from a file system whose files must not be run
            handle, reason = None, str(error)
        if handle is not None:
            return handle
        self.cache.retreat(reason)
        self.cache.write(library, code)
        handle = self.open(library)
        if handle is None:
            raise CompileError(
                f"[compile] expected {self.cache.path(library)}, just written, but it is gone; give the cache more "
                f"room ({knobs.CACHE_MB.name}) or another folder ({knobs.CACHE_DIR.name})"
            )
        return handle

    @abstractmethod
    def _find(self, library: Any, name: str) -> F:
        """A function of a loaded library."""

    def key(self, text: str) -> str:
        """The name of a kernel with this text, compiled as we compile."""
        return digest(self._salt, text)

    def functions(self, texts: Sequence[Text]) -> list[list[F]]:
        """Each text's functions, by the suffixes given with it."""
        keys = [self.key(text) for text, _ in texts]
        self._await(keys)
        with self._lock:
            missing = self._missing(keys, texts)
            if not missing:
                return self._all(keys, texts)
        with self._compiling:
            with self._lock:  # another thread may have made some meanwhile
                left = {key: wanted for key, wanted in missing.items() if not self._there(key, wanted[1])}
            self._compile_missing(left)
            with self._lock:
                return self._all(keys, texts)

    def ahead(self) -> Ahead:
        """What compiles in the background, for a `with` statement: behind that too, unless there was an error."""
        return Ahead(self)

    def _begin(self, texts: Sequence[Text], start: Callable[..., Future[None]]) -> None:
        """Have what is missing of these compiled."""
        with self._lock:
            known = {self.key(text[0]): text for text in texts}
            wanted = {key: text for key, text in known.items() if key not in self._coming or self._coming[key].done()}
            missing = self._missing(list(wanted), list(wanted.values()))
            self._process = os.getpid()
            for batch in self._files(missing)[0] if missing else []:
                self._coming.update(dict.fromkeys(batch, start(partial(self._build_ahead, batch, missing))))

    def _build_ahead(self, batch: Sequence[str], missing: dict[str, Text]) -> None:
        """Put a file on disk, where who asks for kernels finds them: none are loaded while a graph is captured."""
        started = time.perf_counter()
        try:
            library, code = self._compile_batch(batch, missing)
            self.cache.write(library, code)
            for key in batch:
                self.cache.write(key + ".kernel", library.encode())
            with self._lock:
                stats.compiles += len(batch)
                stats.compile_seconds += time.perf_counter() - started
        finally:
            with self._lock:
                for key in batch:
                    self._coming.pop(key, None)

    def _await(self, keys: Sequence[str]) -> None:
        """Until what is on its way of these is there, or has failed."""
        if not self._coming:
            return
        with self._lock:
            if self._process != os.getpid():  # a child of fork has no threads of its parent's
                self._coming.clear()
            coming = {self._coming[key] for key in keys if key in self._coming}
        if coming:
            from concurrent.futures import wait

            with trace.span("compile", f"{len(coming)} files"):
                wait(coming)

    def _there(self, key: str, suffixes: Sequence[str]) -> bool:
        return all(key + s in self._functions for s in suffixes)

    def _all(self, keys: Sequence[str], texts: Sequence[Text]) -> list[list[F]]:
        return [[self._functions[key + s] for s in suffixes] for key, (_, suffixes) in zip(keys, texts, strict=True)]

    def _missing(self, keys: Sequence[str], texts: Sequence[Text]) -> dict[str, Text]:
        """What is neither loaded nor on disk, in the cache or in the package."""
        missing: dict[str, Text] = {}
        for key, (text, suffixes) in zip(keys, texts, strict=True):
            if self._there(key, suffixes):
                stats.memory_hits += 1
            elif key in missing:  # the same text again, perhaps with other functions of it
                missing[key] = (text, tuple(dict.fromkeys((*missing[key][1], *suffixes))))
            elif self._from_disk(key, suffixes) or self._from_package(key, text, suffixes):
                stats.disk_hits += 1
            else:
                stats.misses += 1
                missing[key] = (text, suffixes)
        return missing

    def forget(self) -> int:
        """Forget every kernel, in memory and on disk; gives the bytes freed. Code stays loaded: a plan may run it."""
        with self._compiling, self._lock:
            self._functions.clear()
            return self.cache.clear()

    def _from_disk(self, key: str, suffixes: Sequence[str]) -> bool:
        entry = self.cache.read(key + ".kernel")
        if entry is None:
            return False
        try:
            library = entry.decode()
            if library not in self._libraries:
                handle = self.opened(library)
                if handle is None:
                    return False
                self._libraries[library] = handle
            self._load(library, key, suffixes)
        except (UnicodeDecodeError, ArgumentError):  # it names no library
            return False
        except self.damaged:
            return False
        return True

    def _from_package(self, key: str, text: str, suffixes: Sequence[str]) -> bool:
        """Take functions that came with the installed package, if there are any of this text."""
        return False

    def _load(self, library: str, key: str, suffixes: Sequence[str]) -> None:
        for suffix in suffixes:
            self._functions[key + suffix] = self._find(self._libraries[library], f"k{key}{suffix}")

    def _compile_missing(self, missing: dict[str, Text]) -> None:
        if not missing:
            return
        with trace.span("compile", f"{len(missing)} kernels"):
            self._compile(missing)

    def _compile(self, missing: dict[str, Text]) -> None:
        from concurrent.futures import ThreadPoolExecutor  # imported here: most programs find all in the cache

        started = time.perf_counter()
        batches, jobs = self._files(missing)
        with ThreadPoolExecutor(jobs) as workers:
            built = list(workers.map(lambda batch: self._compile_batch(batch, missing), batches))
        for (library, code), batch in zip(built, batches, strict=True):
            self._libraries[library] = self.open_built(library, code)
            for key in batch:
                self._load(library, key, missing[key][1])
                self.cache.write(key + ".kernel", library.encode())
        stats.compiles += len(missing)
        stats.compile_seconds += time.perf_counter() - started

    def _files(self, missing: dict[str, Text]) -> tuple[list[list[str]], int]:
        """Which kernels share a file, those that take longest first, and how many files to compile at once."""
        keys = list(missing)
        keys.sort(key=lambda key: len(missing[key][0]), reverse=True)  # long texts take long: they come first
        # A text with macros of its own is a file of its own, and takes as long as many others.
        single = [key for key in keys if "#define" in missing[key][0]]
        small = [key for key in keys if "#define" not in missing[key][0]]
        cores = len(os.sched_getaffinity(0))
        jobs = max(1, min(cores, len(single) + (len(small) if cores > FEW else -(-len(small) // 4))))
        # Some take thirty times as long as others: many workers find more files, and who is done early takes another.
        size = max(1, min(self.batch, -(-len(keys) // (jobs * (TURNS if cores > FEW else 1)))))
        files = -(-len(small) // size)
        return [[key] for key in single] + [small[number::files] for number in range(files)], jobs

    def _compile_batch(self, keys: Sequence[str], missing: dict[str, Text]) -> tuple[str, bytes]:
        parts = [missing[key][0].replace("PF_KEY", "k" + key) for key in keys]
        return digest(*sorted(keys)) + self.extension, self.build(self.head + "\n".join(parts))
