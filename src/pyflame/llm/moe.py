"""A mixture of experts: a router scores all, a few serve each token, and their results are added up by score.

Experts of one kind lie stacked in one tensor (count, outputs, inputs), of which `expert_linear` reads the chosen ones.
Where several devices have a part of them each (`own`), every device scores all and adds up its own.
"""

from __future__ import annotations

from pyflame.core.dtype import float32
from pyflame.llm.config import Experts, ModelConfig
from pyflame.llm.layers import Part, StackedLinear, Weights
from pyflame.llm.mlp import MLP, gated
from pyflame.nn.module import Module
from pyflame.tensor import Tensor
from pyflame.tensor.counted import where as choose


class MixtureOfExperts(Part):
    """The experts of one block, and the MLP that all tokens share where there is one."""

    def __init__(self, block: Module, config: ModelConfig, layer: int, weights: Weights) -> None:
        super().__init__(block, weights, layer)
        assert config.experts is not None
        moe = self.experts = config.experts
        self.activation = config.activation
        self.linear("ffn_gate_inp", config.width, moe.count, moe.router_bias)
        if moe.choice_bias:
            self.numbers("exp_probs_b", moe.count)
        for name, inputs, outputs in (
            ("ffn_gate_exps", config.width, moe.ffn),
            ("ffn_up_exps", config.width, moe.ffn),
            ("ffn_down_exps", moe.ffn, config.width),
        ):
            first, end = moe.own or (0, moe.count)
            self.add(name, StackedLinear(weights, self.prefix + name, end - first, inputs, outputs, moe.bias))
        self.shared = MLP(block, config, layer, weights, moe.shared_ffn, "_shexp") if moe.shared_ffn else None
        if moe.shared_gate:
            self.numbers("ffn_gate_inp_shexp", config.width)

    def join(self) -> None:
        """As the MLP's, for the one that all tokens share."""
        if self.shared is not None:
            self.shared.join()

    def __call__(self, x: Tensor, cached: bool = False) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        scores, chosen = route(self.experts, self.ffn_gate_inp(flat).to(float32), self._choice_bias())
        at, elsewhere = own_experts(self.experts, chosen)
        y = gated(self.activation, self.ffn_gate_exps(flat, at), self.ffn_up_exps(flat, at))
        y = self.ffn_down_exps(y, at)  # (N, used, width)
        y = y * scores.to(y.dtype).unsqueeze(-1)
        out: Tensor = (y if elsewhere is None else y.masked_fill(elsewhere.unsqueeze(-1), 0.0)).sum(1)
        if self.shared is not None:
            own = self.shared(flat, cached)
            if self.experts.shared_gate:
                own = own * (flat * self.ffn_gate_inp_shexp()).sum(-1, True).sigmoid()
            out = out + own
        return out.reshape(*x.shape)

    def _choice_bias(self) -> Tensor | None:
        return self.exp_probs_b() if self.experts.choice_bias else None


def route(moe: Experts, logits: Tensor, choice_bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The score and the number of each expert that a token uses: (N, count) -> two of (N, used)"""
    if moe.gating == "softmax_chosen":
        top, chosen = logits.topk(moe.used)
        return top.softmax(-1) * moe.scale, chosen
    scores = logits.sigmoid() if moe.gating == "sigmoid" else logits.softmax(-1)
    ranked = scores if choice_bias is None else scores + choice_bias.to(scores.dtype)
    if moe.groups > 1:
        ranked = _of_best_groups(moe, ranked)
    chosen = ranked.topk(moe.used)[1]
    kept = scores.gather(1, chosen)
    if moe.normalised:
        kept = kept / (kept.sum(-1, True) + 1e-20)
    return kept * moe.scale, chosen


def own_experts(moe: Experts, chosen: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where the chosen experts lie in this device's stacks, and which of them are another device's. For those stands
    one that the token uses here anyway, so that no more weights are read."""
    if moe.own is None:
        return chosen, None
    first, end = moe.own
    elsewhere = (chosen < first) | (chosen >= end)
    at = (chosen - first).masked_fill(elsewhere, 0)
    return choose(elsewhere, at.amax(-1, True), at), elsewhere


def _of_best_groups(moe: Experts, ranked: Tensor) -> Tensor:
    """Scores with those of all but the best groups made 0."""
    grouped = ranked.reshape(ranked.shape[0], moe.groups, -1)
    best = grouped.amax(-1) if moe.group_score == "max" else grouped.topk(2)[0].sum(-1)
    used = best.topk(moe.groups_used)[1]
    open_ = ranked.new_zeros(best.shape).scatter(1, used, 1.0).unsqueeze(-1)
    return grouped.masked_fill(open_ == 0.0, 0.0).reshape(*ranked.shape)
