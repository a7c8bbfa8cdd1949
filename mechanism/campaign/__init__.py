"""Campaigns: every locked cell in a process of its own, its attempts logged, its record in a bundle.

`runner` is the one room that acts; it neither imports numpy nor the verifier, and sleeps while cells run.
"""
