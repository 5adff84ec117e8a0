"""The tape and the backward walk: Nodes in, Nodes out. Knows no Tensor and no device."""

from pyflame.autograd.tape import Entry, Hook, Joint, Leaf, now, record

__all__ = ["Entry", "Hook", "Joint", "Leaf", "now", "record"]
