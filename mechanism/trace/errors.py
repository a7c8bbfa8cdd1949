"""What `trace` refuses, by name."""

from mechanism.errors import MechanismError


class TraceError(MechanismError):
    """There is no such cell, element or capture, or what is there does not say what it must."""
