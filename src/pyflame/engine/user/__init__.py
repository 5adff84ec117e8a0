"""Kernels that users write."""
