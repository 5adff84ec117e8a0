"""Vendor libraries in plans: which launches a library does, and why.

The unit is a launch: a product or convolution and the elementwise ops that our own kernel fuses behind it. A library
does as much of it as it can (`schedule/split.py`), the rest becomes generated launches around its call, and both ways
are tried out on memory of their own: the library's result against our kernel's, then both for time
(`engine/libraries/tuner.py`). What was decided is in the plan, for `pf.explain`; ahead-of-time plans do not come by
here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from pyflame.core import knobs
from pyflame.core.device import Target
from pyflame.core.errors import DeviceFaultError, OutOfMemoryError
from pyflame.core.locks import lock
from pyflame.core.precision import tf32_allowed
from pyflame.core.state import state
from pyflame.core.traced import Number, Untraceable
from pyflame.engine.libraries.calls import CudnnConvolutions, LtProducts, MiopenConvolutions, RocblasProducts
from pyflame.engine.libraries.products import conv_of, gemm_of, lies_so, makes_gradients
from pyflame.engine.libraries.trial import Trial, TrialBuffers, compile_ahead, verdict
from pyflame.engine.libraries.tuner import Candidate, Choice, Key, Verdict, may_time, size_class, strides_class, tuner
from pyflame.engine.libraries.variants import tried_variants, with_variant
from pyflame.engine.sizes import has_many_sizes
from pyflame.ir.kernel import Draft, Launch, LibraryCall
from pyflame.kernels.matrix_cores import FLUSHING, matrix_kind
from pyflame.libs.cuda.cublaslt import CublasLt
from pyflame.libs.cuda.cudnn import Cudnn
from pyflame.libs.rocm.hipblaslt import HipBlasLt
from pyflame.libs.rocm.miopen import ROCmDNN
from pyflame.libs.rocm.rocblas import ROCmBLAS
from pyflame.runtime.base import GpuDevice
from pyflame.runtime.cuda.driver import CudaDriver
from pyflame.runtime.kernels import Ahead
from pyflame.runtime.rocm.driver import HipDriver
from pyflame.schedule.split import Take, Way, alone, destination, divide, may_be_direct, takes

Opener = Callable[[GpuDevice], Any]  # device -> a library's offers, with the device current

# Which libraries belong to which driver, by op and by name, in the order in which they are asked.
OPENERS: dict[type, dict[str, dict[str, Opener]]] = {
    CudaDriver: {
        "matmul": {"cuBLASLt": lambda device: LtProducts(CublasLt())},
        "conv_general": {"cuDNN": lambda device: CudnnConvolutions(Cudnn())},
    },
    HipDriver: {
        "matmul": {
            "hipBLASLt": lambda device: LtProducts(HipBlasLt()),
            "rocBLAS": lambda device: RocblasProducts(ROCmBLAS()),
        },
        "conv_general": {"MIOpen": lambda device: MiopenConvolutions(ROCmDNN(device=device.properties.arch_full))},
    },
}
CONTESTED = ("matmul", "conv_general", "encoded_linear", "norm_linear")  # no library does the last two
CALL_SECONDS = 15e-6  # that the host needs for a library's call, more than for a kernel
SMALL_FLOPS = 2e9  # some 20 us of a large GPU: a trial takes a thousand times as long
_MANY_SIZES = "small, and one of many sizes that such a graph comes in: nothing was tried out"
APART = 32 << 20  # bytes behind which products that run beside each other use memory in between again
WINOGRAD = 8.0  # how much less exact convolutions may be: some add and subtract before they multiply
ALTERNATIVE = 8.0  # and float16 that is multiplied as bfloat16, with 3 bits less


class Libraries:
    """The libraries of one device, opened when an op first asks for them."""

    def __init__(self, device: GpuDevice) -> None:
        # another module may stand in for HIP, as the simulator's does: then the device is of another kind
        real = device.driver.kind == device.id.kind and device.id.kind in ("cuda", "rocm")
        self._openers = OPENERS.get(type(device.driver), {}) if real else {}
        self._device = device
        self._found: dict[str, Any] = {}
        self._lock = lock()
        self._missing: dict[str, str] = {}

    @property
    def real(self) -> bool:
        """Whether it is a vendor's GPU, on which times mean something."""
        return bool(self._openers)

    def of(self, op: str) -> list[Any]:
        """Those that do an op and that PYFLAME_LIBRARIES, or the thread's state, allows."""
        allowed = {name.strip().lower() for name in (state.libraries or knobs.LIBRARIES.text()).split(",")}
        if not state.matrix_cores:  # theirs would use them
            return []
        out = []
        with self._lock:
            for name, opener in self._openers.get(op, {}).items():
                if name.lower() in allowed or "all" in allowed:
                    if name not in self._found:
                        self._found[name] = self._open(name, opener)
                    out += [self._found[name]] if self._found[name] is not None else []
        return out

    def usable(self, op: str) -> list[Any]:
        """Of these, those that compete now."""
        return [library for library in self.of(op) if library.reproducible or not state.deterministic]

    def _open(self, name: str, opener: Opener) -> Any:
        try:
            self._device.use()
            return opener(self._device)
        except DeviceFaultError:
            raise
        except Exception as error:  # whatever it is: our own kernels do without
            self._missing[name] = str(error)
            return None

    def drop(self, name: str, error: Exception) -> None:
        """Do without a library from now on, in this process."""
        warnings.warn(
            f"[libraries] {name} on {self._device.id} failed before it was given any work: {error}. "
            "Our own kernels run in its place",
            RuntimeWarning,
            stacklevel=4,
        )
        self._found[name] = None
        self._missing[name] = str(error)

    def missing(self, op: str) -> list[str]:
        """Which of an op's libraries are not there, and why."""
        return [f"{n} is missing: {self._missing[n][:80]}" for n in self._openers.get(op, {}) if n in self._missing]


_libraries: WeakKeyDictionary[GpuDevice, Libraries] = WeakKeyDictionary()


def libraries_of(device: GpuDevice) -> Libraries:
    """A device's libraries."""
    found = _libraries.get(device)
    if found is None:
        found = _libraries.setdefault(device, Libraries(device))
    return found


@dataclass(frozen=True)
class Offer:
    """A library's call for a launch, the way to divide it, and the launch that the call does, as a plan of its own."""

    call: LibraryCall
    way: Way
    product: Draft
    terms: int
    looser: float
    subnormals: bool  # whether those of float16 must count


@dataclass(frozen=True)
class Contest:
    """A launch that implementations compete for: by its number, the libraries that were asked, and their offers."""

    number: int
    op: str
    key: Key
    asked: list[Any]
    offers: dict[str, Offer]


def choose(plan: Draft, device: GpuDevice) -> dict[int, LibraryCall]:
    """Decide for every launch that libraries compete for, and rewrite the plan; gives the calls by launch.

    Kernels that decisions need are compiled in the background from when it is known that they are needed, and what the
    plan launches in any case behind them: trials of the first launches run while kernels of the last are compiled.
    """
    libraries = libraries_of(device)
    with device.ahead() as ahead:
        contests, begun = _contests(plan, device, libraries, ahead)
        tried = bool(begun)
        plan.measured = libraries.real and bool(contests)
        chosen: dict[int, tuple[Offer, str]] = {}
        own: dict[Key, list[tuple[Contest, Choice]]] = {}
        for contest in contests:
            choice = _decide(plan, contest, device)
            if choice.name in contest.offers:
                chosen[contest.number] = contest.offers[choice.name], _words(choice)
                continue
            if libraries.real and contest.key not in own:
                variants = tried_variants(plan, contest.number, device, contest.key)
                compile_ahead(device, ahead, variants)
                tried |= bool(variants)
            own.setdefault(contest.key, []).append((contest, choice))
        ways = {n: offer.way for n, (offer, _) in chosen.items()}
        if tried:
            rest, known = _settled(plan, {c.number for c in contests}, ways), {id(x) for x in begun}
            compile_ahead(device, ahead, [x for x in rest if id(x) not in known])
        for alike in own.values():
            for contest, choice in alike:
                plan.launches[contest.number] = _own_launch(plan, contest, choice, device, libraries)
            if tried:  # of one key, but what follows the product may differ
                compile_ahead(device, ahead, [plan.launches[contest.number] for contest, _ in alike[1:]])
    return _call(plan, chosen, ways)


def _call(plan: Draft, chosen: Mapping[int, tuple[Offer, str]], ways: Mapping[int, Way]) -> dict[int, LibraryCall]:
    """Divide a plan; gives the libraries' calls by launch."""
    calls = {}
    for number, product in divide(plan, ways, _apart()).items():
        offer, why = chosen[number]
        calls[product] = offer.call
        plan.launches[product] = replace(plan.launches[product], implementation=offer.call.name, why=why)
    return calls


def _contests(plan: Draft, device: GpuDevice, libraries: Libraries, ahead: Ahead) -> tuple[list[Contest], list[Launch]]:
    """All contests. Where libraries are tried out, kernels for that are begun to be compiled, and behind them those
    launches that nobody competes for, which are given too."""
    contests: dict[int, Contest] = {}
    keys: set[Key] = set()
    beside: list[Launch] = []  # of products: what takes the compiler little, and every trial waits for
    opened = False
    for number in _contested(plan):
        contest = contests[number] = _contest(plan, number, device, libraries)
        if contest.key in keys:  # what the first one finds out decides it
            continue
        keys.add(contest.key)
        tried = _tried(plan, contest, device)
        compile_ahead(device, ahead, [x for x in tried if x.kernel.anchor is not None])
        beside += [x for x in tried if x.kernel.anchor is None]
        opened |= bool(tried)
    compile_ahead(device, ahead, beside, soon=True)
    rest = _settled(plan, set(contests), {}) if opened else []
    compile_ahead(device, ahead, rest)
    return list(contests.values()), rest


def _settled(plan: Draft, contested: Collection[int], ways: Mapping[int, Way]) -> list[Launch]:
    """The kernels of a plan that nobody competes for, once it is divided."""
    divided, open_now = plan.copy(), {id(plan.launches[n]) for n in contested}
    products = set(divide(divided, ways, _apart()).values())
    return [x for n, x in enumerate(divided.launches) if n not in products and id(x) not in open_now]


def _apart() -> int:
    return APART if knobs.GRAPH_BRANCHES.integer() > 1 else 0


def _contested(plan: Draft) -> list[int]:
    """The launches that others may do. Small ones of a plan that comes in many sizes are done by our own kernels as
    these are guessed to be best."""
    anchors = [x.kernel.anchor for x in plan.launches]
    found = [number for number, anchor in enumerate(anchors) if anchor is not None and anchor.op.name in CONTESTED]
    small = [number for number in found if plan.launches[number].flops < SMALL_FLOPS]
    if state.many_sizes or (state.one_by_one and any(has_many_sizes(plan.launches[number]) for number in small)):
        for number in small:
            launch = plan.launches[number]
            plan.launches[number] = replace(launch, why=f"{launch.why}; {_MANY_SIZES}")
            found.remove(number)
    return found


def _contest(plan: Draft, number: int, device: GpuDevice, libraries: Libraries) -> Contest:
    """Who competes for a launch."""
    launch = plan.launches[number]
    assert launch.kernel.anchor is not None
    op = launch.kernel.anchor.op.name
    if isinstance(launch.flops, Number):
        raise Untraceable
    asked = libraries.usable(op)
    offers: dict[str, Offer] = {}
    for library in asked:
        try:
            offers |= {offer.call.name: offer for offer in _offers(plan, number, library, device.target)}
        except DeviceFaultError:
            raise
        except Exception as error:  # whatever it is: our own kernels do without
            libraries.drop(library.name, error)
    return Contest(number, op, key_of(launch, device), asked, offers)


def _own_launch(plan: Draft, contest: Contest, choice: Choice, device: GpuDevice, libraries: Libraries) -> Launch:
    """A launch that our own kernel does, with its fastest variant and why."""
    launch, there = plan.launches[contest.number], libraries.of(contest.op)
    idle = [library.name for library in contest.asked if library in there]
    notes = [_words(choice)] if contest.offers else [f"{name} does not take it" for name in idle]
    notes += [f"{x.name} is left out of deterministic work" for x in there if x not in contest.asked]
    if libraries.real:
        launch, measured = with_variant(plan, contest.number, device, contest.key)
        notes += measured
    return replace(launch, why="; ".join([launch.why, *notes, *libraries.missing(contest.op)]))


def _words(choice: Choice) -> str:
    """Why, without the winner's name."""
    return choice.text.removeprefix(f"{choice.name}: ")


# --- offers -----------------------------------------------------------------------------------------------------------


def _subnormals(launch: Launch, target: Target) -> bool:
    """Whether a library must be told, and show, that float16's subnormals count: in gradients they do."""
    return target.name in FLUSHING and makes_gradients(launch)


def _offers(plan: Draft, number: int, library: Any, target: Target) -> Iterator[Offer]:
    """What a library can do for a launch: with an activation behind the product, and without."""
    launch = plan.launches[number]
    tf32, subnormals = tf32_allowed(), _subnormals(launch, target)
    if launch.kernel.anchor is not None and launch.kernel.anchor.op.name == "conv_general":
        conv = conv_of(launch, tf32)
        if conv is None:
            return
        take = takes(launch.kernel)[0]
        store = destination(launch, take)
        shape = launch.kernel.loops[0]
        as_is = store is not None and lies_so(shape, store.strides, conv.strides)
        way = Way(take, as_is and may_be_direct(plan, launch, take), conv.strides)
        product = _product(plan, number, way)
        terms = prod(launch.operands[1].shape[2:])
        for call in library.offers(conv, product.launches[0]):
            yield Offer(call, way, product, terms, WINOGRAD, subnormals)
        return
    plain = True
    for take in reversed(takes(launch.kernel)):
        if not (take.activation or plain):
            continue
        found = next((f for f in _gemms(plan, number, take, tf32, subnormals, library) if f), [])
        yield from found
        plain = plain and not (found and not take.activation)


def _gemms(plan: Draft, number: int, take: Take, tf32: bool, subnormals: bool, library: Any) -> Iterator[list[Offer]]:
    """Offers that store where the launch does, then those that do not."""
    launch = plan.launches[number]
    for direct in (True, False):
        if direct and not may_be_direct(plan, launch, take):
            continue
        way = Way(take, direct)
        product = _product(plan, number, way)
        gemm = gemm_of(product.launches[0], tf32, subnormals)
        calls = library.offers(gemm) if gemm is not None else []
        terms, looser = launch.operands[0].shape[-1], ALTERNATIVE if subnormals else 1.0
        yield [Offer(call, way, product, terms, looser, subnormals) for call in calls]


def _product(plan: Draft, number: int, way: Way) -> Draft:
    """The product of a divided launch, as a plan of its own."""
    whole = alone(plan, number)
    (product,) = divide(whole, {0: way}).values()
    return alone(whole, product)


# --- the decision -----------------------------------------------------------------------------------------------------


def _candidates(launch: Launch, offers: Mapping[str, Offer]) -> list[Candidate]:
    """Our own kernel, and the offers."""
    candidates = [Candidate(launch.implementation)]
    for name, offer in offers.items():
        call = offer.call
        family = call._replace(rank=0).name
        candidates.append(Candidate(name, call.version, offer, family, quiet=bool(call.extra)))
    return candidates


def _divided(whole: Draft, offer: Offer) -> tuple[Draft, dict[int, LibraryCall]]:
    """A plan of one launch, of which a library does its part."""
    divided = whole.copy()
    (product,) = divide(divided, {0: offer.way}).values()
    return divided, {product: offer.call}


def _tried(plan: Draft, contest: Contest, device: GpuDevice) -> list[Launch]:
    """The launches of ours that `_decide` runs; none where it knows."""
    launch, offers = plan.launches[contest.number], contest.offers
    candidates = _candidates(launch, offers)
    if not offers or device.capturing or (not state.deterministic and tuner().knows(candidates, contest.key)):
        return []
    if not may_time():
        best = min(candidates, key=lambda c: expected_seconds(launch, c.run, device.target))
        return best.run.product.launches if best.run is not None else []
    whole = alone(plan, contest.number)
    tried = [whole.launches[0], *(x for offer in offers.values() for x in offer.product.launches)]
    for offer in offers.values():
        divided, calls = _divided(whole, offer)
        tried += [x for n, x in enumerate(divided.launches) if n not in calls]
    return tried


def _decide(plan: Draft, contest: Contest, device: GpuDevice) -> Choice:
    """The implementation of a launch: ours by its name, or one of the offers."""
    launch, key = plan.launches[contest.number], contest.key
    if not contest.offers:
        return Choice(launch.implementation)
    candidates = _candidates(launch, contest.offers)
    ours = candidates[0]
    whole = alone(plan, contest.number)
    buffers_of_trials: list[TrialBuffers] = []

    def measure(candidate: Candidate, best: float) -> float:
        buffers_of_trials[:] = buffers_of_trials or [TrialBuffers(device, whole)]
        way = (whole, {}) if candidate.run is None else _divided(whole, candidate.run)
        return Trial(buffers_of_trials[0], *way).seconds(best)

    def check(candidate: Candidate, ours: Candidate) -> Verdict:
        buffers_of_trials.clear()  # all are timed by now, and this takes as much memory again
        offer = candidate.run
        dtype = key.dtypes.split()[0]
        return verdict(device, offer.product, offer.call, dtype, offer.terms, offer.looser, offer.subnormals)

    def expect(candidate: Candidate) -> float:
        return expected_seconds(launch, candidate.run, device.target)

    if device.capturing:
        return Choice(ours.name, why="a graph is being captured: nothing can be tried out")
    try:
        timed = may_time()
        choice = tuner().choose(candidates, key, measure if timed else None, check, expect, not state.deterministic)
        return _with_host(choice, ours) if state.one_by_one else choice
    except OutOfMemoryError:
        buffers_of_trials.clear()
        return Choice(ours.name, why="no memory was left to try a library out")


def _with_host(choice: Choice, ours: Candidate) -> Choice:
    """The same where the host gives each launch: a library's call takes it longer than a kernel of ours."""
    own, best = choice.seconds.get(ours.name), choice.seconds.get(choice.name)
    if choice.name == ours.name or own is None or best is None or own - best > CALL_SECONDS:
        return choice
    taken = f"measured {own * 1e3:.4g} ms; {choice.name} {best * 1e3:.4g} ms"
    return replace(choice, name=ours.name, why=f"{taken}, faster by less than its call takes the host")


def key_of(launch: Launch, device: GpuDevice) -> Key:
    """What a decision holds for: sizes by classes, layouts, and what follows the product."""
    kernel = launch.kernel
    assert kernel.anchor is not None
    a, b = launch.operands[:2]
    anchor = kernel.anchor
    if anchor.op.name == "matmul":
        *batch, m, n = anchor.meta.shape
        shapes = "x".join(map(size_class, (prod(batch), m, n, a.shape[-1])))
    elif anchor.op.name in ("encoded_linear", "norm_linear"):
        *rows, n = anchor.meta.shape
        shapes = " ".join(["x".join(map(size_class, (prod(rows), n, a.shape[-1]))), anchor.attrs[0] or ""]).strip()
    else:
        shapes = " ".join(map(str, (*a.shape, "by", *b.shape, *anchor.attrs))).replace(", ", ",")
    dtype = "tf32" if a.dtype.name == "float32" and tf32_allowed() else a.dtype.name
    stored = [access.dtype.name for _, access in kernel.stores]
    layouts = [strides_class(v.shape, v.strides) for v in (a, b)]
    follows = [i.op.name for i in kernel.instrs if i.op is not None]
    loads = [str(len(i.loops)) for i in kernel.instrs if i.kind == "load"]
    p = device.properties
    return Key(
        anchor.op.name,
        shapes,
        " ".join([dtype, "->", *stored, *["gradient"] * _subnormals(launch, device.target)]),
        " ".join([*layouts, "then" if follows or len(stored) > 1 else "", *follows, *loads]).strip(),
        f"{device.id.kind} {p.name} {p.compute_units}",
    )


def expected_seconds(launch: Launch, offer: Offer | None, target: Target) -> float:
    """About how long an implementation takes where nothing is measured. Only the order matters.

    A compute unit does 512 float32 operations in a nanosecond, matrix units sixteen times that in 16 bits; our own
    kernels what kernels/matrix_cores.py says. A launch costs microseconds, and memory 25 bytes a nanosecond and unit.
    """
    rate = target.workers * 512e9
    if offer is None:
        assert launch.kernel.anchor is not None
        product = launch.kernel.anchor.op.name == "matmul"
        kind = matrix_kind(target, launch.operands[0].dtype, tf32_allowed()) if product else None
        own = 0.5 * rate if kind is None else target.workers * kind.pace * 3e9  # 2 flops, 1.5 clocks a nanosecond
        return launch.flops / own + 4e-6
    small = launch.operands[0].dtype.itemsize == 2 or (tf32_allowed() and launch.operands[0].dtype.name == "float32")
    rate *= 8 if small and target.matrix_core else 0.8
    behind = 0 if offer.way.direct and len(launch.kernel.stores) == 1 else 1
    moved = 2 * prod(launch.output) * launch.operands[0].dtype.itemsize * behind
    return launch.flops / rate + 4e-6 * (1 + behind) + moved / (target.workers * 25e9)
