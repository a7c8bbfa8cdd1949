"""What can go wrong in the mechanism, by whose fault it is.

    MechanismError
      PlanError      a frozen plan does not say what it must
      CellError      a cell ended without a capture
      EngineError    the engine that ran is not the one the plan names
      CampaignError  the campaign or its bundle cannot go on

`str()` of each is one message for a person: what was expected, then what was found. The kernel and the
fixture rooms stand without the rest and have roots of their own: `mechanism.kernel.errors.KernelError`,
`mechanism.fixture.errors.FixtureError`.
"""


class MechanismError(Exception):
    """Root of everything that is refused here by name; anything else keeps its traceback."""


class PlanError(MechanismError):
    """A frozen plan does not say what it must, or cannot deliver what it says."""


class CellError(MechanismError):
    """A cell ended without a capture: what was delivered is not what was asked for."""


class EngineError(MechanismError):
    """The engine that ran, or would run, is not the one the plan names."""


class CampaignError(MechanismError):
    """The campaign or its bundle cannot go on; what is recorded so far is kept."""
