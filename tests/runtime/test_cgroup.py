"""What control groups leave of memory, from built file trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyflame.runtime.cpu import device
from pyflame.runtime.cpu.cgroup import free_bytes, granted_cores, limit_bytes


def tree(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(folder: str, limit: str, use: int, cached: int = 0) -> dict[str, str]:
    base = f"sys/fs/cgroup/{folder}".rstrip("/")
    stat = f"anon 5\ninactive_file {cached}\n"
    return {f"{base}/memory.max": limit, f"{base}/memory.current": str(use), f"{base}/memory.stat": stat}


def test_version_2_takes_the_tightest_of_all_parents(tmp_path: Path) -> None:
    files = v2("a", "1000", 700, 100) | v2("a/b", "max", 700) | v2("a/b/c", "5000\n", 600)
    assert free_bytes(tree(tmp_path, "0::/a/b/c\n", files)) == 400


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    assert free_bytes(tree(tmp_path, "0::/\n", v2("", "1000", 1200))) == 0
    assert free_bytes(tree(tmp_path, "0::/../outside\n", v2("", "1000", 200))) == 800


def test_version_1(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/memory"
    files = {
        f"{base}/memory.limit_in_bytes": "9223372036854771712",
        f"{base}/memory.usage_in_bytes": "10",
        f"{base}/memory.stat": "total_inactive_file 0\n",
        f"{base}/jobs/memory.limit_in_bytes": "2048",
        f"{base}/jobs/memory.usage_in_bytes": "1024",
        f"{base}/jobs/memory.stat": "total_inactive_file 24\n",
    }
    assert free_bytes(tree(tmp_path, "4:cpu,memory:/jobs\n3:cpuset:/\n0::/\n", files)) == 1048


@pytest.mark.parametrize("groups", ["", "0::/\n", "3:cpuset:/\n"])
def test_without_a_limit(tmp_path: Path, groups: str) -> None:
    assert free_bytes(tree(tmp_path, groups, {})) is None
    assert free_bytes(tmp_path / "absent") is None


def test_a_device_has_no_more_than_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "free_bytes", lambda: 4096)
    free, total = device.CPUDevice().memory_info()
    assert free == 4096 < total


def test_limits_of_groups_above(tmp_path: Path) -> None:
    files = v2("a", "1000", 700) | v2("a/b", "max", 700) | v2("a/b/c", "5000", 600)
    cores = {"sys/fs/cgroup/a/cpu.max": "150000 100000\n", "sys/fs/cgroup/a/b/c/cpu.max": "max 100000\n"}
    root = tree(tmp_path, "0::/a/b/c\n", files | cores)
    assert limit_bytes(root) == 1000 and granted_cores(root) == 1.5


def test_limits_of_version_1(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    files = {
        f"{base}/memory/job/memory.limit_in_bytes": "4096",
        f"{base}/cpu/job/cpu.cfs_quota_us": "-1",
        f"{base}/cpu/cpu.cfs_quota_us": "50000",
        f"{base}/cpu/cpu.cfs_period_us": "100000",
    }
    root = tree(tmp_path, "4:cpu,cpuacct:/job\n7:memory:/job\n", files)
    assert limit_bytes(root) == 4096 and granted_cores(root) == 0.5


@pytest.mark.parametrize("text", ["", "max", "nothing", "9" * 5000, "\udcff"])
def test_files_that_tell_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for name in ("memory.max", "memory.current", "memory.stat", "cpu.max"):
        (tmp_path / "sys/fs/cgroup" / name).write_bytes(text.encode(errors="surrogateescape"))
    assert limit_bytes(tmp_path) is free_bytes(tmp_path) is granted_cores(tmp_path) is None
