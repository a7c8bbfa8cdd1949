"""Cold processes: how one is asked for, started, supervised, and what the child does.

`launch` and `supervisor` are the parent's side, `child` and `steps` the child's, `request` what passes
between them. The child imports no pydantic, YAML or command line: it pays for its start 70 times.
"""
