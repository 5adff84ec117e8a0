"""Configurations: checked when they are made; facts of families by core/targets.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pyflame.core.config import AMDArchitecture, AMDConfig, KernelPyTorchConfig
from pyflame.core.errors import AMDConfigurationError, ArgumentError
from pyflame.core.targets import TARGETS


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"architecture": "cdna9"}, "architecture"),
        ({"architecture": "rdna2", "enable_matrix_cores": True}, "no matrix cores"),
        ({"architecture": AMDArchitecture.GCN5, "enable_matrix_cores": True}, "gfx906"),
        ({"optimization_level": "agressive"}, "did you mean 'aggressive'"),
        ({"default_precision": "fp8"}, "default_precision"),
        ({"default_precision": "bf16", "allow_bf16": False}, "allow_bf16=False"),
        ({"device_id": -1}, "device_id"),
        ({"device_id": True}, "device_id"),
        ({"device": "sim:gfx942", "device_id": 1}, "device_id"),
        ({"device": 3}, "a string"),
        ({"memory_pool_size_gb": -1}, "memory_pool_size_gb"),
        ({"max_memory_fraction": 1.5}, "up to 1"),
        ({"max_memory_fraction": float("nan")}, "max_memory_fraction"),
        ({"hip_compiler_cache_size": 0}, "hip_compiler_cache_size"),
        ({"hip_compiler_cache_size": 2.5}, "whole"),
        ({"miopen_find_mode": "SLOW"}, "miopen_find_mode"),
        ({"miopen_find_mode": "FAST", "miopen_enabled": False}, "miopen_enabled"),
        *(
            ({f.name: "yes"}, f.name)
            for f in dataclasses.fields(AMDConfig)
            if f.type == "bool" or f.type == "bool | None"
        ),
    ],
    ids=str,
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(AMDConfigurationError, match=says):
        AMDConfig(**wrong)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="enable_magic"):
        AMDConfig(enable_magic=True)  # type: ignore[call-arg]


def test_the_common_configuration_raises_the_common_error() -> None:
    with pytest.raises(ArgumentError, match="KernelPyTorchConfig") as caught:
        KernelPyTorchConfig(default_precision="int8")
    assert not isinstance(caught.value, AMDConfigurationError)


def test_families_are_those_of_the_target_table() -> None:
    families = [a for a in AMDArchitecture if a is not AMDArchitecture.AUTO]
    assert all(AMDArchitecture.of_gfx(a.target.name) is a for a in families)
    assert all(AMDArchitecture.of_gfx(t.name) for t in TARGETS.values() if t.language == "hip")
    # where the guide's own table is wrong
    assert AMDArchitecture.of_gfx("gfx906") is AMDArchitecture.GCN5
    assert AMDArchitecture.CDNA.target.matrix_core == "mfma"
    assert AMDArchitecture.RDNA3.target.matrix_core == "wmma"
    assert AMDArchitecture.RDNA4.target.fp8 == "ocp"
    assert AMDArchitecture.of_gfx("gfx90a:sramecc+:xnack-") is AMDArchitecture.CDNA2
    with pytest.raises(AMDConfigurationError, match="gfx1"):
        AMDArchitecture.of_gfx("gfx803")
    with pytest.raises(AMDConfigurationError, match="AUTO"):
        AMDArchitecture.AUTO.target


def test_libraries_follow_their_switches() -> None:
    assert AMDConfig().libraries() is None
    assert AMDConfig(rocblas_enabled=False).libraries() == "hipBLASLt,MIOpen"
    assert AMDConfig(rocblas_enabled=False, miopen_enabled=False).libraries() == "hipBLASLt"
