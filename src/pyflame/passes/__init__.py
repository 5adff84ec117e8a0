"""Rewrites, Graph -> Graph: each file one. They know ops and the Target, but neither memory nor drivers."""
