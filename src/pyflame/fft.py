"""torch.fft by its path: what `tensor/fft.py` defines."""

from pyflame.tensor.arguments import publish as _publish
from pyflame.tensor.fft import *  # noqa: F403
from pyflame.tensor.fft import __all__ as __all__

_publish(__all__, globals(), __name__, "fft_")
