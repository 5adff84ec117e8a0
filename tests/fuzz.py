"""Calls every op with random arguments, good and bad: the answer is a result or a typed error, never a crash.

    python -m tests.fuzz --seconds 60 --seed 1

The seed of each round is printed before it runs when --verbose is given, so a crash of the interpreter can be replayed.
"""

from __future__ import annotations

import argparse
import inspect
import random
import resource
import sys
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.core.errors import CompileError, PyFlameError
from pyflame.ir import OPS
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS

DTYPES = [
    "float32",
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int8",
    "uint8",
    "bool_",
    "float8_e4m3fn",
]
# A call that asks for more is to be refused, not to take the machine down.
MEMORY_LIMIT = 8 << 30


def random_tensor(rng: random.Random) -> Tensor:
    shape = tuple(rng.choice([0, 1, 1, 2, 3, 3, 4, 5, 7]) for _ in range(rng.choice([0, 1, 2, 2, 3, 4])))
    dtype = pf.as_dtype(rng.choice(DTYPES))
    values = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(shape) * rng.choice([1, 3, 100])
    if dtype.is_float and rng.random() < 0.1 and values.size:
        values.flat[0] = rng.choice([np.nan, np.inf, -np.inf])
    with np.errstate(all="ignore"):
        array = np.abs(values) if dtype.name == "uint8" else values
        out = pf.tensor(array.astype(dtype.numpy))
    if out.ndim > 1 and rng.random() < 0.3:
        out = out.permute(tuple(reversed(range(out.ndim))))
    if out.ndim and rng.random() < 0.2:
        out = out[:: rng.choice([1, 2, -1])]
    if dtype.is_float and rng.random() < 0.3:
        out = out.detach().requires_grad_()
    return out


def random_value(rng: random.Random) -> Any:
    return rng.choice(
        [
            lambda: rng.randint(-3, 8),
            lambda: rng.randint(0, 2),
            lambda: rng.uniform(-2, 2),
            lambda: tuple(rng.randint(-1, 4) for _ in range(rng.randint(0, 4))),
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: rng.choice(
                ["mean", "sum", "none", "same", "constant", "reflect", "float32", "tanh", "nonsense", "ij,jk->ik"]
            ),
            lambda: [random_tensor(rng) for _ in range(rng.randint(0, 3))],
            lambda: float("nan"),
            lambda: 10**30,
            lambda: random_tensor(rng),
        ]
    )()


def random_call(rng: random.Random, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments: usually tensors where the op's sources are, anything elsewhere."""
    parameters = list(inspect.signature(OPS[name].fn).parameters.values())
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, p in enumerate(parameters):
        if p.kind is p.VAR_POSITIONAL:
            args += [random_value(rng) for _ in range(rng.randint(0, 3))]
        elif p.kind is p.VAR_KEYWORD:
            continue
        elif p.default is not p.empty and rng.random() < 0.5:
            break
        else:
            likely = position == 0 or "Node" in str(p.annotation)
            value = random_tensor(rng) if likely and rng.random() < 0.9 else random_value(rng)
            if p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = value
            else:
                args.append(value)
    return tuple(args), kwargs


def evaluate(out: Any) -> None:
    for value in out if isinstance(out, (list, tuple)) else [out]:
        if isinstance(value, Tensor):
            value.numpy()
            if value.requires_grad and value.dtype.is_float and value.numel():
                value.sum().backward()


def one_round(seed: int) -> tuple[str, str]:
    """Call one op; gives its name and how it ended."""
    rng = random.Random(seed)
    name = rng.choice([n for n, op in OPS.items() if op.public])
    args, kwargs = random_call(rng, name)
    try:
        evaluate(FUNCTIONS[name](*args, **kwargs))
    except CompileError:
        raise
    except PyFlameError as error:
        return name, type(error).__name__
    except Exception as error:
        raise AssertionError(f"round {seed}: {name}{args} {kwargs} raised {type(error).__name__}: {error}") from error
    return name, "ok"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    outcomes: Counter[str] = Counter()
    until = time.monotonic() + options.seconds
    seed = options.seed
    while time.monotonic() < until:
        if options.verbose:
            print(seed, flush=True)
        _, outcome = one_round(seed)
        outcomes[outcome] += 1
        seed += 1
    print(f"{seed - options.seed} calls: " + ", ".join(f"{n} {name}" for name, n in outcomes.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
