"""The tape and the backward walk: Nodes in, Nodes out. Knows no Tensor and no device."""

from pyflame.autograd import known_steps as known_steps  # what C is given when the engine loads it
from pyflame.autograd.tape import Entry, Hook, Joint, Leaf, Part, entry_of, now, record

__all__ = ["Entry", "Hook", "Joint", "Leaf", "Part", "entry_of", "now", "record"]
