"""The verifier: reads a bundle of evidence, checks it, judges the claims of its ledger. No GPU, no numpy."""
