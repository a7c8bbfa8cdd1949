"""The shared contract of mechanism and verifier: documents, canonical bytes, digests, claims as data.

What both sides import, neither side checks: so this package holds schemas and encodings only, no
arithmetic of the kernel, no judgement of evidence.
"""
