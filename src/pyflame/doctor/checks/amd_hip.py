"""The HIP runtime: which file it is, its version, and whether there is more than one."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import INSTALL, Library, dotted, libraries, torch_install
from pyflame.runtime.rocm.find import mapped

_OLDEST = (6, 0)  # loads code objects of version 5, which kernels are built as
MODES = {
    "no-hip": "there is no libamdhip64.so: neither ROCm's packages nor AMD's wheels are installed",
    "only-torch": "the only HIP runtime is PyTorch's own copy",
    "dangling": "a link to libamdhip64 leads nowhere, as after a half-removed ROCm",
    "old-hip": "HIP is older than 6.0, which loads no code object of version 5",
    "several-hip": "several HIP runtimes of different versions: two of them in one process crash or see no GPU",
    "two-loaded": "two HIP runtimes are loaded in this very process",
    "torch-other-major": "PyTorch's own HIP is of another major version than the system's",
}


def look(machine: Machine) -> Findings:
    found = libraries(machine, "amdhip64")
    whole = [lib for lib in found if lib.whole]
    for lib in found:
        if not lib.whole:
            yield warning(
                "dangling",
                f"{lib.path} leads nowhere",
                f"sudo rm {lib.path}   # or reinstall the package: dpkg -S {lib.path}",
            )
    if not whole:
        yield broken("no-hip", "there is no libamdhip64.so in ROCm's folders, the loader's or AMD's wheels", INSTALL)
        return
    if len(loaded := mapped(maps=machine.path("/proc/self/maps"))) > 1:
        yield broken(
            "two-loaded",
            f"this process has {' and '.join(loaded)}",
            "unset LD_LIBRARY_PATH LD_PRELOAD   # so that both use one ROCm; or import PyFlame or torch alone",
        )
    own = [lib for lib in whole if not lib.of_torch]
    if not own:
        yield warning("only-torch", f"{whole[0]} is PyTorch's", INSTALL)
    yield from _versions(own or whole, [lib for lib in whole if lib.of_torch])
    yield fine(str((own or whole)[0]))


def _versions(own: list[Library], of_torch: list[Library]) -> Findings:
    first = own[0]
    if first.version and first.version[:2] < _OLDEST:
        yield broken("old-hip", f"{first} is older than 6.0", "# install a newer ROCm: https://rocm.docs.amd.com")
    versions = {lib.version[:2]: lib for lib in own if len(lib.version) >= 2}
    if len(versions) > 1:
        listed = ", ".join(str(lib) for lib in versions.values())
        yield warning(
            "several-hip",
            f"the first of these counts: {listed}",
            f"export LD_LIBRARY_PATH={first.path.rpartition('/')[0]}   # or remove the others",
        )
    for lib in of_torch:
        if lib.version and first.version and first is not lib and lib.version[0] != first.version[0]:
            yield warning(
                "torch-other-major",
                f"PyTorch brings HIP {dotted(lib.version)}, the system has {dotted(first.version)}",
                torch_install(first.version),
            )


CHECK = Check(
    "amd-hip",
    "amd",
    "libamdhip64 in the system's folders, AMD's wheels and PyTorch: file, version, how many",
    look,
    MODES,
    ("amd-agents", "amd-wsl"),
)
