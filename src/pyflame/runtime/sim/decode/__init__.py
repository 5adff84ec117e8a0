"""Machine code, by way of LLVM's listing, to instructions that the interpreter runs."""
