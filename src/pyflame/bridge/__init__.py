"""Bridges to other frameworks: `pyflame.bridge.torch`. Each needs its framework, and is imported when first used."""
