"""The port of an option: refused before anything is loaded or opened."""

from __future__ import annotations

import argparse


def port(text: str) -> int:
    """0 (any that is free) to 65535, for argparse.

    >>> port("8000")
    8000
    """
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535 but got {text}")
    return int(text)
