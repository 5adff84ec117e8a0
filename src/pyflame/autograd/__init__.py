"""The tape and the backward walk: Nodes in, Nodes out. Knows no Tensor and no device."""

from pyflame.autograd.tape import Entry, Hook, Leaf, record
from pyflame.autograd.walk import backward

__all__ = ["Entry", "Hook", "Leaf", "backward", "record"]
