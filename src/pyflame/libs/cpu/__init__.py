"""Libraries for the CPU."""
