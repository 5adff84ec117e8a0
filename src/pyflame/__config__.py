"""torch.__config__ by its path: how this was built, in words."""

from pyflame import __version__
from pyflame.tensor.torch_names import get_num_threads

__all__ = ["parallel_info", "show"]


def show() -> str:
    """What PyFlame was built with, which is little: it compiles its kernels where it runs.

    >>> "PyFlame" in pf.__config__.show()
    True
    """
    return f"PyFlame {__version__}\n  - kernels are compiled at run time; `pyflame doctor` shows devices and libraries"


def parallel_info() -> str:
    """How many threads the CPU device may use.

    >>> "threads" in pf.__config__.parallel_info()
    True
    """
    return f"threads of the CPU device: {get_num_threads()}"
