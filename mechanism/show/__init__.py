"""Showing: the schedule as text and picture, progress, the result of a run."""
