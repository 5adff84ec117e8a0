"""Vendor libraries: found, loaded and called through pointers. Knows no graph."""
