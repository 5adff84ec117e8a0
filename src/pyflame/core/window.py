"""The windows of pooling along one axis, and PyTorch's arithmetic for how many there are."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """The windows along one axis. kernel 0: adaptive, `out` windows that share the axis evenly."""

    size: int
    out: int
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1

    def spans(self) -> list[tuple[int, int, int]]:
        """For every output its first element, the end, and how many elements count, the padding included.

        >>> Window(5, 3, kernel=3, stride=2, pad=1).spans()
        [(0, 2, 3), (1, 4, 3), (3, 5, 3)]
        """
        if not self.kernel:
            edges = [(p * self.size // self.out, -(-(p + 1) * self.size // self.out)) for p in range(self.out)]
            return [(first, end, end - first) for first, end in edges]
        found = []
        for p in range(self.out):
            start = p * self.stride - self.pad
            first = start if start >= 0 else start + -(start // self.dilation) * self.dilation
            end = min(start + (self.kernel - 1) * self.dilation + 1, self.size)
            found.append((first, end, min(start + self.kernel, self.size + self.pad) - start))
        return found

    @property
    def whole(self) -> bool:
        """Whether one window takes in the whole axis and nothing else."""
        return self.out == 1 and self.pad == 0 and self.kernel in (0, self.size)

    def counted(self, ceil_mode: bool) -> Window:
        """With as many outputs as PyTorch gives; fewer than 1 where the kernel does not fit."""
        room = self.size + 2 * self.pad - self.dilation * (self.kernel - 1) - 1
        out = (room + (self.stride - 1 if ceil_mode else 0)) // self.stride + 1
        # The last window must begin inside of the input or of the padding in front of it.
        if ceil_mode and (out - 1) * self.stride >= self.size + self.pad:
            out -= 1
        return self._replace(out=out)


def adaptive_window(size: int, out: int) -> Window:
    """Windows that share an axis among `out` outputs: regular where that divides it."""
    return Window(size, out, size // out, size // out) if out and size % out == 0 else Window(size, out, 0)


Windows = tuple[Window, Window, Window]


def three(windows: tuple[Window, ...]) -> Windows:
    """Fewer than three axes get leading ones of size 1."""
    a, b, c = (Window(1, 1),) * (3 - len(windows)) + windows
    return a, b, c
