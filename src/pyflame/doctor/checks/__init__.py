"""One check per file. `doctor/chain.py` puts them in order."""
