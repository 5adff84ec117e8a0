"""Historical import paths. Nothing is defined here; see `pyflame.backend.rocm`."""
