"""NVIDIA's libraries."""
