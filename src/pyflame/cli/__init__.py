"""The command line. One file per command, imported when it is called."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "demo": "train a small GPT on Python's own source, let it write code, and show what ran",
    "chat": "talk to a language model; without a name to a small one that is fetched once",
    "generate": "let a language model continue a text",
    "serve": "serve language models over HTTP: OpenAI's and Ollama's interfaces, metrics and a chat page",
    "devices": "list the devices of this machine",
    "doctor": "find what is wrong with this machine: driver, rights, ROCm, compilers, GPUs, and what mends it",
    "profile": "run a script and show what it launched, how long each kernel took and how fast that was",
    "kernels": "build typical kernels for GPUs that need not be here, and show registers, spills, LDS and occupancy",
    "llm": "look into a language model's files, measure and convert it: bench, convert, estimate, info, load-test, ...",
    "env": "judge the environment variables of GPUs, here or in a script; setup and explain tell what to set and why",
    "monitor": "watch GPUs, the processes on them and this machine: use, memory, power, clock, temperature, ECC",
    "selftest": "try a device for two minutes, every kind of op against the CPU, and print a report for a bug",
    "verify": "compare the values of a script or a language model op by op between devices",
    "onnx": "run an ONNX model, or list its operators, inputs and sizes",
    "sim": "run a HIP kernel on a simulated AMD GPU and show what it did, line by line",
}


def main(argv: list[str] | None = None) -> int:
    """`pyflame COMMAND ...`: hand over to the command's own file."""
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help", "help"):
        print("usage: pyflame COMMAND [options]\n")
        for name, doc in COMMANDS.items():
            print(f"  {name:10} {doc}")
        return 0
    if args[0] not in COMMANDS:
        from pyflame.core.errors import suggest

        print(f"pyflame: no command {args[0]!r}{suggest(args[0], COMMANDS)}; see pyflame --help", file=sys.stderr)
        return 2
    command = importlib.import_module(f"pyflame.cli.{args[0]}")
    return int(command.run(args[1:]))
