"""The verifier's own alignment, schedule and expansion arithmetic: a second implementation, on purpose.

If this package borrowed the runner's code, a fault in it would confirm itself. What it follows is the
specification (marlin-moe) and the rules in ledger/plan.py and ledger/record.py; what it shares with the
runner is data: vectors and worked tables, in the tests.
"""
