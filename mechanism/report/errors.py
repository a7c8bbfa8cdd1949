"""What `report` refuses, by name."""

from mechanism.errors import MechanismError


class ReportError(MechanismError):
    """There is no bundle to report on, or no page can be made of it."""
