"""The cache of compiled code: nothing about its folder stops computing, and nobody else's code is run from it."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.core import cache_folder
from pyflame.core.cache_folder import cache_dirs, distrust
from pyflame.core.records import Records
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.sources import scratch_folder

NOBODY = 65534
SUM = "import pyflame as pf; print(float((pf.arange(100.0) * 2 + 1).sum().item()))"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No folder is known yet, and temporary ones lie in a folder of the test's own."""
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(cache_folder, "_dirs", {})
    monkeypatch.setattr(cache_folder, "_private", [])
    monkeypatch.setattr(cache_folder.tempfile, "tempdir", str(temporary))
    return temporary


def _refused(folder: Path, why: str) -> DiskCache:
    with pytest.warns(RuntimeWarning, match=rf"(?s){why}.*are lost when this process ends.*PYFLAME_CACHE_DIR"):
        cache = DiskCache(folder)
    assert cache.root.is_relative_to(cache_folder.tempfile.gettempdir())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        cache.write("ab", b"code")
        assert DiskCache(folder).read("ab") == b"code"
    return cache


# Python itself may lie where another user may not look, so the program becomes that user when all is imported.
_BECOME = """
import concurrent.futures.thread, importlib.readers, importlib.resources, os, platformdirs, pyflame as pf
import pyflame.libs.cpu.openblas, pyflame.runtime.cpu.device, pyflame.runtime.cuda.device, pyflame.runtime.rocm.device
from pyflame.kernels import specs
importlib.resources.files("pyflame"), specs()
os.umask(0o022); os.setgroups([]); os.setgid({0}); os.setuid({0}); os.environ.update({1}); os.environ.pop("HOME", None)
"""


def _run(program: str, temporary: Path, user: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """A program with these environment variables and no HOME, as another user."""
    if user:
        temporary.chmod(0o1777)
        program = _BECOME.format(user, env) + program
    given = {k: v for k, v in os.environ.items() if not k.startswith(("PYFLAME_CACHE", "XDG_"))}
    command = [sys.executable, "-W", "always::RuntimeWarning", "-c", program]
    env = {**given, "TMPDIR": str(temporary), **env}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


# --- folders that cannot be used --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/proc/nothing", "/dev/null/cache"])
def test_a_folder_that_cannot_be_made(place: str) -> None:
    _refused(Path(place), place.split("/")[2])


def test_a_folder_that_others_may_write_to(tmp_path: Path) -> None:
    for mode in (0o777, 0o1777, 0o702):
        (tmp_path / f"{mode:o}").mkdir()
        (tmp_path / f"{mode:o}").chmod(mode)
        _refused(tmp_path / f"{mode:o}", rf"others may write to {tmp_path / f'{mode:o}'} \(mode {mode:04o}")
    open_above = tmp_path / "777" / "mine"
    open_above.mkdir(mode=0o700)
    _refused(open_above, rf"others may write to {tmp_path / '777'} ")
    below_tmp = tmp_path / "1777" / "mine"
    assert DiskCache(below_tmp).root.is_relative_to(below_tmp)  # the sticky bit keeps it ours
    assert below_tmp.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, mine, link, given = (tmp_path / name for name in ("theirs", "mine", "link", "given"))
    theirs.mkdir()
    mine.mkdir(mode=0o700)
    link.symlink_to(theirs)
    given.symlink_to(mine)
    real, foreign = os.lstat, (theirs, given)

    def lstat(path: Path, **options: Any) -> os.stat_result:
        found = list(real(path, **options))
        found[4] = NOBODY if path in foreign else found[4]
        return os.stat_result(found)

    monkeypatch.setattr(cache_folder.os, "lstat", lstat)
    _refused(theirs, f"{theirs} belongs to user {NOBODY}")
    _refused(link, f"{theirs} belongs to user {NOBODY}")
    _refused(given / "cache", f"{given} belongs to user {NOBODY}")


def test_a_group_of_ones_own_is_no_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o770)
    assert distrust(tmp_path) == ""
    monkeypatch.setattr(cache_folder.grp, "getgrgid", lambda n: type("group", (), {"gr_name": "staff", "gr_mem": []}))
    assert "others may write" in distrust(tmp_path)


def test_a_folder_that_opens_up_later_is_given_up(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    cache.write("ab", b"code")
    assert cache.find("ab") is not None
    (tmp_path / "cache" / "v1").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to .*v1"):
        assert cache.find("ab") is None
    assert cache.write("ab", b"code") == cache.find("ab")


def test_entries_of_others_are_not_used(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    for name in ("ab-open", "ab-link", "ab-pipe"):
        cache.write(name, b"code")
    cache.path("ab-open").chmod(0o666)
    cache.path("ab-link").rename(tmp_path / "elsewhere")
    cache.path("ab-link").symlink_to(tmp_path / "elsewhere")
    cache.path("ab-pipe").unlink()
    os.mkfifo(cache.path("ab-pipe"), 0o600)
    with pytest.warns(RuntimeWarning, match=r"others may write to .*ab-open.*: it is not used"):
        assert cache.read("ab-open") is None
    assert cache.read("ab-link") is None and cache.read("ab-pipe") is None
    with pytest.raises(pf.ArgumentError, match="plain file name"):
        cache.read("../../evil.so")


def test_a_full_disk_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)
    before = cache.write("ab", b"before")
    real = cache_folder.tempfile.mkstemp

    def full(dir: Path, prefix: str) -> tuple[int, str]:
        if Path(dir).is_relative_to(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(dir=dir, prefix=prefix)

    monkeypatch.setattr("pyflame.runtime.cache.tempfile.mkstemp", full)
    with pytest.warns(RuntimeWarning, match=rf"(?s)No space left on device \({tmp_path}") as said:
        after = cache.write("cd", b"after")
    assert len(said) == 1 and not after.is_relative_to(tmp_path)
    assert cache.find("ab") == before and cache.find("cd") == after and cache.read("cd") == b"after"
    assert DiskCache(tmp_path).read("cd") == b"after"
    monkeypatch.setattr("pyflame.runtime.cache.tempfile.mkstemp", lambda **_: full(tmp_path, ""))
    with pytest.warns(RuntimeWarning, match="takes no more"):
        assert cache.write("ef", b"more") is None


def test_a_folder_that_is_removed_while_it_is_used(tmp_path: Path, fresh: Path) -> None:
    import shutil

    cache = DiskCache(tmp_path / "cache")
    cache.write("ab", b"code")
    shutil.rmtree(tmp_path / "cache")
    assert cache.find("ab") is None and cache.read("ab") is None
    assert cache.write("ab", b"again") == cache.find("ab")
    private = _refused(Path("/dev/null/x"), "null")
    shutil.rmtree(private.root.parent)
    assert private.write("ab", b"again") == private.find("ab")


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = DiskCache(Path("cache"))
    monkeypatch.chdir("/")
    assert cache.write("ab", b"code").is_relative_to(tmp_path) and DiskCache(Path("cache")).read("ab") == b"code"


def test_folders_of_killed_processes_are_removed(fresh: Path) -> None:
    program = "import os; from pathlib import Path; from pyflame.core.cache_folder import cache_dirs\n"
    _run(f"{program}cache_dirs(Path('/dev/null/x')); os.kill(os.getpid(), 9)", fresh)
    (left,) = fresh.iterdir()
    _refused(Path("/dev/null/x"), "null")
    assert not left.exists() and len(list(fresh.iterdir())) == 1


def test_unfinished_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.write("ab", b"code")
    old, new = cache.path("ab").with_name(".tmp-old"), cache.path("ab").with_name(".tmp-new")
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.trim()
    assert not old.exists() and new.exists()


def test_no_room_for_the_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder.tempfile, "tempdir", "/dev/null/x")
    with (
        pytest.raises(pf.CompileError, match=r"expected room for a compiler's files but got: .*TMPDIR"),
        scratch_folder(),
    ):
        pass
    for _ in range(2):
        with pytest.raises(pf.CompileError, match="and no temporary one"):
            cache_dirs(Path("/dev/null/y"))


# --- damage -----------------------------------------------------------------------------------------------------------


def test_damaged_entries_are_never_given(tmp_path: Path) -> None:
    chance = random.Random(5)
    cache = DiskCache(tmp_path)
    whole = cache.write("ab", bytes(range(200))).read_bytes()
    for _ in range(300):
        raw = bytearray(whole)
        if chance.random() < 0.3:
            raw = raw[: chance.randrange(len(raw))]
        else:
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        cache.path("ab").write_bytes(raw)
        cache.path("ab").chmod(0o600)
        assert cache.read("ab") is None and not cache.path("ab").exists()


def test_measurements_that_cannot_be_read_or_kept(tmp_path: Path) -> None:
    chance, path = random.Random(6), tmp_path / "tuning.json"
    records = Records(path, "tuning 1")
    records.put("matmul", {"winner": "ours"})
    whole = path.read_bytes()
    for n in range(90):
        raw = bytearray(whole)
        raw[chance.randrange(len(raw))] = chance.randrange(256)
        path.write_bytes(b"[" * 100_000 if n == 0 else raw[: chance.randrange(len(raw))] if n % 3 == 0 else raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = Records(path, "tuning 1")
            again.get("matmul")
            again.put("conv", 1)
        assert Records(path, "tuning 1").get("conv") == 1
    lost = Records(Path("/proc/nothing/tuning.json"), "tuning 1")
    with pytest.warns(UserWarning, match="cannot be written"):
        lost.put("a", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        lost.put("b", 2)
    assert lost.get("a") == 1 and lost.get("b") == 2


# --- whole programs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def seen_by_all() -> Iterator[Path]:
    """A folder that other users may enter. pytest's own are shut again whenever another run of it begins."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.slow
def test_programs_compute_without_a_folder(seen_by_all: Path) -> None:
    other, unknown = (NOBODY, 54321) if os.geteuid() == 0 else (0, 0)  # only root may write to every folder
    fresh = seen_by_all / "temporary"
    fresh.mkdir()
    done = _run(SUM, fresh, user=other, XDG_CACHE_HOME="/proc/nothing")
    assert done.stdout == "10000.0\n", done.stderr
    assert done.stderr.count("are lost when this process ends") == 1 and "/proc/nothing" in done.stderr
    assert list(fresh.iterdir()) == []
    if unknown:  # no HOME, and a user that the system does not know
        lost = _run("import pyflame as pf; print(pf.cache_dir())", fresh, user=unknown)
        assert str(fresh) in lost.stdout and "home directory for" in lost.stderr, lost.stderr
    # A folder that may be read and not written is read: the second program compiles nothing.
    shared = seen_by_all / "shared"
    count = f"{SUM}; print(pf.compile_stats().compiles)"
    assert _run(count, fresh, PYFLAME_CACHE_DIR=str(shared)).stdout.split()[1] != "0"
    for path in (shared, *shared.rglob("*")):
        path.chmod(0o555)
    reader = _run(count, fresh, user=other, PYFLAME_CACHE_DIR=str(shared))
    assert reader.stdout.split() == ["10000.0", "0"] and f"{shared} cannot be written" in reader.stderr
    for path in (shared, *shared.rglob("*")):
        path.chmod(0o755)  # so that it can be removed by others than root


@pytest.mark.slow
def test_a_file_system_whose_files_must_not_be_run(tmp_path: Path, fresh: Path) -> None:
    program = f"""
import ctypes
real = ctypes.CDLL
def refuse(path, *more, **options):
    if str(path).startswith({str(tmp_path)!r}):
        raise OSError(f"{{path}}: failed to map segment from shared object: Operation not permitted")
    return real(path, *more, **options)
ctypes.CDLL = refuse
{SUM}
"""
    done = _run(program, fresh, PYFLAME_CACHE_DIR=str(tmp_path))
    assert done.stdout == "10000.0\n" and done.stderr.count("Operation not permitted") == 1, done.stderr
