"""torch.fx: modules and functions traced with proxies into graphs that programs change, and that are Python again.

`pf.jit` is what makes programs fast; these graphs are for programs that look at other programs.

    >>> gm = pf.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    >>> [node.target for node in gm.graph.nodes]
    ['input', '0', '1', 'output']
"""

from __future__ import annotations

from pyflame.core.torch_paths import below
from pyflame.fx.graph import Graph
from pyflame.fx.graph_module import GraphModule
from pyflame.fx.interpreter import Interpreter, Transformer
from pyflame.fx.node import Node
from pyflame.fx.proxy import Proxy
from pyflame.fx.subgraph_rewriter import replace_pattern
from pyflame.fx.tracer import Tracer, symbolic_trace, wrap

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "replace_pattern",
    "symbolic_trace", "wrap",
]  # fmt: skip
__getattr__ = below("fx")
