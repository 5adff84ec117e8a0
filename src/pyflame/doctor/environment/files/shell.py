"""Shell scripts: `export A=b`, `A=b`, `A=b command`, `env A=b command`, `declare -x A=b`, `: ${A:=b}`,
`docker run -e A=b`, `bash -c "A=b command"`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?([-=])([^$`}]*)\}")  # ${A:-b}: what A is where nothing else says
_BEFORE = {
    "export", "env", "declare", "typeset", "local", "readonly", "sudo", "exec", "command", "nohup", "time",
    "if", "elif", "while", "until", "!", "then", "do", "else", "{", "(",
}  # fmt: skip
_SHELLS = {"sh", "bash", "dash", "zsh"}
_OPTIONS = {"-e", "--env", "-x"}  # of docker and podman, of mpirun: a variable for the program that they start
_LONGEST = 200  # lines that one command may have
_ENDS = {";", "&&", "||", "|", "&", ";;", "(", ")", "{", "}"}


def known_value(text: str) -> str | None:
    """The value, or None where the shell puts something in; of `${A:-b}` b.

    >>> known_value("${HSA_ENABLE_SDMA:-0}"), known_value("$HOME")
    ('0', None)
    """
    default = _DEFAULT.fullmatch(text)
    if default:
        return default[3]
    return None if "$" in text or "`" in text else text


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, lines that belong together): by a backslash, or by an open quotation mark."""
    rows = text.splitlines()
    at = 0
    while at < len(rows):
        parts, end = list[str](), at
        quote, more = "", True
        while more and end < len(rows) and end - at < _LONGEST:
            quote, more = _after(rows[end], quote)
            joins = more and not quote  # a backslash: the line break goes, which one in quotation marks does not
            parts.append(rows[end].rstrip()[:-1] if joins else rows[end] + "\n" * bool(quote))
            end += 1
        if quote:  # never closed: an apostrophe in the prose of a here-document
            parts, end = [rows[at]], at + 1
        yield at + 1, "".join(parts)
        at = end


def _after(row: str, quote: str) -> tuple[str, bool]:
    """The quotation mark that is open after a line, and whether the line goes on in the next."""
    at, word = 0, False
    while at < len(row):
        c = row[at]
        if c == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#" and not word:
            return "", False
        word = not c.isspace()
        at += 1
    return quote, bool(quote) or at > len(row)


def assignments(words: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Name and value of what commands assign, given as the words that a shell makes of them."""
    program, before = "", ""  # of the command: before it words with = are assignments, behind it arguments
    for word in words:
        found = _ASSIGNMENT.fullmatch(word.removeprefix("--env="))
        default = _DEFAULT.fullmatch(word)
        if found and (not program or before in _OPTIONS or word.startswith("--env=")):
            yield found[1], known_value(found[2])
        elif default and default[2] == "=":
            yield default[1], default[3]
        elif word in _ENDS or set(word) <= set(";&|()"):
            program = ""
        elif program in _SHELLS and re.fullmatch("-[a-z]*c", before):
            yield from ((name, value) for name, value, _, _ in script(word))
        elif not program and not word.startswith("-"):
            name = word.rpartition("/")[2]
            program = "" if name in _BEFORE else name
        before = word


def split_words(text: str) -> list[str]:
    """The words that a shell makes of a line; none where a quotation mark stays open: prose."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []


def script(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """Name, value and line of each assignment."""
    for number, line in logical_lines(text):
        for name, value in assignments(split_words(line)):
            yield name, value, number, ""
