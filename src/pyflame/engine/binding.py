"""What a plan's inputs, outputs and uniforms are bound to in one run, on any device."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from pyflame.core.dtype import DType
from pyflame.core.traced import whole
from pyflame.engine.value import Value
from pyflame.ir.declare import as_signed
from pyflame.ir.kernel import Plan

Held = list[Value]  # what lies in each slot
T = TypeVar("T")


def addresses(held: Held) -> list[int]:
    """Of what lies in each slot."""
    return [v.storage.address + v.offset for v in held]  # type: ignore[union-attr]


def twin(of: T) -> T:
    """A shallow copy, in a quarter of copy.copy's time."""
    out = object.__new__(type(of))
    vars(out).update(vars(of))
    return out


class Written(NamedTuple):
    """Memory that a run writes for its caller. `state`: it is an input's, so it is read before."""

    address: int
    nbytes: int
    dtype: DType | None
    state: bool


# of an output: slot, byte offset, strides, and whether it is the first that begins where its slot does
View = tuple[int, int, tuple[int, ...] | None, bool]


class Slots:
    """The slots of a plan: its inputs, then its outputs, in the order of its buffers.

    Slots behind these hold the arena of all intermediates and the `scratch` of all launches, whose bytes are given.
    Where memory is `exact` each of them has a slot of its own among these, so that a kernel which leaves one is caught.
    """

    def __init__(
        self,
        plan: Plan,
        scratch: Sequence[int] = (),
        size_of: Callable[[int], int] = lambda nbytes: nbytes,
        exact: bool = False,
    ) -> None:
        self.plan = plan
        inputs = [(n, b) for n, b in enumerate(plan.buffers) if b.role == "input"]
        outputs = [(n, b) for n, b in enumerate(plan.buffers) if b.role == "output"]
        own = [(n, b) for n, b in enumerate(plan.buffers) if b.role == "scratch" and exact]
        self.slot_of = {number: slot for slot, (number, _) in enumerate([*inputs, *outputs, *own])}
        self._own_sizes = [size_of(b.nbytes) for _, b in own]
        self._scratch = {n: size_of(size) for n, size in enumerate(scratch) if size and exact}
        self.arena = len(self.slot_of) + len(self._scratch)  # its slot
        self.arena_bytes = 0 if exact else plan.arena_bytes
        self.scratch_bytes = 0 if exact else whole(max)(0, 0, *scratch)
        self.positions = [b.position for _, b in inputs]
        self.sizes = {b.position: size_of(b.nbytes) for _, b in inputs}
        self.input_bytes = {b.position: b.nbytes for _, b in inputs}
        self.output_sizes = [size_of(b.nbytes) for _, b in outputs]
        takes_over = {buffer: position for position, buffer in plan.donations.items()}
        self.takers = [takes_over.get(n) for n, _ in outputs]  # inputs that outputs may take over
        self.updated = plan.updated
        self.views = self._views({self.slot_of[n] for n, _ in outputs})
        kinds = "".join("d" if is_float else "q" for _, _, is_float in plan.uniforms)
        self._pack = struct.Struct("=" + kinds).pack
        self.uniforms = tuple([(source == "slot", v) for source, v, _ in plan.uniforms])

    def _views(self, left: set[int]) -> list[View]:
        """Where the plan's outputs lie. `left`: slots of outputs."""
        views = []
        for v in self.plan.outputs:
            slot, dtype = self.slot_of[v.buffer], self.plan.buffers[v.buffer].dtype
            first = slot in left and not v.offset
            left -= {slot} if first else set()
            views.append((slot, v.offset * (dtype.itemsize if dtype else 1), v.strides, first))
        return views

    def place(self, buffer: int, offset: int) -> tuple[int, int]:
        """(slot, byte offset) of a place in a buffer."""
        slot = self.slot_of.get(buffer)
        return (self.arena, self.plan.buffers[buffer].offset + offset) if slot is None else (slot, offset)

    def scratch_place(self, launch: int) -> tuple[int, int]:
        """(slot, byte offset) of a launch's own scratch."""
        if launch not in self._scratch:
            return self.arena + 1, 0
        return len(self.slot_of) + list(self._scratch).index(launch), 0


class Binding(Slots):
    """Slots of a plan, and their memory on a device.

    `allocate` gives memory of several sizes, `copy(to, from, bytes)` moves bytes on the device.
    """

    def __init__(
        self,
        plan: Plan,
        allocate: Callable[[Sequence[int]], list[Any]],
        copy: Callable[[int, int, int], Any],
        size_of: Callable[[int], int] = lambda nbytes: nbytes,
        scratch: Sequence[int] = (),
        exact: bool = False,
    ) -> None:
        super().__init__(plan, scratch, size_of, exact)
        self._allocate = allocate
        self._copy = copy
        self._first = len(self.positions) if self.positions == list(range(len(self.positions))) else None

    def numbers(self) -> tuple[Any, ...]:
        """All that may differ in a plan for other extents."""
        by_position = tuple(self.sizes.values()), tuple(self.input_bytes.values())
        own = tuple(self._own_sizes), tuple(self._scratch.values())
        sizes = self.arena_bytes, self.scratch_bytes, tuple(self.output_sizes), by_position, own
        return sizes, tuple(self.views), self.uniforms

    def with_numbers(self, plan: Plan, numbers: tuple[Any, ...]) -> Binding:
        """The same for a plan of other extents."""
        out = twin(self)
        out.plan = plan
        places, out.views, out.uniforms = numbers
        out.arena_bytes, out.scratch_bytes, out.output_sizes, (sizes, input_bytes), (own, scratch) = places
        out.sizes = dict(zip(self.sizes, sizes, strict=True))
        out.input_bytes = dict(zip(self.input_bytes, input_bytes, strict=True))
        out._own_sizes, out._scratch = own, dict(zip(self._scratch, scratch, strict=True))
        return out

    def hold_own(self) -> Held:
        """Memory for the slots behind inputs and outputs: intermediates and scratch, where memory is exact."""
        return list(map(Value, self._allocate((*self._own_sizes, *self._scratch.values()))))

    def rehold(self, held: Held) -> Held:
        """The memory of all slots, of which another runner of the plan has held the inputs and outputs."""
        return [*held[: len(self.positions) + len(self.output_sizes)], *self.hold_own()]

    def hold(self, inputs: Sequence[Value], donated: Sequence[int]) -> Held:
        """The memory of all slots.

        Outputs that take over an input in `donated` lie where it lies. Inputs that the plan overwrites are copied first
        unless they are among them.
        """
        plan = self.plan
        for p in plan.overwritten_inputs:
            if p not in donated:
                inputs = [*inputs[:p], self._copied(inputs[p], p), *inputs[p + 1 :]]
        held = [inputs[p] for p in self.positions] if self._first is None else list(inputs[: self._first])
        if donated and plan.donations:
            mine = self.updated if len(donated) == len(self.updated) else set(donated)
            sizes = [size for size, taken in zip(self.output_sizes, self.takers, strict=True) if taken not in mine]
            new = map(Value, self._allocate(sizes) if sizes else ())
            held += [inputs[taken] if taken is not None and taken in mine else next(new) for taken in self.takers]
        else:
            held += map(Value, self._allocate(self.output_sizes))
        return held + self.hold_own() if self._own_sizes or self._scratch else held

    def written(self, places: Sequence[int]) -> list[Written]:
        """All memory that a run writes for its caller. `places`: the addresses of all slots."""
        number_of, first = {slot: number for number, slot in self.slot_of.items()}, len(self.positions)
        overwritten = [slot for slot, p in enumerate(self.positions) if p in self.plan.overwritten_inputs]
        out = []
        for slot in [*overwritten, *range(first, first + len(self.output_sizes))]:
            buffer = self.plan.buffers[number_of[slot]]
            taken = slot < first or self.takers[slot - first] is not None
            out.append(Written(places[slot], buffer.nbytes, buffer.dtype, taken))
        return out

    def intermediates(self, held: Held) -> Held:
        """What of it is neither input nor output."""
        return held[len(self.positions) + len(self.output_sizes) :]

    def _copied(self, value: Value, position: int) -> Value:
        """The same bytes in memory that may be overwritten."""
        (storage,) = self._allocate((self.sizes[position],))
        self._copy(storage.address, value.address, self.input_bytes[position])
        return Value(storage, 0, value.strides)

    def outputs(self, held: Held) -> list[Value]:
        """The plan's outputs in this memory. An input that was taken over stays the same Value, so that who has it has
        its new contents."""
        out = []
        for slot, offset, strides, first in self.views:
            value = held[slot]
            if not first or value.strides != strides:
                value = Value(value.storage, value.offset + offset, strides)
            out.append(value)
        return out

    def uniform_sources(self) -> bytes:
        """Of each uniform two 8-byte words: 0 and the number itself; for one that the caller brings 1 (a float) or 2 (a
        whole number), and which it is."""
        words = self.pack_uniforms([0] * (1 + max([v for slot, v in self.uniforms if slot], default=0)))
        out = []
        for n, ((slot, which), (_, _, is_float)) in enumerate(zip(self.uniforms, self.plan.uniforms, strict=True)):
            itself = words[8 * n : 8 * n + 8]
            out.append(struct.pack("=qq", 2 - is_float, which) if slot else bytes(8) + itself)
        return b"".join(out)

    @property
    def strides(self) -> tuple[tuple[int, ...] | None, ...]:
        """Of all outputs."""
        return tuple([view[2] for view in self.views])

    def as_words(self, head: Sequence[int], takers: Sequence[int]) -> bytes:
        """A plan as known.c takes it, behind `head`: its slots, results and uniforms. `takers`: of each output the slot
        whose memory it takes over, or -1."""
        results = [number for slot, offset, *_ in self.views for number in (slot, offset)]
        words = *head, *self.positions, *takers, *results
        return struct.pack(f"={len(words)}q", *words) + self.uniform_sources()

    def pack_uniforms(self, constants: Sequence[Any]) -> bytes:
        """The uniforms as 8-byte words. `constants`: those that the caller brings."""
        values = [constants[v] if slot else v for slot, v in self.uniforms]
        try:
            return self._pack(*values)
        except struct.error:
            return self._pack(*map(as_signed, values))
