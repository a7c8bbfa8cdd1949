"""The kernel's arithmetic and bookkeeping on a CPU: pure functions, arrays in, arrays out.

Read ``marlin-moe.md`` and ``tensor-core.md`` beside this file first; docstrings cite their sections.
These rooms do not import numpy: errors, assumptions, versions, arrival, alignment, devices,
shapes, configuration, schedule.
"""
