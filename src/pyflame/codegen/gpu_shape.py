"""How rows are laid over the threads of a GPU: launch geometry from shape and target, as plain numbers."""

from __future__ import annotations

from pyflame.core.device import Target
from pyflame.core.shape import power
from pyflame.core.traced import whole

FLAT_BLOCK = 256
MAX_BLOCK = 1024
STREAMING_BLOCK = 512  # of a row that is read in a loop: two such blocks beside each other hide where one waits
COLUMN_BLOCK = 512  # of rows that lie beside each other in vectors, each thread with a sum for every element of one
COLUMN_BLOCKS = 3  # of them run at once on a compute unit: 40 registers a thread on NVIDIA's, 80 on AMD's
MAX_CHUNKS = 1024
STATIC_LDS = 48 * 1024  # bytes that a text may declare on NVIDIA, however many there are


def lds_room(target: Target) -> int:
    """Bytes of LDS for a block's partial results or tiles: two blocks shall fit beside each other."""
    return min(target.lds_bytes // 2, STATIC_LDS)


class RowShape:
    """How rows are laid over threads: `members` threads share a row, `rows` rows share a block."""

    def __init__(self, kind: str, members: int, rows: int, count: int) -> None:
        self.kind = kind
        self.members = members
        self.rows = rows
        self.block = members * rows
        self.blocks = -(-count // rows)
        self.guard = "" if kind == "block" else "if (live) "  # before a store: a thread may have no row
        # For what one thread of a row does alone.
        self.first = (
            "if (live)" if members == 1 else "if (member == 0)" if kind == "block" else "if (member == 0 && live)"
        )

    @staticmethod
    def along(items: int, count: int, wave: int) -> RowShape:
        """For `count` rows of `items` vectors each that run along memory."""
        if items <= wave * 4:
            members = min(power(items), wave)
            return RowShape("lanes", members, _rows_of(members, count, wave), count)
        # The waves of a block meet inside one wave, so there are at most as many as a wave has lanes.
        return RowShape("block", min(max(power(-(-items // 4)), 2 * wave), MAX_BLOCK, wave * wave), 1, count)

    @staticmethod
    def across(items: int, count: int, wave: int, workers: int, most: int) -> RowShape:
        """For rows that lie beside each other in memory; a block's LDS holds `most` partial results."""
        rows = min(wave, power(count))
        members = min(power(-(-items // 8)), MAX_BLOCK // rows)
        # With many rows there are threads enough: fewer partial results then.
        while members > 1 and (members * rows > most or (members > 4 and count // rows * members > 128 * workers)):
            members //= 2
        return RowShape("tile", members, max(rows, wave // members), count)

    def streaming(self) -> RowShape:
        """The shape for rows that do not stay in registers."""
        if self.kind != "block" or self.members <= STREAMING_BLOCK:
            return self
        return RowShape("block", STREAMING_BLOCK, 1, self.blocks)

    def place(self) -> tuple[str, str]:
        """Row inside the block and member inside the row of thread `tid`."""
        if self.kind == "tile":
            return f"tid % {self.rows}", f"tid / {self.rows}"
        return f"tid / {self.members}", f"tid % {self.members}"

    def chunks(self, items: int, workers: int) -> int:
        """Into how many pieces to cut each row so that every compute unit has some; 1 where there are rows enough."""
        if self.kind == "lanes" or self.blocks >= 2 * workers:
            return 1
        # Columns: as many blocks as run at once, since all take the same time. Rows end at different ones.
        wanted = COLUMN_BLOCKS * workers // self.blocks if self.kind == "tile" else -(-4 * workers // self.blocks)
        return max(1, min(wanted, items // (self.members * 4), MAX_CHUNKS))

    def finish(self, count: int, chunks: int, wave: int) -> RowShape:
        """The shape of the launch that combines the chunks."""
        if self.kind == "tile":
            members = min(power(chunks), self.members, 8)
            return RowShape("tile", members, max(self.rows, wave // members), count)
        members = min(power(chunks), wave)
        return RowShape("lanes", members, _rows_of(members, count, wave), count)


@whole
def _rows_of(members: int, count: int, wave: int) -> int:
    """Rows of a block whose rows take `members` lanes each."""
    return max(wave, min(FLAT_BLOCK, power(count * members))) // members
