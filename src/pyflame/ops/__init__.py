"""The op catalogue, one file per family. Importing this package declares every op in `pyflame.ir.OPS`."""

from pyflame.ops import base, binary, gather, matrix, movement, reduction, unary

__all__ = ["base", "binary", "gather", "matrix", "movement", "reduction", "unary"]
