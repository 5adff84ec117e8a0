"""Plans built ahead of time for a target that need not be present, and their runs where it is."""
