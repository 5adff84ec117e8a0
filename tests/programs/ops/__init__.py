"""Kinds of steps, by family: how each chooses operands and arguments."""

from tests.programs.ops import elementwise, indexing, movement, nn, reduction, write  # noqa: F401  fill the table
from tests.programs.ops.table import KINDS as KINDS
