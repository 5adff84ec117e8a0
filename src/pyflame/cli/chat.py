"""`pyflame chat`: talk to a language model. Ctrl-C ends an answer, Ctrl-D the chat; /clear forgets what was said."""

from __future__ import annotations

import sys
from typing import Any

from pyflame.cli.llm_arguments import begin_with, load_model, parser, sampling, show_speed, speculation, write
from pyflame.core.errors import PyFlameError
from pyflame.llm import Model

_LEAST_ROOM = 128  # tokens that an answer gets, at the expense of what was said first


def run(argv: list[str]) -> int:
    out = parser("chat", "Talk to a language model. Ctrl-C ends an answer, Ctrl-D the chat; /clear starts anew.")
    out.add_argument("question", nargs="?", help="ask this and leave")
    out.add_argument("--system", help="what the model is told before all else")
    args = out.parse_args(argv)
    try:
        model = load_model(args)
        chat = Chat(model, args.system, sampling(args) | speculation(args), args.stats, args.prompt_cache)
        if args.question is not None:
            chat.ask(args.question)
            return 0
        while (line := _question()) is not None:
            if line == "/clear":
                chat.clear()
            elif line:
                chat.ask(line)
    except (PyFlameError, FileNotFoundError) as error:
        print(f"pyflame chat: {error}", file=sys.stderr)
        return 1
    return 0


def _question() -> str | None:
    """The next line, None at the end."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        return None


class Chat:
    """What was said so far."""

    def __init__(
        self, model: Model, system: str | None, options: dict[str, Any], stats: bool, prompt_cache: str | None = None
    ) -> None:
        self.model, self.options, self.stats, self.prompt_cache = model, options, stats, prompt_cache
        self.system = [] if system is None else [{"role": "system", "content": system}]
        self.clear()

    def clear(self) -> None:
        """Forget what was said."""
        self.messages: list[dict[str, Any]] = []

    def ask(self, question: str) -> None:
        """Show the answer as it is written. One that is cut short is remembered as far as it went."""
        self.messages.append({"role": "user", "content": question})
        self._forget()
        begin_with(self.model, self.prompt_cache, self.model.chat_tokens(self.system + self.messages))
        self.prompt_cache = None  # the file is for what a chat begins with
        stream = self.model.stream(messages=self.system + self.messages, **self.options)
        answer = ""
        try:
            for chunk in stream:
                answer += chunk.text
                write(chunk.text)
        except KeyboardInterrupt:
            stream.close()
        write("\n")
        self.messages.append({"role": "assistant", "content": answer})
        if self.stats and stream.finished:
            show_speed(stream.timings)

    def _forget(self) -> None:
        """Leave out the oldest question and answer while there is no room for another answer."""
        room = min(self.options["max_tokens"] or _LEAST_ROOM, self.model.context // 2)
        while len(self.messages) > 1 and self._length() + room > self.model.context:
            del self.messages[:2]

    def _length(self) -> int:
        return len(self.model.chat_tokens(self.system + self.messages))
