"""Shell scripts: `export A=b`, `A=b`, `A=b command`, `env A=b command`, `declare -x A=b`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_BEFORE = {"export", "env", "declare", "typeset", "local", "readonly", "sudo", "exec", "then", "do", "else", "{", "("}
_LONGEST = 200  # lines that one command may have
_ENDS = {";", "&&", "||", "|", "&", ";;", "(", ")", "{", "}"}


def known_value(text: str) -> str | None:
    """The value, or None where the shell puts something in."""
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


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    return list(lexer)


def script(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """Name, value and line of each assignment."""
    for number, line in logical_lines(text):
        try:
            words = _words(line)
        except ValueError:
            continue  # half a quotation: prose
        begins = True  # of a command: only there are words with = assignments
        for word in words:
            found = _ASSIGNMENT.fullmatch(word)
            if found and begins:
                yield found[1], known_value(found[2]), number, ""
            elif word in _ENDS or set(word) <= set(";&|()"):
                begins = True
            elif begins and word not in _BEFORE and not word.startswith("-"):
                begins = False
