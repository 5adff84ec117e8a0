"""AMD GPUs. `clang.py` builds code objects for any gfx target without a GPU, a driver or ROCm."""
