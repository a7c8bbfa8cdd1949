"""Tracing: the story of one element, slice by slice and rounding by rounding, under two histories.

The sums are made here by a plain reading of the specification (marlin-moe 10), one element at a time, not by
the engine's batched chains: that both give the same bits is a test, and a line of every trace.
"""
