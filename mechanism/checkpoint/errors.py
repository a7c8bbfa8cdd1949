"""CheckpointError: what can be wrong with a checkpoint or its inputs.

CheckpointError
  ShardError      a file of the checkpoint is missing, truncated, or not safetensors
  SettingsError   config.json does not describe weights that become a packed-AWQ fixture
  NamesError      tensors are missing, unknown, or of two readings
  LayoutError     a tensor is not what its format says it is
  InputsError     hidden states, prompt or routing cannot be used
"""

from mechanism.fixture.errors import FixtureError


class CheckpointError(FixtureError):
    """Root of everything that keeps a checkpoint from becoming a fixture."""


class ShardError(CheckpointError):
    """A file of the checkpoint is missing, truncated, or not safetensors."""


class SettingsError(CheckpointError, ValueError):
    """The checkpoint's configuration does not describe weights that become a packed-AWQ fixture."""


class NamesError(CheckpointError, ValueError):
    """Tensors are missing, unknown, or of two readings."""


class LayoutError(CheckpointError, ValueError):
    """A tensor is not what its format says it is."""


class InputsError(CheckpointError, ValueError):
    """Hidden states, prompt or routing cannot be used."""
