"""What no check looks at, field by field, with the reason; the report lists it."""

from fnmatch import fnmatchcase

from ledger.claim import Level
from ledger.verdict import CheckResult

_FIELDS = (
    ("bundle.raw beyond its two values", "which captures are published is the publisher's choice"),
    ("plan.title, plan.selected_from, plan.time_limit_s", "words and limits; no claim rests on them"),
    (
        "plan.build.launch.chosen_by",
        "the kernel's own choice rests on its register counts (U1); the runner decides",
    ),
    ("plan.fixture.seeds_scanned", "nothing in a bundle can show what was tried before it"),
    (
        "lock.fixture.recipe and the tensors beyond the routing",
        "level reexecute rebuilds them from the recipe",
    ),
    ("routing.topk_ids within the dealt ranges, topk_weights_bits", "level reexecute redraws them"),
    (
        "build.versions, digests in build.source; of a GPU, what arithmetic and driver say",
        "free text of the machine; hashed as a whole",
    ),
    ("record.process.argv beyond flags and symbolic paths", "free arguments of the runner"),
    ("record.process.flags beyond no_user_site and safe_path", "they follow from argv and environment"),
    (
        "record.treatment.gemms.symbol, of a GPU",
        "compared across the cohort only; its spelling is the build's",
    ),
    ("record.treatment.gemms.symbol, of a simulation", "level reexecute compares it with the engine's own"),
    ("record.activation.ambiguous_elements", "level reexecute counts them"),
    ("record.assumptions U3", "a claim's assumption, not a process's: no record can show it"),
    (
        "times of attempts, markers and starts within what their order and each other allow",
        "no claim rests on how long anything took",
    ),
    ("attempts.descendants_killed, stderr", "the runner's log; no claim rests on them"),
    ("surfaces' bits against the arithmetic", "level reexecute recomputes them"),
    ("that the plan was frozen before the run", "no bundle can show it; anchor the plan with --expect-plan"),
)


#: Places of a bundle where a change survives the sweep by right (`verifier.sweep`), as a pattern, and why.
_SURVIVE: tuple[tuple[str, str], ...] = (
    ("record.markers[[]*].time_us", "between its neighbours; no claim rests on how long a step took"),
    ("record.process.argv[[]*]", "free arguments of the runner, beyond flags and symbolic paths"),
    ("record.process.flags.*", "they follow from argv and environment"),
    ("record.process.pid", "which number a process had is anybody's; two of one number and start are not"),
    ("record.process.started_us", "within what it takes to start a process; no claim rests on that"),
    ("record.activation.ambiguous_elements", "level reexecute counts them"),
    ("record.assumptions[[]*]", "U3 is a claim's assumption, not a process's: no record can show it"),
    ("attempts.jsonl[[]*].time_us", "between its neighbours; no claim rests on a distance in time"),
    ("attempts.jsonl[[]*].descendants_killed", "the runner's log; no claim rests on it"),
    ("attempts.jsonl[[]*].stderr*", "what a process said besides; no claim rests on it"),
    ("attempts.jsonl[[]*].torn", "what a runner that died left behind; no claim rests on it"),
    (
        "attempts.jsonl[[]*].exit_code",
        "an outcome other than valid is told by its reason; no claim rests on it",
    ),
    ("attempts.jsonl[[]*].reason", "words on an attempt that gave no evidence"),
)


def by_right(place: str) -> str | None:
    """Why a change at a place may go unnoticed; None if it may not. List places are `[*]`."""
    return next((reason for pattern, reason in _SURVIVE if fnmatchcase(place, pattern)), None)


def unchecked(level: Level) -> tuple[CheckResult, ...]:
    """One entry per group of fields; what re-execution decides is left out at its level."""
    return tuple(
        CheckResult(name=name, says="not checked, by right", findings=0, reason=reason)
        for name, reason in _FIELDS
        if level != "reexecute" or not reason.startswith("level reexecute")
    )
