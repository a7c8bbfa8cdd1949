"""Plans become cold processes, processes become records: experiments on the packed-AWQ Marlin MoE kernel.

For notebooks there are five pure functions on numpy arrays, loaded when first asked for: `align`, `schedule`,
`simulate`, `membership` and `compare`; `help(mechanism.align)` and so on.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mechanism.api import align, compare, membership, schedule, simulate

__all__ = ["align", "compare", "membership", "schedule", "simulate"]


def __getattr__(name: str) -> Any:
    """The functions above, on first use: whoever starts processes must not pay for numpy (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mechanism import api  # noqa: PLC0415

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
