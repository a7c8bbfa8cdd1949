"""Every plan that cannot be run is refused before anything starts, with its line and the way out."""

import os
from pathlib import Path

import pytest

from ledger.fault import FaultsError
from mechanism.errors import PlanError
from mechanism.fixture.routing import routing_file
from mechanism.plan.deliver import refuse_static, refuse_undeliverable
from mechanism.plan.document import load_ledger, load_plan
from tests.plan.one_replicate import write_once_each

PLANS = Path(__file__).parents[2] / "plans"
Edit = tuple[str, str]


def refusals(folder: Path, *edits: Edit, plan: str = "route_block") -> list[str]:
    """What is said of a plan after the edits, each of which must hit exactly once."""
    text = (PLANS / f"{plan}.yaml").read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return said_of(path)


def said_of(path: Path) -> list[str]:
    """Every line of the refusal of a plan; none if it can be frozen."""
    try:
        loaded = load_plan(path)
        refuse_static(loaded)
        ledger = load_ledger(loaded, path.parent)
        refuse_undeliverable(loaded, ledger, routing_file(loaded.plan.fixture).topk_ids)
    except FaultsError as fault:
        return str(fault).splitlines()
    return []


@pytest.mark.parametrize("plan", ["route_block", "quick", "route_block_h200", "stable_construction"])
def test_committed_plans_can_deliver(tmp_path: Path, plan: str) -> None:
    assert refusals(tmp_path, plan=plan) == []


# Each case: what is wrong, the edit, and the messages; `@` stands for the line of the edit, `@1` for the next, and so on.
SHAPES = [
    (
        "duplicate key",
        ("replicates: 5", "replicates: 5\nreplicates: 5"),
        "plan.yaml:@1: replicates: expected each key once, got 'replicates' again (first on line @)",
    ),
    (
        "unknown key",
        ("replicates: 5", "replicates: 5\nrepeats: 5"),
        "plan.yaml:@1: repeats: expected no such key; it is unknown here, check its spelling",
    ),
    (
        "no replicates",
        ("replicates: 5", "replicates: 0"),
        "plan.yaml:@: replicates: expected at least 1, got 0",
    ),
    (
        "no as a name",
        ("name: route_block", "name: no"),
        'plan.yaml:@: name: expected a value with one reading, got no; quote it ("no") if text is meant',
    ),
    (
        "octal",
        ("replicates: 5", "replicates: 05"),
        'plan.yaml:@: replicates: expected a value with one reading, got 05; quote it ("05") if text is meant',
    ),
    (
        "text for a number",
        ("tokens: 12", 'tokens: "12"'),
        "plan.yaml:@: fixture.tokens: expected an integer, got '12'",
    ),
    (
        "true for a number",
        ("tokens: 12", "tokens: true"),
        "plan.yaml:@: fixture.tokens: expected an integer, got True",
    ),
    (
        "grid of 0",
        ("grid: 200", "grid: 0"),
        "plan.yaml:@: phases[2].cells[2].grid: expected at least 1, got 0",
    ),
    ("missing key", ("time_limit_s: 60\n", ""), "plan.yaml:3: time_limit_s: expected this key, found none"),
    (
        "group without a kernel",
        ("group_size: 128", "group_size: 96"),
        "plan.yaml:@: fixture.group_size: expected 32, 64 or 128, got 96",
    ),
    (
        "surfaces out of order",
        ("[w13, activation, w2, output]", "[w2, w13]"),
        "plan.yaml:@: surfaces[1]: expected some of w13, activation, w2, output in this order, got w13 after w2; put it before",
    ),
    (
        "a surface twice",
        ("surfaces: [w13, activation, w2, output]", "surfaces:\n  - w13\n  - w13"),
        "plan.yaml:@2: surfaces[1]: expected each surface once, got w13 again; take it out",
    ),
    (
        "a history of a cell twice",
        (
            "name: replay, alignment: own, histories: [H0, H1]}",
            "name: replay, alignment: own, histories: [H0,\n          H0]}",
        ),
        "plan.yaml:@1: phases[0].cells[1].histories[1]: expected each history once, got H0 again; take it out",
    ),
    (
        "unknown arrival",
        (
            "  H0: # index order, but route 86 is served last\n    arrival:\n      kind: explicit",
            "  H0:\n    arrival:\n      kind: lucky",
        ),
        "plan.yaml:@1: histories.H0.arrival: expected 'index', 'warps', 'explicit', 'seeded', got 'lucky'",
    ),
]
RULES = [
    (
        "cell named twice",
        ("name: replay", "name: native"),
        "plan.yaml:@: phases[0].cells[1].name: expected each cell once, got native again; rename one",
    ),
    (
        "phase named twice",
        ("name: transfer", "name: qualification"),
        "plan.yaml:@: phases[1].name: expected each phase once, got qualification again",
    ),
    (
        "history never defined",
        (
            "name: replay, alignment: own, histories: [H0, H1]",
            "name: replay, alignment: own, histories: [H0, H2]",
        ),
        "plan.yaml:@: phases[0].cells[1].histories[1]: expected histories that are defined (H0, H1), got H2; define it under `histories`, or name another",
    ),
    (
        "nothing constructed",
        ("alignment: constructed", "alignment: stable"),
        "plan.yaml:@1: phases[0].cells[1].alignment: expected a cell with alignment: constructed for every history whose alignment is injected, got none for H0, H1; add one",
    ),
    (
        "K not divisible by the tile",
        ("w2: {tile: [64, 128]", "w2: {tile: [512, 128]"),
        "plan.yaml:@: build.launch.w2: tile_k must divide K: K=768 leaves 256 over tile_k=512; use another",
    ),
    (
        "hidden that Marlin does not take",
        ("hidden: 2048", "hidden: 2056"),
        "plan.yaml:@: fixture.hidden: hidden % 128 must be 0: 2056 leaves 8; pad hidden to 2176",
    ),
    (
        "intermediate not divisible by the group",
        ("intermediate: 768", "intermediate: 704"),
        "plan.yaml:@: fixture.intermediate: intermediate % max(64, group) must be 0: 704 leaves 64 over 128; use a group that divides it, or pad intermediate to 768",
    ),
    (
        "no atomics",
        ("experts: 128", "experts: 64"),
        "plan.yaml:@: fixture.experts: expected an alignment decided by atomics (1024 routes or more, or more than 64 experts), got 96 routes to 64 experts: their order is fixed, so histories cannot differ (marlin-moe 2.4)",
    ),
    (
        "kernel unknown",
        ("vllm==0.22.0", "vllm==0.23.0"),
        "plan.yaml:@: build.kernel: expected a build whose arithmetic is known (vllm==0.11.0, vllm==0.22.0, vllm==0.29.0), got vllm==0.23.0",
    ),
    (
        "not the kernel's choice",
        ("w2: {tile: [64, 128], ctas_per_sm: 3", "w2: {tile: [64, 128], ctas_per_sm: 2"),
        "plan.yaml:@: build.launch.w2: expected the kernel's own choice, tile [64, 128] with 3 CTAs per SM (marlin-moe 4.3), got tile [64, 128] with 2; pin that, or say chosen_by: plan",
    ),
    (
        "swap of two experts",
        ("routes: [22, 28]", "routes: [22, 27]"),
        "plan.yaml:@: phases[2].cells[0].swap: under H0: expected two routes of one expert, got route 22 of expert 106 and 27 of 9",
    ),
    (
        "swap of a route with itself",
        ("routes: [22, 28]", "routes: [22, 22]"),
        "plan.yaml:@: phases[2].cells[0].swap.routes: expected two routes, got 22 twice",
    ),
    (
        "swap of no route",
        ("routes: [22, 28]", "routes: [22, 96]"),
        "plan.yaml:@: phases[2].cells[0].swap: under H0: expected routes 0..95, got 96",
    ),
    (
        "boundary swap inside one block",
        ("routes: [51, 86]", "routes: [51, 62]"),
        "plan.yaml:@: phases[2].cells[1].swap: under H0: expected routes of two padded blocks, got 51 and 62 both in block 40; expert 106 fills 2 blocks of 8; choose routes on two sides of a boundary, of an expert with more routes than one block holds",
    ),
    (
        "within-block swap across blocks",
        ("routes: [22, 28]", "routes: [22, 86]"),
        "plan.yaml:@: phases[2].cells[0].swap: under H0: expected two routes of one padded block, got 22 in block 40 and 86 in 41",
    ),
    (
        "boundary without a boundary",
        (
            "swap: {kind: block-boundary, routes: [51, 86]}",
            "swap: {kind: block-boundary, routes: [51, 86]}\n        grid: 200",
        ),
        "plan.yaml:@: phases[2].cells[1].swap: under H0: expected padded blocks with different W13 slice lists, got 40 and 41 with equal ones at a grid of 200 (600 tiles, tiles 0..399 are whole; marlin-moe 5.3): the swap cannot matter; choose an expert whose blocks lie on two sides of the boundary, or another grid",
    ),
    (
        "grid that splits",
        ("grid: 200", "grid: 246"),
        "plan.yaml:@1: phases[2].cells[2].single_slice: expected a grid at which every w13 tile has one slice, got 246 CTAs: 108 of 600 tiles split (50 padded blocks; marlin-moe 5.6); a grid that divides the tiles has none split",
    ),
    (
        "assumption left unsaid",
        ("assumptions: [U2, U3, U5, U10]", "assumptions: [U2, U3, U10]"),
        "plan.yaml:@: assumptions: expected U5 among the assumptions, got it missing: an arrival order serves lanes of one warp out of lane order; add it",
    ),
    (
        "ledger unknown",
        ("ledger: route_block", "ledger: route_blok"),
        "plan.yaml:@: ledger: expected one of quick, route_block, route_block_h200, stable_construction or a path that ends in .yaml, got route_blok",
    ),
    (
        "cell the ledger cites is gone",
        ("name: canonical", "name: canon"),
        "route_block.yaml:143: claims[7].delivered[0].cell: C08, C09, M-marker-reordered: expected a cell that the plan has, got canonical under H0; a plan with other cells needs a ledger of its own: write one beside the plan, and name its file in the plan's `ledger:`",
    ),
]


#: What is wrong with a ledger beside the plan, the edit, and all that is said; `@` as above, of the ledger.
LEDGERS = [
    (
        "another name",
        ("name: quick\n", "name: quack\n"),
        [
            "mine.yaml:@: name: expected mine, as the plan's `ledger: mine.yaml` calls it, got quack; a ledger's name is its file's without .yaml: rename one of them"
        ],
    ),
    (
        "known-bad of no replicate",
        (
            "cell: cross-order, history: H0, replicate: 1,\n",
            "cell: cross-order, history: H0, replicate: 9,\n",
        ),
        [
            "mine.yaml:@: claims[2].known_bad.replicate: C03: expected a replicate of 1..5, which the plan has, got 9; name one of those here, or raise `replicates` in the plan"
        ],
    ),
    (
        "mutation of no history",
        ("cell: cross-order, history: H0, replicate: 2", "cell: cross-order, history: H2, replicate: 2"),
        [
            "mine.yaml:@: mutations[1].history: M-route-moved: expected a history of that cell that the plan has, got cross-order under H2; a plan with other cells needs a ledger of its own: write one beside the plan, and name its file in the plan's `ledger:`"
        ],
    ),
    (
        "block beyond the last",
        (
            "boundary, history: H0}, routes: [20, 37], blocks: [7, 8]",
            "boundary, history: H0}, routes: [20, 48], blocks: [7, 80]",
        ),
        [
            "mine.yaml:@: claims[4].delivered[1].routes[1]: C05: expected routes 0..47, which the fixture has, got 48; name another",
            "mine.yaml:@: claims[4].delivered[1].blocks[1]: C05: expected padded blocks 0..11, which the fixture's routing fills, got 80; `mechanism schedule PLAN` lists them",
        ],
    ),
    (
        "processes that are not the plan's",
        (
            "processes: 70, phases: [{phase: qualification, processes: 20}, {phase: transfer, processes: 20}",
            "processes: 69, phases: [{phase: qualification, processes: 19}, {phase: transport, processes: 20}",
        ),
        [
            "mine.yaml:@: claims[9].outcome[0].processes: C10: expected 70 processes, as many as the plan has (cells x histories x 5 replicates), got 69; correct it here, or change the plan",
            "mine.yaml:@: claims[9].outcome[0].phases[0].processes: C10: expected 20 processes in qualification, as many as the plan has, got 19; correct it here, or change the plan",
            "mine.yaml:@: claims[9].outcome[0].phases[1].phase: C10: expected a phase that the plan has (qualification, transfer, ablation), got transport; a plan with other cells needs a ledger of its own: write one beside the plan, and name its file in the plan's `ledger:`",
        ],
    ),
]


#: Treatments that the plan does not deliver, the edit of the ledger, and all that is said; `@` as above.
CONTRADICTIONS = [
    (
        "another alignment",
        (
            "cell: replay, histories: [H0, H1], alignment: own,",
            "cell: replay, histories: [H0, H1], alignment: stable,",
        ),
        [
            "mine.yaml:@: claims[1].delivered[0].alignment: C02: expected own, the alignment of the plan's cell replay, got stable; correct it here, or change the cell in the plan"
        ],
    ),
    (
        "a number for the pinned grid",
        (
            "cell: replay, histories: [H0, H1], alignment: own, grid: pinned",
            "cell: replay, histories: [H0, H1], alignment: own, grid: 12",
        ),
        [
            "mine.yaml:@: claims[1].delivered[0].grid: C02: expected pinned, the grid of the plan's cell replay (24 CTAs at w13, 24 at w2), got 12; correct it here, or change the cell in the plan"
        ],
    ),
    (
        "the pinned grid by its number",
        (
            "cell: replay, histories: [H0, H1], alignment: own, grid: pinned",
            "cell: replay, histories: [H0, H1], alignment: own, grid: 24",
        ),
        [],
    ),
    (
        "pinned for a forced grid",
        ("alignment: own, grid: 12", "alignment: own, grid: pinned"),
        [
            "mine.yaml:@: claims[6].delivered[0].grid: C07: expected 12, the grid of the plan's cell forced-grid (12 CTAs at w13, 12 at w2), got pinned; correct it here, or change the cell in the plan"
        ],
    ),
    (
        "native bytes called others",
        (
            "cell: replay, histories: [H0, H1], alignment: own, grid: pinned, differs_from_native: false",
            "cell: replay, histories: [H0, H1], alignment: own, grid: pinned, differs_from_native: true",
        ),
        [
            "mine.yaml:@: claims[1].delivered[0].differs_from_native: C02: expected false, since the plan's cell replay gets the bytes of the native alignment of H0, got true; correct it here, or change the cell in the plan"
        ],
    ),
    (
        "other bytes called native",
        (
            "alignment: opposite, grid: pinned, differs_from_native: true",
            "alignment: opposite, grid: pinned, differs_from_native: false",
        ),
        [
            "mine.yaml:@: claims[2].delivered[0].differs_from_native: C03: expected true, since the plan's cell cross-order gets other bytes than the native alignment of H0, got false; correct it here, or change the cell in the plan"
        ],
    ),
    (
        "equal memberships said to differ",
        ("differs_from_native: true, memberships: equal", "differs_from_native: true, memberships: differ"),
        [
            "mine.yaml:@: claims[7].delivered[0].memberships: C08: expected equal, since H0 and H1 put the same routes into the padded blocks in the plan's cell canonical, got differ; correct it here, or change the cell in the plan"
        ],
    ),
    (
        "differing memberships said to be equal",
        (
            "alignment: constructed, grid: pinned, differs_from_native: false, memberships: differ",
            "alignment: constructed, grid: pinned, differs_from_native: false, memberships: equal",
        ),
        [
            "mine.yaml:@: claims[0].delivered[0].memberships: C01: expected differ, since H0 and H1 put different routes into the padded blocks in the plan's cell native, got equal; correct it here, or change the cell in the plan"
        ],
    ),
    (
        "one history that differs",
        ("cell: native, histories: [H0, H1], alignment", "cell: native, histories: [H1], alignment"),
        [
            "mine.yaml:@: claims[0].delivered[0].memberships: C01: expected two histories whose memberships can differ, got H1 alone; name another one, or say equal"
        ],
    ),
    (
        "arms with other routes",
        (
            "{kind: membership-equal, left: {cell: native, history: H1}, right: {cell: within-block, history: H1}}",
            "{kind: membership-equal, left: {cell: native, history: H1}, right: {cell: within-block, history: H0}}",
        ),
        [
            "mine.yaml:@: claims[3].delivered[2].right: C04: expected an arm with the routes of native under H1 in every padded block, got within-block under H0 with others in 2 (7, 8); name others here, or change the cells in the plan"
        ],
    ),
    (
        "routes that lie elsewhere",
        (
            "boundary, history: H0}, routes: [20, 37], blocks: [7, 8]",
            "boundary, history: H0}, routes: [20, 31], blocks: [7, 8]",
        ),
        [
            "mine.yaml:@: claims[4].delivered[1].blocks: C05: expected the padded blocks of routes 20 and 31 under native under H0, two of them, got 7 and 8: 20 lies in 7, 31 in 7; correct it here"
        ],
    ),
    (
        "an exchange with nothing exchanged",
        (
            "left: {cell: native, history: H1}, right: {cell: block-boundary, history: H1}, routes",
            "left: {cell: native, history: H1}, right: {cell: replay, history: H1}, routes",
        ),
        [
            "mine.yaml:@: claims[4].delivered[2].right: C05: expected an arm with the routes of native under H1 but for 20 and 37 exchanged, got replay under H1 with others in 2 (7, 8); name others here, or change the cells in the plan"
        ],
    ),
    (
        "another schedule class",
        (
            "arm: {cell: forced-grid, history: H0}, gemm: w13, blocks: [{block: 7, class: direct}, {block: 8, class: direct}], slice_lists: equal",
            "arm: {cell: forced-grid, history: H0}, gemm: w13, blocks: [{block: 7, class: direct}, {block: 8, class: split}], slice_lists: differ",
        ),
        [
            "mine.yaml:@: claims[6].delivered[1].blocks[1].class: C07: expected direct, the schedule class of padded block 8 at w13 on 12 CTAs, got split; `mechanism schedule PLAN` lists them",
            "mine.yaml:@: claims[6].delivered[1].slice_lists: C07: expected equal, as the slice lists of these padded blocks are at w13 on 12 CTAs, got differ; name other blocks, or correct it here",
        ],
    ),
]


@pytest.mark.parametrize(
    ("edit", "messages"),
    [case[1:] for case in [*LEDGERS, *CONTRADICTIONS]],
    ids=[case[0] for case in [*LEDGERS, *CONTRADICTIONS]],
)
def test_a_ledger_that_cannot_be_judged_on_the_plan(tmp_path: Path, edit: Edit, messages: list[str]) -> None:
    text = (PLANS.parent / "ledger" / "claims" / "quick.yaml").read_text(encoding="utf-8")
    assert text.count(edit[0]) == 1
    line = text[: text.index(edit[0])].count("\n") + 1
    mine = text.replace(*edit).replace("\nname: quick\n", "\nname: mine\n")
    (tmp_path / "mine.yaml").write_text(mine, encoding="utf-8")
    found = refusals(tmp_path, ("ledger: quick\n", "ledger: mine.yaml\n"), plan="quick")
    assert found == [message.replace("@", str(line)) for message in messages]


def test_nothing_can_repeat_with_one_replicate(tmp_path: Path) -> None:
    """Said once, at its first line, with all claims that it concerns; else they would end as missing."""
    path = write_once_each(tmp_path, name="mine")
    claims = tmp_path / "mine-claims.yaml"
    text = claims.read_text(encoding="utf-8")
    repeats = "{kind: repeats, cells: [native], histories: [H0, H1], surfaces: [w13]}"
    claims.write_text(text.replace("{kind: separate-cohorts}", repeats, 2), encoding="utf-8")
    line = text[: text.index("{kind: separate-cohorts}")].count("\n") + 1
    assert said_of(path) == [
        f"mine-claims.yaml:{line}: claims[0].control[0].kind: C01, C09: expected a plan with two replicates or more"
        " for `repeats` to compare, got 1; raise `replicates` in the plan, or take this predicate out"
    ]
    claims.write_text(text, encoding="utf-8")
    assert said_of(path) == []


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (
            (
                "alignment: opposite, grid: pinned, differs_from_native: true",
                "alignment: opposite, grid: pinned, differs_from_native: false",
            ),
            0,
        ),
        (
            (
                "differs_from_native: true, memberships: equal",
                "differs_from_native: true, memberships: differ",
            ),
            1,
        ),
        (
            (
                "cell: replay, histories: [H0, H1], alignment: own, grid: pinned, differs_from_native: false",
                "cell: replay, histories: [H0, H1], alignment: own, grid: pinned, differs_from_native: true",
            ),
            1,
        ),
    ],
    ids=["a run must tell", "stable everywhere", "own is native"],
)
def test_what_a_gpus_alignments_are_is_left_to_the_run(tmp_path: Path, edit: Edit, found: int) -> None:
    """Its atomics decide what is native; that a stable order is one, and replay native, no run needs to tell."""
    text = (PLANS.parent / "ledger" / "claims" / "route_block_h200.yaml").read_text(encoding="utf-8")
    assert text.count(edit[0]) == 1
    mine = text.replace(*edit).replace("\nname: route_block_h200\n", "\nname: mine\n")
    (tmp_path / "mine.yaml").write_text(mine, encoding="utf-8")
    given = ("ledger: route_block_h200\n", "ledger: mine.yaml\n")
    assert len(refusals(tmp_path, given, plan="route_block_h200")) == found


def test_fewer_replicates_with_a_copied_ledger(tmp_path: Path) -> None:
    """A newcomer's first edit: every mutation of a replicate that is gone, and every count, by line."""
    found = refusals(tmp_path, ("replicates: 5", "replicates: 2"), plan="quick")
    assert [line.partition(" expected ")[0] for line in found] == [
        "quick.yaml:176: claims[9].outcome[0].processes: C10:",
        "quick.yaml:176: claims[9].outcome[0].phases[0].processes: C10:",
        "quick.yaml:176: claims[9].outcome[0].phases[1].processes: C10:",
        "quick.yaml:176: claims[9].outcome[0].phases[2].processes: C10:",
        "quick.yaml:207: mutations[2].replicate: M-marker-removed:",
        "quick.yaml:208: mutations[3].replicate: M-marker-reordered:",
        "quick.yaml:209: mutations[4].replicate: M-surface-digest:",
    ]


def lines_of(message: str, old: str) -> str:
    text = (PLANS / "route_block.yaml").read_text(encoding="utf-8")
    line = text[: text.index(old)].count("\n") + 1
    for below in (3, 2, 1):
        message = message.replace(f"@{below}", str(line + below))
    return message.replace("@", str(line))


def check(folder: Path, edit: Edit, message: str) -> None:
    found = refusals(folder, edit)
    assert lines_of(message, edit[0]) in found, found


@pytest.mark.parametrize(("edit", "message"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES])
def test_a_document_that_is_no_plan(tmp_path: Path, edit: Edit, message: str) -> None:
    check(tmp_path, edit, message)
    assert len(refusals(tmp_path, edit)) == 1


@pytest.mark.parametrize(("edit", "message"), [case[1:] for case in RULES], ids=[case[0] for case in RULES])
def test_a_plan_that_breaks_a_rule(tmp_path: Path, edit: Edit, message: str) -> None:
    check(tmp_path, edit, message)


def test_arrival_that_is_no_permutation(tmp_path: Path) -> None:
    found = refusals(tmp_path, ("91, 92, 93, 94, 95, 86,", "91, 92, 93, 94, 94, 86,"))
    line = lines_of("@3", "  H0:")
    assert found == [
        f"plan.yaml:{line}: histories.H0.arrival.routes: arrival: expected a permutation of 0..95, got 94 twice"
    ]


def test_transfer_between_equal_memberships_is_refused(tmp_path: Path) -> None:
    """Case S8: a transfer needs histories whose memberships differ."""
    text = (PLANS / "route_block.yaml").read_text(encoding="utf-8")
    head, tail = text.split("  H1:")
    order = head.split("H0:")[1].split("arrival:")[1].rstrip()
    changed = head + "  H1:\n    arrival:" + order + "\n\nsurfaces:" + tail.split("surfaces:")[1]
    found = refusals(tmp_path, (text, changed))
    line = changed[: changed.index("name: cross-order")].count("\n") + 1
    assert found == [
        f"plan.yaml:{line}: phases[1].cells[0].alignment: expected histories whose memberships differ, got H0 and H1"
        " with the same routes in every padded block: a transfer between them shows nothing; change an arrival order"
    ]


def test_a_plan_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        load_plan(tmp_path / "none.yaml")
    assert str(caught.value).endswith("none.yaml: cannot be read: No such file or directory; check the path")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "plans/quick.lock",
            "quick.lock: expected a plan, got a lock; give the plan itself, which ends in .yaml",
        ),
        (
            "ledger/claims/quick.yaml",
            "quick.yaml: expected a plan, got a ledger; a plan names its ledger by `ledger:`; give the plan",
        ),
    ],
)
def test_a_document_of_another_kind_is_called_so(given: str, said: str) -> None:
    """In one line; every key of it would be a fault."""
    with pytest.raises(PlanError) as caught:
        load_plan(PLANS.parent / given)
    assert str(caught.value) == said


def test_a_plan_for_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes((PLANS / "quick.yaml").read_bytes())
    with pytest.raises(PlanError) as caught:
        refusals(tmp_path, ("ledger: quick\n", "ledger: mine.yaml\n"), plan="quick")
    assert str(caught.value) == "mine.yaml: expected a ledger, got a plan; give the file of claims"


def test_a_plan_that_could_be_read_without_end(tmp_path: Path) -> None:
    """A FIFO would never answer, a device never stop."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(PlanError) as caught:
            load_plan(path)
        assert str(caught.value) == (
            f"plan {path}: expected a file, got a FIFO or a device; copy it to a file"
        )
    (tmp_path / "large.yaml").write_bytes(b"#" * (4 * 2**20 + 9))
    with pytest.raises(FaultsError) as large:
        load_plan(tmp_path / "large.yaml")
    assert str(large.value) == "large.yaml:1: expected at most 4194304 bytes, got more"


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    found = refusals(
        tmp_path,
        ("name: replay", "name: native"),
        ("routes: [22, 28]", "routes: [22, 22]"),
        ("hidden: 2048", "hidden: 2056"),
    )
    assert len(found) >= 3
