"""What is wrong with this machine, and whether PyFlame computes rightly on it."""
