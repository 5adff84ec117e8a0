"""MIOpen."""

from __future__ import annotations

from pyflame.doctor.environment.variable import Machine, Rule, Variable, Verdict, equals

_FIND = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/how-to/find-and-immediate.html"
_CACHE = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/cache.html"
_MODES = "NORMAL|FAST|HYBRID|DYNAMIC_HYBRID|TRUST_VERIFY|TRUST_VERIFY_FULL|[123567]"


def _shared(value: str, _: Machine) -> bool:
    return value.startswith(("/nfs", "/mnt/nfs", "/net/", "/lustre", "/gpfs"))


_NETWORK = Rule(
    Verdict.DANGEROUS,
    "its files are locked and read all the time: on a network file system runs stall and damage them",
    "a folder on a local disk, one for each rank",
    when=_shared,
    source=_CACHE,
)

VARIABLES = (
    Variable(
        "MIOPEN_FIND_MODE", "MIOpen",
        "how a kernel is searched for a new convolution: 1 NORMAL, 2 FAST, 3 HYBRID, 5 DYNAMIC_HYBRID, 6 TRUST_VERIFY, "
        "7 TRUST_VERIFY_FULL. FAST searches nothing; the default differs by version: see MIOpen's log",
        "a name or 1, 2, 3, 5, 6, 7", pattern=f"(?i){_MODES}", source=_FIND,
        rules=(
            Rule(Verdict.NEEDLESS, "every solver is tried at each new shape, for minutes",
                 "leave it out but to find the fastest ones once; FAST searches nothing", when=equals("1", "normal")),
        ),
    ),
    Variable(
        "MIOPEN_USER_DB_PATH", "MIOpen", "folder of results of searches, not of kernels (~/.config/miopen)", "a folder",
        rules=(_NETWORK,), source=_CACHE,
    ),
    Variable(
        "MIOPEN_CUSTOM_CACHE_DIR", "MIOpen", "folder of compiled kernels (~/.cache/miopen)", "a folder",
        rules=(_NETWORK,), source=_CACHE,
    ),
)  # fmt: skip
