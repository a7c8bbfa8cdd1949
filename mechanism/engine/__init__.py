"""Engines: what runs one layer under one treatment. `protocol` says what they have in common."""
