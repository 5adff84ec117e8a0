"""Block formats of weights, one file each; `pyflame.core.encoding` finds them all."""
