"""Machines: devices, memory, compilers and the disk cache. Knows bytes, pointers and source text, but no graph."""
