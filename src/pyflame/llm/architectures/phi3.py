"""Phi-3 and Phi-4: Llama with one matrix for q, k and v, and one for gate and up.

Long contexts turn by frequencies that are divided by numbers of their own (longrope): short ones up to the trained
context, long ones beyond.
"""

import math
from typing import Any

from pyflame.core.errors import FileFormatError
from pyflame.llm.architectures.base import Architecture, Fields
from pyflame.llm.config import ModelConfig

_MODULES = r"model\.layers\.\d+\.(?:self_attn|mlp)\.(?:qkv|o|gate_up|down)_proj|lm_head"


def config(f: Fields) -> ModelConfig:
    return f.config(
        fused_qkv=True,
        mlp="fused",
        rope=f.rope(**_longrope(f)),
        windows=f.windows(f("attention.sliding_window", "sliding_window", None), lambda layer: True),
    )


def _longrope(f: Fields) -> dict[str, Any]:
    """The long factors where the context that is asked for is longer than the trained one."""
    scaling = f.scaling()
    context = int(f("context_length", "max_position_embeddings"))
    if f.hf:
        trained = int(
            f("", "original_max_position_embeddings", scaling.get("original_max_position_embeddings", context))
        )
        found = {n: scaling.get(f"{n}_factor") for n in ("short", "long")}
    else:
        trained = int(f("rope.scaling.original_context_length", "", context))
        names = {n: f"rope_factors_{n}.weight" for n in ("short", "long")}
        found = {n: f.numbers(name) for n, name in names.items() if name in f.names}
    chosen = found.get("long" if (f.wanted_context or context) > trained else "short")
    if chosen is None:
        return {}
    if f.hf and scaling.get("rope_type", scaling.get("type")) != "longrope":
        raise FileFormatError(f"[phi3] expected rope scaling longrope but got {scaling}")
    factor = scaling.get("attention_factor")
    if factor is None:
        factor = math.sqrt(1.0 + math.log(context / trained) / math.log(trained)) if context > trained else 1.0
    return {"scaling": "factors", "factors": tuple(map(float, chosen)), "attention_factor": float(factor)}


ARCHITECTURE = Architecture("phi3", ("phi3",), config, modules=_MODULES)
