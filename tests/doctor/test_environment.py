"""`pyflame env`: verdicts on variables, the files they are read from, and what is recommended."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pyflame.cli import main
from pyflame.core import knobs
from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.doctor.environment import (
    TABLE,
    Assignment,
    Finding,
    Machine,
    find_machine,
    judge,
    judge_environment,
    lines_for,
    read_file,
)
from pyflame.doctor.environment.setup import GPUS, WORK

NEW = Machine(("gfx1100",), (7, 14), (2, 12))
OLD = Machine(("gfx1100",), (6, 3), (2, 4))
PAIR = "expandable_segments:True,max_split_size_mb:128"


def verdicts(machine: Machine | None = None, **environment: str) -> dict[str, str]:
    return {f.assignment.name: f.verdict.value for f in judge_environment(environment, machine)}


def only(machine: Machine | None = None, **environment: str) -> Finding:
    (found,) = judge_environment(environment, machine)
    return found


# --- the set-up script of seed 004 ------------------------------------------------------------------------------------

# Every variable that its shell blocks set, with what must be said of it.
SEED_SHELL = [
    ("HIP_VISIBLE_DEVICES", "0,1", "right"),
    ("PYTORCH_ROCM_ARCH", "gfx1100", "build-time only"),
    ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128", "dangerous"),
    ("HSA_ENABLE_SDMA", "0", "needless"),
    ("HSA_ENABLE_INTERRUPT", "0", "needless"),
    ("HSA_UNALIGNED_ACCESS_MODE", "1", "dead"),
    ("GPU_MAX_ALLOC_PERCENT", "100", "dead"),
    ("HIP_HIDDEN_FREE_MEM", "256", "needless"),
    ("GPU_SINGLE_ALLOC_PERCENT", "90", "needless"),
    ("TORCH_COMPILE_BACKEND", "inductor", "dead"),
    ("CUDA_LAUNCH_BLOCKING", "1", "contradictory"),
    ("HIP_LAUNCH_BLOCKING", "0", "contradictory"),
    ("CUDA_VISIBLE_DEVICES", "0,1", "needless"),
    ("WORLD_SIZE", "2", "needless"),
    ("NCCL_DEBUG", "WARN", "right"),
    ("NCCL_SOCKET_IFNAME", "lo", "needless"),
    ("NCCL_NSOCKS_PERTHREAD", "4", "needless"),
    ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,expandable_segments:True", "dangerous"),
    ("TORCH_BLAS_PREFER_HIPBLASLT", "0", "dangerous"),
    ("ROCM_LOG_LEVEL", "2", "dead"),
]
# What its Python blocks set, inside of functions and classes, where torch has long been imported.
SEED_PYTHON = [
    ("HIP_VISIBLE_DEVICES", "0", "too late"),
    ("HSA_ENABLE_SDMA", "0", "too late"),
    ("HSA_ENABLE_INTERRUPT", "0", "too late"),
    ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128", "dangerous"),
    ("MASTER_ADDR", "127.0.0.1", "right"),
    ("MASTER_PORT", "12355", "right"),
]


def test_every_line_of_the_seed_script(tmp_path: Path) -> None:
    file = tmp_path / "setup.sh"
    file.write_text("#!/bin/bash\n" + "".join(f"export {name}='{value}'\n" for name, value, _ in SEED_SHELL))
    found = judge(read_file(file), NEW)
    assert [(f.assignment.name, f.assignment.value, f.verdict.value) for f in found] == SEED_SHELL
    assert [f.assignment.where for f in found] == [f"{file}:{n}" for n in range(2, len(SEED_SHELL) + 2)]
    assert all(f.why for f in found if f.verdict.value != "right")


def test_every_assignment_of_the_seed_program(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    lines = [f"    os.environ[{name!r}] = {value!r}" for name, value, _ in SEED_PYTHON]
    file.write_text("\n".join(["import os", "import torch", "def set_up():", *lines]))
    found = judge(read_file(file), NEW)
    assert [(f.assignment.name, f.assignment.value, f.verdict.value) for f in found] == SEED_PYTHON


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_allocator_options_that_read_zeros(name: str) -> None:
    for machine, words in (
        (NEW, "silently reads as zeros"),
        (Machine(), "silently reads as zeros"),
        (Machine((), (7, 2), (2, 12)), "grows until the GPU is full"),
    ):
        found = only(machine, **{name: PAIR})
        assert found.verdict.value == "dangerous" and words in found.why, machine
    for machine in (Machine((), (6, 4), (2, 9)), Machine((), (7, 14), (2, 9)), Machine((), (6, 4), None)):
        found = only(machine, **{name: PAIR})  # expandable_segments does nothing there
        assert found.verdict.value == "needless" and "read as zeros" in found.why, machine
    for half in (
        "expandable_segments:True",
        "max_split_size_mb:128",
        "expandable_segments:False,max_split_size_mb:128",
    ):
        assert only(NEW, **{name: half}).verdict.value == "right", half
    new_name = name == "PYTORCH_ALLOC_CONF"  # which torch 2.4 does not know
    old = only(OLD, **{name: "expandable_segments:True"})
    assert old.verdict.value == ("dead" if new_name else "needless")
    old = only(OLD, **{name: "max_split_size_mb:128"})
    assert (old.verdict.value, old.do) == (
        ("dead", "write PYTORCH_HIP_ALLOC_CONF, on NVIDIA PYTORCH_CUDA_ALLOC_CONF") if new_name else ("right", "")
    )


@pytest.mark.parametrize(
    ("gpu", "value", "verdict"),
    [
        ("gfx1032", "10.3.0", "right"),
        ("gfx1100", "11.0.0", "needless"),
        ("gfx1100", "10.3.0", "dangerous"),  # another generation
        ("gfx1103", "11.0.0", "dangerous"),  # the same, but other code
        ("gfx90a", "9.0.10", "needless"),
        ("gfx1032", "", "dangerous"),
        ("gfx1032", "gfx1030", "wrong value"),
        ("", "10.3.0", "dangerous"),
    ],
)
def test_the_override_of_the_gpu(gpu: str, value: str, verdict: str) -> None:
    machine = Machine((gpu,) if gpu else ())
    assert only(machine, HSA_OVERRIDE_GFX_VERSION=value).verdict.value == verdict


@pytest.mark.parametrize(
    ("environment", "verdict"),
    [
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "contradictory"),
        ({"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "2"}, "contradictory"),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, "right"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_HIP_ALLOC_CONF": "max_split_size_mb:32"},
         "contradictory"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_HIP_ALLOC_CONF": "max_split_size_mb:64"}, "right"),
        ({"NCCL_SOCKET_IFNAME": "lo", "MASTER_ADDR": "10.0.0.7"}, "contradictory"),
        ({"NCCL_SOCKET_IFNAME": "lo", "MASTER_ADDR": "localhost"}, "needless"),
        ({"PYTORCH_TUNABLEOP_TUNING": "0"}, "needless"),
        ({"PYTORCH_TUNABLEOP_TUNING": "0", "PYTORCH_TUNABLEOP_ENABLED": "1"}, "right"),
        ({"AMD_LOG_MASK": "7"}, "needless"),
        ({"MIOPEN_FIND_MODE": "4"}, "wrong value"),
        ({"MIOPEN_FIND_MODE": "fast"}, "right"),
        ({"MIOPEN_FIND_MODE": "NORMAL"}, "needless"),
        ({"MIOPEN_FIND_MODE": "1"}, "needless"),
        ({"MIOPEN_USER_DB_PATH": "/nfs/home/me"}, "dangerous"),
        ({"HSA_ENABLE_SDMA": "1"}, "needless"),
        ({"HSA_ENABLE_SDMA": "off"}, "wrong value"),
        ({"PYFLAME_THREADS": "many"}, "wrong value"),
        ({"PYFLAME_THREADS": "4"}, "right"),
    ],
)  # fmt: skip
def test_verdicts(environment: dict[str, str], verdict: str) -> None:
    assert verdicts(NEW, **environment)[next(iter(environment))] == verdict


def test_verdicts_follow_the_machine() -> None:
    name = "TORCH_BLAS_PREFER_HIPBLASLT"
    for gpu, rocm, torch, value, verdict in (
        ("gfx1100", (7, 2), (2, 12), "0", "dangerous"), ("gfx1100", (6, 4), (2, 8), "0", "right"),
        ("gfx942", (7, 2), (2, 12), "0", "needless"), ("gfx1100", (7, 2), (2, 12), "1", "needless"),
        ("gfx1100", (7, 2), (2, 9), "1", "right"), ("gfx942", (7, 2), (2, 9), "1", "needless"),
    ):  # fmt: skip
        assert verdicts(Machine((gpu,), rocm, torch), **{name: value}) == {name: verdict}, (gpu, rocm, torch, value)
    assert verdicts(**{name: "0"}) == {name: "needless"}  # of which GPU it is not known
    on = {"HSA_ENABLE_DXG_DETECTION": "1"}
    assert verdicts(Machine((), (7, 12), None, True), **on) == {"HSA_ENABLE_DXG_DETECTION": "right"}
    assert verdicts(Machine((), (7, 13), None, True), **on) == {"HSA_ENABLE_DXG_DETECTION": "needless"}
    assert verdicts(Machine(wsl=False), **on) == {"HSA_ENABLE_DXG_DETECTION": "needless"}


def test_nvidia() -> None:
    nvidia = Machine(torch=(2, 12), cuda=True)
    assert only(nvidia, PYTORCH_ALLOC_CONF=PAIR).verdict.value == "dangerous"
    assert only(nvidia, PYTORCH_ALLOC_CONF="expandable_segments:True").verdict.value == "right"
    assert (
        only(Machine(torch=(2, 8), cuda=True), PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True").verdict.value
        == "right"
    )
    assert verdicts(nvidia, CUDA_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="0")["CUDA_VISIBLE_DEVICES"] == "right"


def test_other_names() -> None:
    found = only(Machine(("gfx1032",)), HSA_OVERRIDE_GFX_VERSION_1="10.3.0")  # of one GPU among several
    assert found.verdict.value == "right" and found.assignment.name == "HSA_OVERRIDE_GFX_VERSION_1"
    assert "HIP_VISIBLE_DEVICES" in only(NEW, CUDA_VISIBLE_DEVICES="0").do
    assert only(CUDA_VISIBLE_DEVICES="0").do == ""  # maybe NVIDIA's


def test_slips_of_the_pen() -> None:
    assert "PYFLAME_THREADS" in only(PYFLAME_THREAD="3").why
    assert only(PYFLAME_NONSENSE_OF_MINE="3").verdict.value == "dead"
    assert only(HIP_VISIBLE_DEVICE="0").verdict.value == "unknown"
    assert judge_environment({"PATH": "/bin", "TORCH_HOME": "/tmp", "GPU_NAME": "x"}) == []


def test_every_knob_and_its_default_is_known() -> None:
    for knob in knobs.ALL:
        assert verdicts(**{knob.name: knob.default}).get(knob.name) in ("right", "needless"), knob.name


def test_values_that_only_the_program_knows() -> None:
    (found,) = judge([Assignment("HSA_ENABLE_SDMA", None)])
    assert found.verdict.value == "right"
    (found,) = judge([Assignment("GPU_MAX_ALLOC_PERCENT", None)])
    assert found.verdict.value == "dead"


# --- files ------------------------------------------------------------------------------------------------------------


def read(folder: Path, name: str, text: str) -> list[tuple[str, str | None, int]]:
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return [(a.name, a.value, int(a.where.rpartition(":")[2])) for a in read_file(file)]


def test_shell_scripts(tmp_path: Path) -> None:
    text = """\
        # don't read this: A=1
        export A=1 B='two words'  # C=3
        D="x y" E=$HOME python train.py F=6
        if true; then export G=7; fi; H=8
        env I=9 \\
            J=10 command --flag=11
        echo "K=12"
        python -c "
        L=13
        "
        echo it's prose
        export M=14
        """
    assert read(tmp_path, "setup.sh", text) == [
        ("A", "1", 2), ("B", "two words", 2), ("D", "x y", 3), ("E", None, 3), ("G", "7", 4), ("H", "8", 4),
        ("I", "9", 5), ("J", "10", 5), ("M", "14", 12),
    ]  # fmt: skip


def test_other_ways_to_set_a_variable(tmp_path: Path) -> None:
    text = """\
        export A=${A:-1} B="${C:-$D}"
        : "${E:=5}" ${F:-6}
        docker run -it --device=/dev/kfd -e G=7 --env H=8 --env=I=9 rocm/pytorch J=10
        mpirun -n 2 -x K=11 python train.py
        /usr/bin/env L=12 python train.py
        if ! M=13 command; then nohup N=14 x & fi
        bash -lc 'O=15 x; echo R=18'; sh -c "export P=16; Q=17 x"
        """
    assert read(tmp_path, "setup.sh", text) == [
        ("A", "1", 1), ("B", None, 1), ("E", "5", 2), ("G", "7", 3), ("H", "8", 3), ("I", "9", 3), ("K", "11", 4),
        ("L", "12", 5), ("M", "13", 6), ("N", "14", 6), ("O", "15", 7), ("P", "16", 7), ("Q", "17", 7),
    ]  # fmt: skip
    text = 'CMD A=1 python train.py\nENTRYPOINT ["bash", "-c", "export B=2; exec x C=3"]\nCMD ["python", "D=4"]\n'
    assert read(tmp_path, "Dockerfile", text) == [("A", "1", 1), ("B", "2", 2)]
    text = "[Service]\nExecStartPre=-/usr/bin/env A=1 x\nExecStart=/bin/sh -c 'B=2 x C=3'\nEnvironment=D=${E:-4}\n"
    assert read(tmp_path, "a.service", text) == [("A", "1", 2), ("B", "2", 3), ("D", "4", 4)]


def test_dockerfiles(tmp_path: Path) -> None:
    text = """\
        FROM rocm/pytorch
        ARG PYTORCH_ROCM_ARCH=gfx942
        ENV A=1 \\
            # a comment between
            B="two words"
        ENV OLD form of it
        RUN export LOST=1
        """
    found = [("PYTORCH_ROCM_ARCH", "gfx942", 2), ("A", "1", 3), ("B", "two words", 3), ("OLD", "form of it", 6)]
    assert read(tmp_path, "Dockerfile.rocm", text) == found


def test_settings_and_units(tmp_path: Path) -> None:
    text = "A=1\n# B=2\nexport C='x # y'\nD=4 # four\nE=${A}\nnot a setting\n"
    assert read(tmp_path, ".env", text) == [("A", "1", 1), ("C", "x # y", 3), ("D", "4", 4), ("E", None, 5)]
    text = '[Service]\nEnvironment="A=x y" B=2\nEnvironment=C=3 \\\n  D=4\nExecStart=/bin/x E=5\n'
    found = [("A", "x y", 2), ("B", "2", 2), ("C", "3", 3), ("D", "4", 3)]
    assert read(tmp_path, "serve.service", text) == found


def test_programs(tmp_path: Path) -> None:
    text = """\
        import os
        from os import environ
        os.environ["A"] = "1"
        environ.setdefault("B", "2")
        os.environ.update({"C": "3"}, D=str(4))
        try:
            import torch.nn
        except ImportError:
            pass
        os.putenv("E", "5")
        os.environ[name] = "6"
        settings["F"] = "7"
        """
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(text))
    found = [(a.name, a.value, a.late) for a in read_file(file)]
    assert found == [("A", "1", ""), ("B", "2", ""), ("C", "3", ""), ("D", None, ""), ("E", "5", "torch")]


def test_an_import_within_a_function_is_not_above(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import os\ndef f():\n    import torch\nos.environ['HIP_VISIBLE_DEVICES'] = '0'\n")
    assert judge(read_file(file))[0].verdict.value == "right"


@pytest.mark.parametrize("name", ["setup.sh", "Dockerfile", ".env", "a.service", "train.py"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    """Whatever a file holds, it is read or refused in words."""
    rng = random.Random(0)
    text = "[Service]\nEnvironment='A=1'\nENV A=1 \\\n B=2\nexport C=\"3\" # it's\nimport os\nos.environ['D'] = '4'\n"
    for _ in range(300):
        damaged = list(text)
        for at in rng.choices(range(len(damaged)), k=6):
            damaged[at] = rng.choice("\\'\"#=$\n ;&|(){}`\0é")
        file = tmp_path / name
        file.write_text("".join(damaged))
        with contextlib.suppress(FileFormatError):
            judge(read_file(file))


@pytest.mark.parametrize("content", [b"def f(:\n", b"\xff\xfe\x00", b"x = '\x00'\n"])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.py"
    file.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"broken\.py"):
        read_file(file)


# --- the machine ------------------------------------------------------------------------------------------------------


def test_the_machine_is_read_from_files(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, version in enumerate((0, 90402, 110000, 110000)):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(f"cpu_cores_count 8\ngfx_target_version {version}\n")
    (tmp_path / "opt/rocm/.info").mkdir(parents=True)
    (tmp_path / "opt/rocm/.info/version").write_text("7.2.1-42\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    assert find_machine(tmp_path) == Machine(("gfx942", "gfx1100"), (7, 2), None, True)
    assert find_machine(tmp_path / "nowhere") == Machine((), None, None, False)
    (tmp_path / "other/proc/driver/nvidia").mkdir(parents=True)
    assert find_machine(tmp_path / "other").cuda


def test_nothing_heavy_is_imported() -> None:
    script = "import sys; from pyflame.cli import main; main(['env']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# --- what to set ------------------------------------------------------------------------------------------------------


def test_what_is_recommended_is_right() -> None:
    for gpu in GPUS:
        for work in WORK:
            for torch in ((2, 9), (2, 12)):
                machine = Machine((gpu,), (7, 2), torch, False)
                lines = lines_for(gpu, work, machine)
                assert len(lines) <= 3 and all(line.why for line in lines)
                found = verdicts(machine, **{line.name: line.value for line in lines})
                assert set(found.values()) <= {"right"} and len(found) == len(lines), (gpu, work, found)


def test_recommendations() -> None:
    assert lines_for("gfx942", "serving") == []
    assert [line.name for line in lines_for("gfx1032", "inference")] == ["HSA_OVERRIDE_GFX_VERSION", "MIOPEN_FIND_MODE"]
    old = [line.name for line in lines_for("gfx1151", "training", Machine((), (7, 2), (2, 9)))]
    assert old == ["TORCH_BLAS_PREFER_HIPBLASLT", "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"]
    wsl = lines_for("gfx1100", "training", Machine((), (7, 2), None, True))
    assert str(wsl[0]).startswith("export HSA_ENABLE_DXG_DETECTION=1  # ")
    with pytest.raises(ArgumentError, match="gfx1100"):
        lines_for("gfx1110", "training")
    with pytest.raises(ArgumentError, match="training"):
        lines_for("gfx1100", "trainin")


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_judges_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, good = tmp_path / "bad.sh", tmp_path / "good.sh"
    bad.write_text(f"export PYTORCH_ALLOC_CONF={PAIR}\n")
    good.write_text("export HSA_ENABLE_SDMA=0\n")
    assert main(["env", str(bad), "--rocm", "7.14", "--torch", "2.12", "--gpu", "gfx1201"]) == 1
    out = capsys.readouterr().out
    assert "dangerous" in out and "6603" in out and "gfx1201, ROCm 7.14, torch 2.12" in out
    assert main(["env", str(good), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["variable"] == "HSA_ENABLE_SDMA" and found["verdict"] == "needless" and found["where"] == f"{good}:1"
    assert main(["env", str(bad), "--gpu", "sm_90"]) == 1
    assert "judged for GPU NVIDIA" in capsys.readouterr().out
    assert main(["env", str(tmp_path / "nothing.sh")]) == 2
    assert main(["env", str(good), "--rocm", "new"]) == 2


def test_the_command_judges_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in TABLE:
        monkeypatch.delenv(name, raising=False)
    assert main(["env"]) == 0
    assert "no variable" in capsys.readouterr().out
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "")
    assert main(["env", "--gpu", "gfx1100"]) == 1
    assert "gfx000" in capsys.readouterr().out


def test_the_command_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "explain", "HSA_ENABLE_SDMA"]) == 0
    out = capsys.readouterr().out
    assert "ROCr" in out and "copy engines" in out and "flag.h" in out
    assert main(["env", "explain", "PYTORCH_ALLOC_CONF"]) == 0
    assert "torch before 2.11" in capsys.readouterr().out
    assert main(["env", "explain", "PYFLAME_THREADS", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["read by"] == "PyFlame"
    assert main(["env", "explain", "HSA_ENABLE_SMDA"]) == 2
    assert "HSA_ENABLE_SDMA" in capsys.readouterr().err


def test_the_command_sets_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "setup", "--gpu", "gfx1032", "--for", "training"]) == 0
    assert capsys.readouterr().out.startswith("export HSA_OVERRIDE_GFX_VERSION=10.3.0  # ")
    assert main(["env", "setup", "--gpu", "gfx942", "--for", "training"]) == 0
    assert capsys.readouterr().out == "# gfx942 needs nothing for training\n"
    assert main(["env", "setup", "--gpu", "sm_90"]) == 0
    assert capsys.readouterr().out == "# a GPU of NVIDIA needs nothing for training\n"
    assert main(["env", "setup", "--gpu", "gfx1100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["variable"] == "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"
