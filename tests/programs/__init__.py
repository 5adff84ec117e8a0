"""Random programs: what they compute, on any device and in any mode, must be what torch computes in float64.

The catalogue's tests run ops alone; these run them together. `python -m tests.programs --help` says how; what to do
with a finding stands in CONTRIBUTING.md.
"""
