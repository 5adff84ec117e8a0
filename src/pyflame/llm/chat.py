"""Chat templates: messages to the text that a model was trained on, by jinja2 in its sandbox.

A template comes with a model's files and may be hostile. It is rendered by a process that is kept for the next call,
with limits on its time and memory: jinja2's sandbox forbids what is dangerous, not what is endless or huge.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from pyflame.core.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from pyflame.core.optional import optional
from pyflame.llm.tokenizer import Tokenizer

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_CPU_SECONDS = 2.0  # a template needs milliseconds
_MEMORY_BYTES = 1 << 30
_WORKER = Path(__file__).with_name("template_worker.py")


def template_for(template: str | None, tokenizer: Tokenizer) -> str:
    """The model's own template; ChatML where it has none and its vocabulary has ChatML's tokens."""
    if template is not None:
        return template
    if all(tokenizer.id(token) is not None for token in ("<|im_start|>", "<|im_end|>")):
        return CHATML
    raise NotSupportedError(
        f"[chat] expected a chat template but {tokenizer.path} has none, and no tokens of ChatML; give template=, or a "
        "prompt instead of messages"
    )


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    **values: Any,
) -> str:
    """The text of a chat. Messages are dicts with "role" and "content", and what else the template reads; tools are
    JSON schemas of functions; `values` are the template's other names (bos_token, enable_thinking, documents).

    >>> render(CHATML, [{"role": "user", "content": "Hi"}])
    '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
    """
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ArgumentTypeError(f"[chat] expected messages that are dicts with a role but got {message!r}")
    given = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt, **values}
    try:
        request = json.dumps({"template": template, "values": given}, default=_as_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(
            f"[chat] expected messages, tools and values of JSON's types but got: {error}"
        ) from None
    answer = _ask(request)
    if "text" in answer:
        return cast(str, answer["text"])
    if "refused" in answer:
        raise ArgumentError(
            f"[chat] expected messages that the model's template takes but it says: {answer['refused']}"
        )
    if "limit" in answer:
        raise ArgumentError(f"[chat] expected a chat template that makes do with {answer['limit']} but it does not")
    raise ArgumentError(f"[chat] expected a chat template that can be rendered but got: {answer['error']}")


def _as_json(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} {value!r}")


class _Worker:
    """The process, its pipes and the lock of who talks to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: str) -> dict[str, Any]:
        with self._lock:
            process = self._process = self._process or _start()
            try:
                line = _exchange(process, request)
            except BaseException:  # an answer that nobody has read would be taken for the next one
                self._stop()
                raise
            if not line:
                self._stop()
                return {"limit": f"{_CPU_SECONDS:g} seconds of CPU time and {_MEMORY_BYTES >> 20} MB of memory"}
            return cast("dict[str, Any]", json.loads(line))

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    cast("IO[bytes]", pipe).close()
            process.wait()


def _start() -> subprocess.Popen[bytes]:
    optional("jinja2", "llm", "chat")
    return subprocess.Popen(
        [sys.executable, str(_WORKER), str(_CPU_SECONDS), str(_MEMORY_BYTES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},  # its jinja2 is ours
        start_new_session=True,  # Ctrl-C is not for it; it ends when its input does
    )


def _exchange(process: subprocess.Popen[bytes], request: str) -> bytes:
    """The answer's line; empty where the process has ended."""
    into, out = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    try:
        into.write(request.encode() + b"\n")
        into.flush()
    except BrokenPipeError:
        return b""
    return out.readline()


_worker = _Worker()


def _ask(request: str) -> dict[str, Any]:
    return _worker.ask(request)


def _forget() -> None:
    """A forked process starts a worker of its own: two that read one pipe would take each other's answers."""
    global _worker
    _worker = _Worker()


os.register_at_fork(after_in_child=_forget)
