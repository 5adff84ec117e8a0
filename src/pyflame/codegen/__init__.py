"""Kernel -> source text. `c.py` writes loops for the CPU, `gpu.py` blocks and threads for HIP and CUDA."""
