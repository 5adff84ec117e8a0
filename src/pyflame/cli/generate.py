"""`pyflame generate PROMPT`: let a language model continue a text."""

from __future__ import annotations

import sys

from pyflame.cli.llm_arguments import begin_with, load_model, parser, sampling, show_speed, speculation, write
from pyflame.core.errors import PyFlameError


def run(argv: list[str]) -> int:
    out = parser("generate", "Let a language model continue a text.")
    out.add_argument("prompt", help="the text to continue; - reads standard input")
    out.add_argument("--stop", action="append", default=[], help="end before this text; may be given several times")
    args = out.parse_args(argv)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    try:
        model = load_model(args)
        begin_with(model, args.prompt_cache, model.encode(prompt))
        stream = model.stream(prompt, stop=args.stop, **sampling(args), **speculation(args))
        write(prompt)
        for chunk in stream:
            write(chunk.text)
    except (PyFlameError, FileNotFoundError) as error:
        print(f"pyflame generate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        write("\n")
        return 130
    write("\n")
    if args.stats:
        show_speed(stream.timings)
    return 0
