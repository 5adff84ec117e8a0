"""Serving: many requests at once over one paged cache. `Engine` is the door; nothing here knows of HTTP."""
