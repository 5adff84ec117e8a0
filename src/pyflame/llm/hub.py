"""Models of Hugging Face repositories, through `huggingface_hub` where it is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyflame.core.errors import ArgumentError, NotSupportedError

_FOLDER = ("*.json", "*.safetensors", "*.jinja")
_LATER_PART = re.compile(r"-(?!00001-)\d{5}-of-\d{5}\.gguf$")


def from_hub(name: str) -> Path:
    """The path of a repository's model on this machine. "owner/name" is a folder of safetensors, or the one GGUF file
    that there is; "owner/name:Q4_K_M" is the GGUF file whose name has that word. Without a network it is what was
    fetched before."""
    try:
        import huggingface_hub as hub
    except ImportError:
        raise NotSupportedError(
            f"[llm] expected a path but got {name!r}; pip install huggingface_hub to fetch repositories"
        ) from None
    repository, _, word = name.partition(":")
    try:
        files = hub.HfApi().list_repo_files(repository)
        patterns = _wanted(name, files, word)
        folder = Path(hub.snapshot_download(repository, allow_patterns=patterns))
    except ArgumentError:
        raise
    except Exception as error:  # also errors of the library's HTTP client, which changes from version to version
        folder = _fetched_before(hub, repository, error)
        patterns = _wanted(name, [str(file.relative_to(folder)) for file in folder.rglob("*")], word)
    return folder if patterns == list(_FOLDER) else folder / min(patterns)


def _fetched_before(hub: Any, repository: str, error: Exception) -> Path:
    try:
        return Path(hub.snapshot_download(repository, local_files_only=True))
    except (OSError, ValueError):
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise FileNotFoundError(
            f"[llm] expected the Hugging Face repository {repository} but could not fetch it: {reason}"
        ) from None


def _wanted(name: str, files: list[str], word: str) -> list[str]:
    """The files to fetch: all of a folder of safetensors, or all parts of one GGUF file."""
    if not word and "config.json" in files and any(f.endswith(".safetensors") for f in files):
        return list(_FOLDER)
    models: dict[str, list[str]] = {}
    for file in sorted(f for f in files if f.endswith(".gguf") and word.lower() in Path(f).name.lower()):
        models.setdefault(re.sub(r"-\d{5}-of-\d{5}\.gguf$", ".gguf", file), []).append(file)
    if len(models) == 1:
        return next(iter(models.values()))
    all_of_them = sorted(f for f in files if f.endswith(".gguf") and not _LATER_PART.search(f))
    raise ArgumentError(
        f"[llm] expected one model but {name} has {len(models)}; name one by a word of its file, as in "
        f"{name.partition(':')[0]}:Q4_K_M, of {', '.join(all_of_them) or 'none: there are no .gguf files'}"
    )
