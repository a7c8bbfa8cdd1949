"""Releases: a bundle in one file, described, bagged, stated and signed in standard forms (ledger.release)."""
