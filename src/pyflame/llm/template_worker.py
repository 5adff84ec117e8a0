"""Renders chat templates in a process of its own (see chat.py): `template_worker.py CPU_SECONDS MEMORY_BYTES`.

It imports nothing of PyFlame, to start fast. One JSON object per line comes in and goes out. A template is a program
that came with a model: jinja2's sandbox keeps it from the machine, and this process's limits from filling memory or
running for ever, which a sandbox within a process cannot.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder: its names are not meant for others

import datetime
import functools
import json
import resource
import signal
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEXT_LIMIT = 1 << 26  # characters


class Refusal(Exception):
    """What a template refuses by itself, with raise_exception."""


class Generation(Extension):
    """{% generation %}: marks the assistant's words for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012  jinja2's own form

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def raise_exception(message: str) -> None:
    raise Refusal(message)


def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Not jinja2's own, which escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


@functools.lru_cache(8)
def compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment.from_string(template)


def render(template: str, values: dict[str, Any]) -> dict[str, str]:
    parts, length = [], 0
    for part in compiled(template).generate(**values):
        parts.append(part)
        length += len(part)
        if length > TEXT_LIMIT:
            return {"limit": f"a text of {TEXT_LIMIT:,} characters"}
    return {"text": "".join(parts)}


def answer(line: bytes) -> str:
    request = json.loads(line)
    try:
        return json.dumps(render(request["template"], request["values"]))
    except Refusal as error:
        return json.dumps({"refused": str(error)})
    except jinja2.TemplateSyntaxError as error:
        return json.dumps({"error": f"line {error.lineno}: {error.message}"})
    except MemoryError:
        return json.dumps({"limit": f"{int(sys.argv[2]) >> 20} MB of memory"})
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]})


def main() -> None:
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends this process, also within one long call
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        out = answer(line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(out.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
