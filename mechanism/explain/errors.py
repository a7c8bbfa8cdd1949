"""What `explain` refuses, by name."""

from mechanism.errors import MechanismError


class ExplainError(MechanismError):
    """The question cannot be answered as it was put: a field is missing, a number is impossible."""
