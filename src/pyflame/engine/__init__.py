"""Where the compute side meets the machine side: chooses implementations, compiles plans, keeps and runs them."""
