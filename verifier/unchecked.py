"""What no check looks at, field by field, with the reason; the report lists it."""

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
        "build.arithmetic, build.driver, build.versions, digests in build.source",
        "free text of the machine; hashed as a whole",
    ),
    ("record.process.argv beyond flags and symbolic paths", "free arguments of the runner"),
    ("record.process.flags beyond no_user_site and safe_path", "they follow from argv and environment"),
    ("record.treatment.gemms.symbol", "compared across the cohort only; its spelling is the build's"),
    ("record.activation.ambiguous_elements", "level reexecute counts them"),
    ("record.assumptions U3", "a claim's assumption, not a process's: no record can show it"),
    (
        "attempts.time_us across attempts, descendants_killed, stderr",
        "the runner's log; no claim rests on them",
    ),
    ("surfaces' bits against the arithmetic", "level reexecute recomputes them"),
    ("that the plan was frozen before the run", "no bundle can show it; anchor the plan with --expect-plan"),
)


def unchecked(level: Level) -> tuple[CheckResult, ...]:
    """One entry per group of fields; what re-execution decides is left out at its level."""
    return tuple(
        CheckResult(name=name, says="not checked, by right", findings=0, reason=reason)
        for name, reason in _FIELDS
        if level != "reexecute" or not reason.startswith("level reexecute")
    )
