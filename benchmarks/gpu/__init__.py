"""A GPU's benchmarks: every contender in one run, in turns, and a copy as the limit. `python -m benchmarks.gpu [NAME]`.

`harness.py` takes the times and prints, `ops.py`, `products.py` and `training.py` hold the work. Nothing here needs
more than pyflame and NumPy; torch and jax take part where they are installed.
"""
