"""Kernels and plans on simulated GPUs, watched: traces, faults and single steps."""
