"""Vendor libraries in plans: what they offer, which offer is fastest and right, and what is remembered of it."""
