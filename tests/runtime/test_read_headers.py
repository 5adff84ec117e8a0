"""Headers that gcc has read before: made for the second kernel, found by other processes, given up where gcc fails."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import pytest

from pyflame.core.errors import CompileError
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.cpu.compiler import CompilerC
from tests.needs import need

TEXT = "float PF_KEY_seven(void) { return pf_sqrt(49.0f) + 0 * NUMBER; }\n"


def texts(count: int, template: bool = False) -> list[str]:
    head = "#define HALF 0.5f\n" if template else ""
    return [head + TEXT.replace("NUMBER", str(n)) for n in range(count)]


def compiler(folder: Path, limit: int | None = None) -> CompilerC:
    return CompilerC(need(shutil.which("gcc"), "gcc"), DiskCache(folder, limit))


def sevens(made: CompilerC, given: list[str]) -> list[float]:
    """What kernels give that are compiled one by one."""
    found = [made.functions([(text, ("_seven",))])[0][0] for text in given]
    return [ctypes.CFUNCTYPE(ctypes.c_float)(address)() for address in found]


def read(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.gch"))


@pytest.mark.parametrize("template", [False, True])
def test_the_second_kernel_finds_them_read(template: bool, tmp_path: Path) -> None:
    made, given = compiler(tmp_path), texts(4, template)
    assert sevens(made, given[:1]) == [7] and not read(tmp_path)
    assert sevens(made, given[1:3]) == [7, 7]
    (found,) = read(tmp_path)
    before = found.stat().st_ino
    assert sevens(compiler(tmp_path), given[3:]) == [7]  # as another process would
    assert [path.stat().st_ino for path in read(tmp_path)] == [before]


def test_templates_and_generated_texts_have_their_own(tmp_path: Path) -> None:
    sevens(compiler(tmp_path), [*texts(2), *texts(2, template=True)])
    assert len(read(tmp_path)) == 2


def test_a_small_cache_keeps_its_room_for_kernels(tmp_path: Path) -> None:
    assert sevens(compiler(tmp_path, 4 << 20), texts(3)) == [7, 7, 7] and not read(tmp_path)


@pytest.mark.parametrize("gone", [False, True])
def test_what_the_compiler_does_not_take_is_given_up(gone: bool, tmp_path: Path) -> None:
    made, given = compiler(tmp_path), texts(4)
    sevens(made, given[:2])
    (found,) = read(tmp_path)
    found.unlink()
    if not gone:
        made.cache.write(found.name, b"of another compiler")
    assert sevens(made, given[2:]) == [7, 7]


def test_errors_show_the_same_lines(tmp_path: Path) -> None:
    made, wrong = compiler(tmp_path), "int PF_KEY_wrong(void) { return missing; }\n"
    said = []
    for n in range(2):
        with pytest.raises(CompileError) as error:
            made.functions([(wrong, ("_wrong",))])
        said.append(re.sub(r"\S*/kernels", "kernels", str(error.value)))
        sevens(made, texts(2 * n + 2)[2 * n :])
    assert said[0] == said[1] and "missing" in said[0]
