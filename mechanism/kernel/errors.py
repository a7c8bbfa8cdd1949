"""Errors of the kernel rooms; all are the caller's mistake, named with rule, numbers and way out.

KernelError
  ShapeError          a tensor, group or tile that the kernel refuses (marlin-moe 9.2, 9.3)
  AlignmentError      an alignment that cannot be built, or is not one of its routing
  ConfigurationError  no launch configuration, or one whose register counts are not known
  ScheduleError       a launch geometry without a schedule, or a tile outside it
"""

from __future__ import annotations


class KernelError(ValueError):
    """Root of everything the kernel rooms refuse."""


class ShapeError(KernelError):
    """A tensor, group or tile that the kernel refuses."""


class AlignmentError(KernelError):
    """An alignment that cannot be built, or is not an alignment of its routing."""


class ConfigurationError(KernelError):
    """No launch configuration exists, or it would rest on unknown register counts."""


class ScheduleError(KernelError):
    """A launch geometry without a schedule, or a tile outside it."""
