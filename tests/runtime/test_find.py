"""Which HIP runtime is taken: built folders, a list of what a process has loaded, and AMD's resolver stood in for."""

from __future__ import annotations

import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from pyflame.runtime.rocm import find


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without ROCm, whose folders lie in a folder of the test."""
    monkeypatch.setattr(find, "FOLDERS", tuple(f if not os.path.isabs(f) else f"{tmp_path}{f}" for f in find.FOLDERS))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    for name in ("LD_LIBRARY_PATH", "ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)
    loaded(monkeypatch)  # nothing, whatever other tests have
    return tmp_path


def put(root: Path, *paths: str) -> list[str]:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return [os.path.realpath(root / path) for path in paths]


def loaded(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """Let the process have these libraries."""
    monkeypatch.setattr(
        find, "mapped", lambda short=find.RUNTIME: [p for p in paths if Path(p).name.startswith(f"lib{short}.so")]
    )


def test_nothing(root: Path) -> None:
    assert find.find("amdhip64") == find.find("hiprtc") == find.find("rocblas") == ""


def test_versioned_names(root: Path) -> None:
    six, _, _ = put(root, "opt/rocm/lib/libamdhip64.so.6.4", "opt/rocm/lib/libamdhip64.so.txt", "usr/lib/other.so")
    assert find.find("amdhip64") == six
    seven, rtc = put(root, "opt/rocm/lib/libamdhip64.so.7", "opt/rocm/lib/libhiprtc.so.7")
    assert (find.find("amdhip64"), find.find("hiprtc")) == (seven, rtc)


def test_the_newest_of_several_rocms(root: Path) -> None:
    put(root, "opt/rocm-6.4.1/lib/libamdhip64.so.6", "opt/rocm-7.9.0/lib/libamdhip64.so.7")
    (newest,) = put(root, "opt/rocm-7.10.0/lib/libamdhip64.so.7")
    assert find.find("amdhip64") == newest


def test_order_of_folders(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (system,) = put(root, "usr/lib64/libamdhip64.so.6")
    (opt,) = put(root, "opt/rocm/lib/libamdhip64.so.7")
    (wheel,) = put(root, "site-packages/_rocm_sdk_core/lib/libamdhip64.so.7")
    named, also = put(root, "mine/libamdhip64.so.6", "other/lib/libamdhip64.so.6")
    assert find.installed() == [wheel, opt, system]
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{root}/mine")
    monkeypatch.setenv("ROCM_PATH", f"{root}/other")
    assert find.installed() == [named, also, wheel, opt, system]


def test_what_the_process_has_comes_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And libraries are taken from beside it, whatever AMD's resolver says of others."""
    opt, theirs = put(root, "opt/rocm/lib/libamdhip64.so.7", "opt/rocm/lib/librocblas.so.5")
    torch, blas = put(root, "site-packages/torch/lib/libamdhip64.so", "site-packages/torch/lib/librocblas.so")
    assert (find.find("amdhip64", opt), find.find("rocblas", theirs)) == (opt, theirs)
    loaded(monkeypatch, torch)
    assert (find.find("amdhip64", opt), find.find("rocblas", theirs)) == (torch, blas)
    assert find.find("MIOpen", "libMIOpen.so") == ""


def test_hiprtc_inside_the_runtime(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (debian,) = put(root, "usr/lib64/libamdhip64.so.5")
    assert find.find("hiprtc") == ""  # no library at all, as its bytes say
    monkeypatch.setattr(find.ctypes, "CDLL", lambda path: types.SimpleNamespace(hiprtcCreateProgram=path))
    assert find.find("hiprtc") == debian


def test_a_process_and_its_libraries(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f10 r-xp 00000000 08:01 17   /opt/rocm/lib/libamdhip64.so.7.1.2\n"
        "7f10-7f20 r--p 00010000 08:01 17   /opt/rocm/lib/libamdhip64.so.7.1.2\n"
        "7f20-7f30 rw-p 00000000 00:00 0\n"
        "/libamdhip64.so\n"
        "7f30-7f40 r-xp 00000000 08:01 99   /a folder/torch/lib/libamdhip64.so\n"
    )
    assert find.mapped(maps=str(maps)) == ["/opt/rocm/lib/libamdhip64.so.7.1.2", "/a folder/torch/lib/libamdhip64.so"]
    assert find.mapped("hiprtc", str(maps)) == find.mapped(maps=str(tmp_path / "none")) == []
    assert find.mapped("c") if os.path.exists("/proc/self/maps") else True


def test_two_runtimes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch, "/opt/rocm/lib/libamdhip64.so.7")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find.warn_of_two()
    loaded(monkeypatch, "/opt/rocm/lib/libamdhip64.so.7", "/venv/torch/lib/libamdhip64.so")
    with pytest.warns(RuntimeWarning, match=r"one HIP runtime .* /opt/rocm/lib/.* and /venv/torch/lib/"):
        find.warn_of_two()


def test_bindings_are_taught_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for AMD's resolver, which gives a bare name where it knows no file."""
    asked: list[str] = []

    def get_library_path(short: str, bundled_location: Any = None) -> bytes:
        asked.append(short)
        return f"lib{short}.so".encode()

    paths: Any = types.ModuleType("rocm.bindings.util.paths")
    paths.get_library_path = get_library_path
    for name in ("rocm", "rocm.bindings", "rocm.bindings.util"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "rocm.bindings.util.paths", paths)
    find.teach_bindings()
    find.teach_bindings()
    assert paths.get_library_path("amdhip64") == b"libamdhip64.so" and asked == ["amdhip64"]
    (seven,) = put(root, "opt/rocm/lib/libamdhip64.so.7")
    assert paths.get_library_path("amdhip64") == os.fsencode(seven)
    assert (find.resolve("amdhip64"), find.resolve("hipblaslt")) == (seven, "")
