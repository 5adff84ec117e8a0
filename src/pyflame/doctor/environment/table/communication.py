"""RCCL, which reads NCCL's names, and what starts several processes."""

from __future__ import annotations

from pyflame.doctor.environment.variable import Rule, Variable, Verdict, equals

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_RUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_TORCHRUN = Rule(
    Verdict.NEEDLESS,
    "torchrun sets it; set by hand, a single process waits for others that nobody starts",
    "start with torchrun, and leave it out",
)

VARIABLES = (
    Variable(
        "NCCL_DEBUG", "RCCL, NCCL", "what is written to stderr", "VERSION, WARN, INFO, TRACE", "",
        "(?i)version|warn|info|trace|error|abort", source=_NCCL,
    ),
    Variable(
        "NCCL_SOCKET_IFNAME", "RCCL, NCCL", "network interfaces to use", "names with commas, ^ excludes", rules=(
            Rule(
                Verdict.NEEDLESS,
                "within one machine RCCL finds the way by itself, and with lo a second machine is never reached",
                "leave it out",
                equals("lo", "=lo"),
            ),
        ), source=_NCCL,
    ),
    Variable(
        "NCCL_NSOCKS_PERTHREAD", "RCCL, NCCL", "TCP connections of a thread, between machines", "1 to 16", "",
        "[1-9]|1[0-6]",
        (Rule(Verdict.NEEDLESS, "it tunes TCP between machines; RCCL chooses a number by itself", "leave it out"),),
        _NCCL,
    ),
    Variable(
        "NCCL_P2P_DISABLE", "RCCL, NCCL",
        "1: GPUs exchange data through the host: slower, but where peer access hangs it tells the cause",
        "0 or 1", "0", "[01]", source=_NCCL,
    ),
    Variable("MASTER_ADDR", "torch.distributed", "where rank 0 is reached", "a host", source=_RUN),
    Variable("MASTER_PORT", "torch.distributed", "port of rank 0", "a number", "", r"\d+", source=_RUN),
    Variable("WORLD_SIZE", "torch.distributed", "number of processes", "a number", "", r"\d+", (_TORCHRUN,), _RUN),
    Variable("RANK", "torch.distributed", "which of the processes this is", "a number", "", r"\d+", (_TORCHRUN,), _RUN),
    Variable(
        "LOCAL_RANK", "torch.distributed", "which of this machine's processes this is", "a number", "", r"\d+",
        (_TORCHRUN,), _RUN,
    ),
)  # fmt: skip
