"""Values that every room shares: dtypes, shapes, targets, device names, errors and knobs. Imports no other room."""
