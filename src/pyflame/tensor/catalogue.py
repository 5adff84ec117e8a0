"""The methods that Tensor gets from the op catalogue, as a class that type checkers can read.

At run time it is empty: `dispatch.py` and `methods.py` install the methods. `catalogue.pyi` declares them;
tools/make_stubs.py writes it.
"""


class Catalogue:
    """Base of Tensor."""

    __slots__ = ()
