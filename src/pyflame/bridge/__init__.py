"""Bridges to what others have made: models that come from elsewhere and run on our engine, and the way back."""
