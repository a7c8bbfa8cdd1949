"""Explaining: can route alignment change the bits of this model, on this GPU, in this batch, and where?

Facts in, one frozen answer out; reading files and printing are somebody else's. No numpy: an answer takes
well under a second.
"""
