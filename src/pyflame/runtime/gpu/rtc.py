"""Compilers that are libraries: NVRTC and hiprtc, whose functions differ in little but their names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyflame.core.device import Target
from pyflame.core.errors import CompileError
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.gpu.compiler import PREFIX, KernelCompiler
from pyflame.runtime.gpu.driver import Bindings
from pyflame.runtime.sources import explain_failure

FILE = "kernels"
# What compilers call a source in their messages: some do not ask.
HEAD = f'#line 1 "{FILE}"\n{PREFIX}'


@dataclass(frozen=True)
class Names:
    """What a vendor calls the functions."""

    create: str
    compile: str
    destroy: str
    log_size: str
    log: str
    code_size: str
    code: str


class RtcCompiler(KernelCompiler):
    """A compiler in a library, over a vendor's bindings."""

    names: ClassVar[Names]

    def __init__(self, call: Bindings, version: str, flags: Sequence[str], cache: DiskCache | None = None) -> None:
        super().__init__(version, " ".join(flags), cache)
        self._call = call

    @abstractmethod
    def options(self, target: Target) -> list[bytes]:
        """What the compiler is asked for."""

    def _refusal(self, message: str, log: str, target: Target) -> CompileError:
        """The error of a source that it refused."""
        return CompileError(message)

    @abstractmethod
    def _text(self, raw: bytes) -> Any:
        """A string as the bindings take it."""

    @abstractmethod
    def _room(self, nbytes: int) -> Any:
        """Memory that the bindings write to."""

    @abstractmethod
    def _own(self, program: Any) -> Any:
        """A program as the bindings' destroy takes it."""

    def compile(self, source: str, target: Target, options: Sequence[str] = ()) -> bytes:
        text = HEAD + source
        call, names, given = self._call, self.names, [*self.options(target), *(o.encode() for o in options)]
        program = call(names.create, self._text(text.encode()), FILE.encode(), 0, [], [])
        try:
            (status,) = call.raw(names.compile, program, len(given), given)
            if not status:
                return self._read(names.code_size, names.code, program)
            log = self._read(names.log_size, names.log, program).rstrip(b"\0 ").decode(errors="replace")
        finally:
            call(names.destroy, self._own(program))
        named = f"{target.name}, {getattr(status, 'name', status)}"
        said = explain_failure(log, text, FILE)
        raise self._refusal(f"[compile] {self.version} refused a kernel for {named}:\n{said}", log, target)

    def _read(self, size: str, content: str, program: Any) -> bytes:
        room = self._room(int(self._call(size, program)))
        if len(room):
            self._call(content, program, room)
        return bytes(room)
