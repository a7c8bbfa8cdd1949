"""The report: a bundle as one self-contained page. Verdicts are the verifier's, told and not made here."""
