"""Verdicts on claims: what sinks them, what refutes them, and that bad evidence of their own is refused."""

from pathlib import Path

import pytest

from ledger.canonical import sha256
from ledger.verdict import ClaimVerdict, PlanIdentity
from tests.verifier import forge
from tests.verifier.conftest import Find, Judge
from tests.verifier.edits import H0, OTHER, attempt, bent, captures_are_left_out, tensors_of, without
from tests.verifier.forge import Files, Parts
from verifier.evidence import FolderEvidence
from verifier.library import Library
from verifier.load import load
from verifier.mutations import apply
from verifier.report import Checked, check

CAUSAL = ("C01", "C02", "C03", "C04", "C05", "C07", "C08")


def verdicts(checked: Checked) -> dict[str, str]:
    """Claim ids with their verdicts."""
    return {claim.id: claim.verdict for claim in checked.report.claims}


def claim(checked: Checked, name: str) -> ClaimVerdict:
    """One claim of a report."""
    return next(item for item in checked.report.claims if item.id == name)


def codes(checked: Checked) -> list[str]:
    """The codes of all findings, each once."""
    return sorted({finding.code for finding in checked.report.findings})


def ledger_with(parts: Parts, old: bytes, new: bytes, count: int = -1) -> Files:
    """The bundle with another ledger, lock and summary made to fit."""
    assert old in parts.ledger
    parts.ledger = parts.ledger.replace(old, new, count)
    forge.relink(parts)
    return forge.seal(parts)


@pytest.mark.parametrize("level", ["records", "raw"])
def test_a_good_bundle_is_supported(good_files: Files, judge: Judge, level: str) -> None:
    """Every claim is supported; the one that needs raw says so at records and changes nothing."""
    checked = judge(good_files, level=level)
    assert (checked.report.verdict, checked.exit_code) == ("supported", 0)
    assert checked.report.findings == ()
    wanted = dict.fromkeys([f"C{n:02}" for n in range(1, 12)], "supported")
    if level == "records":
        wanted["C11"] = "out-of-scope"
        assert ("C11", "needs --level raw") in [(i.name, i.reason) for i in checked.report.not_checked]
    assert verdicts(checked) == wanted


def test_every_mutation_is_refused_with_its_code(good_files: Files, judge: Judge) -> None:
    """The seven, at raw, in the order of the ledger."""
    tried = [item for item in judge(good_files, level="raw").report.checked if item.name.startswith("M-")]
    assert [(item.name, (item.reason or "").split(" at ")[0]) for item in tried] == [
        ("M-route-duplicated", "refused with V501"),
        ("M-route-moved", "refused with V503"),
        ("M-marker-removed", "refused with V407"),
        ("M-marker-reordered", "refused with V407"),
        ("M-surface-digest", "refused with V804"),
        ("M-tensor-bit", "refused with V801"),
        ("M-software-identity", "refused with V701"),
    ]


def test_every_causal_claim_refuses_its_known_bad(good_files: Files, judge: Judge) -> None:
    """A claim that its own known-bad leaves standing would be supported by anything."""
    checked = judge(good_files)
    for name in CAUSAL:
        last = claim(checked, name).decided_by[-1]
        assert (last.part, last.verdict) == ("known-bad", "supported")
        assert last.reason.startswith(f"refused with V901 at ledger.yaml:{name}.")


def test_a_refuted_claim_says_where(parts: Parts, judge: Judge) -> None:
    """One replicate with bytes of its own: what is claimed of its arm is refuted, the rest stands (exit 1)."""
    tensors = tensors_of(parts, "records/ablation.forced-grid.H0.3.json")
    tensors["w13"] = b"\0\0" + tensors["w13"][2:]
    forge.recapture(parts, "records/ablation.forced-grid.H0.3.json", tensors)
    checked = judge(forge.seal(parts), level="raw")
    assert (checked.report.verdict, checked.exit_code, codes(checked)) == ("refuted", 1, ["V901"])
    assert {name for name, verdict in verdicts(checked).items() if verdict == "refuted"} == {"C07", "C09"}
    assert [(f.where, f.expected, f.got) for f in checked.report.findings] == [
        (
            "ledger.yaml:C07.outcome[0]",
            "forced-grid/H0 equals forced-grid/H1 on w13",
            "w13 differs between records/ablation.forced-grid.H0.1.json and"
            " records/ablation.forced-grid.H0.3.json",
        ),
        (
            "ledger.yaml:C09.outcome[0]",
            "native, replay, cross-order, canonical, within-block, block-boundary, forced-grid under H0, H1"
            " repeat on w13, activation, w2, output",
            "w13 differs between records/ablation.forced-grid.H0.1.json and"
            " records/ablation.forced-grid.H0.3.json",
        ),
    ]


def test_a_finding_sinks_only_what_rests_on_it(parts: Parts, judge: Judge) -> None:
    """A forced-grid record out of order: C07, C09 and C10 rest on it; C01 does not."""
    checked = judge(bent("records/ablation.forced-grid.H1.2.json", "markers", to=[])(parts))
    sunk = {name for name, verdict in verdicts(checked).items() if verdict == "malformed"}
    assert sunk == {"C07", "C09", "C10"}
    assert (verdicts(checked)["C01"], checked.exit_code) == ("supported", 2)
    finding = checked.report.findings[0]
    assert checked.sinks[finding] == ("C07", "C09", "C10")


def test_a_mutation_that_is_not_refused_refutes(parts: Parts, judge: Judge) -> None:
    """V902: a ledger that declares the wrong code is not satisfied by another one."""
    files = ledger_with(parts, b"level: records, code: V701", b"level: records, code: V702")
    checked = judge(files, level="raw")
    assert (codes(checked), verdicts(checked)["C11"], checked.exit_code) == (["V902"], "refuted", 1)
    assert checked.report.findings[0].got == "expected V702, got V701"


def test_a_mutation_that_cannot_be_made_is_missing(parts: Parts, judge: Judge) -> None:
    """V904: no captures, so none of their bits can be flipped."""
    parts.ledger = parts.ledger.replace(b"level: raw, code: V801", b"level: records, code: V801")
    forge.relink(parts)
    checked = judge(captures_are_left_out(parts))
    assert (codes(checked), verdicts(checked)["C11"], checked.exit_code) == (["V904"], "missing", 3)


def test_an_undelivered_treatment_gives_no_verdict(parts: Parts, judge: Judge) -> None:
    """E8 by the ledger: it says that memberships differ where the treatment makes them equal (V903)."""
    old = b"differs_from_native: true, memberships: equal"
    checked = judge(ledger_with(parts, old, old.replace(b"equal", b"differ")))
    assert (codes(checked), verdicts(checked)["C08"], checked.exit_code) == (["V903"], "not-run", 3)
    assert [d.part for d in claim(checked, "C08").decided_by] == ["delivered"]
    assert checked.report.findings[0].got == "the memberships of H0 and H1 are equal in canonical"


def test_one_process_cannot_repeat(judge: Judge) -> None:
    """V905: a plan with one replicate leaves a claim of repetition without a verdict."""
    plan = (forge.ROOT / "plans" / "quick.yaml").read_bytes().replace(b"replicates: 5", b"replicates: 1")
    ledger = b"""\
schema_version: 1
name: quick
title: One claim
claims:
  - id: C01
    statement: Native repeats.
    scope: One process.
    kind: structural
    assumptions: []
    in_simulation: measured
    delivered: []
    outcome:
      - {kind: repeats, cells: [native], histories: [H0], surfaces: [w13]}
    control: []
    known_bad: null
non_claims: [Anything else.]
mutations:
  - {id: M-one, operation: marker-removed, cell: native, history: H0, replicate: 1, level: records, code: V407}
"""
    checked = judge(forge.seal(forge.good_parts(plan=plan, ledger=ledger)))
    assert (codes(checked), verdicts(checked), checked.exit_code) == (["V905"], {"C01": "missing"}, 3)


def test_raw_without_captures_is_missing(parts: Parts, judge: Judge) -> None:
    """A release without captures passes records, and raw says missing, not supported."""
    files = captures_are_left_out(parts)
    assert judge(files).exit_code == 0
    checked = judge(files, level="raw")
    assert (checked.report.verdict, checked.exit_code) == ("missing", 3)
    assert set(verdicts(checked).values()) == {"missing"}


def test_an_anchor_is_said(good_files: Files, good: Parts, judge: Judge) -> None:
    """Plan and claims by the lock's digest, the plan alone by its own; self-declared without, malformed amiss."""
    plan, lock = sha256(good.plan), sha256(good_files["plan.lock"])
    said = {
        anchor: (checked.report.plan, checked.exit_code)
        for anchor in (None, plan, lock, OTHER)
        for checked in (judge(good_files, anchor=anchor),)
    }

    def identity(of_plan: str, of_claims: str) -> PlanIdentity:
        return PlanIdentity.model_validate(
            {"sha256": plan, "identity": of_plan, "lock": lock, "claims": of_claims}
        )

    assert said == {
        None: (identity("self-declared", "self-declared"), 0),
        plan: (identity("anchored", "self-declared"), 0),
        lock: (identity("anchored", "anchored"), 0),
        OTHER: (identity("self-declared", "self-declared"), 2),
    }


def test_a_replanned_bundle_is_consistent_but_for_its_anchor(good: Parts, judge: Judge) -> None:
    """A weaker ledger, everything made to fit: only what is anchored from outside shows it."""
    weaker = good.copy()
    old = b"surfaces: [w13, activation, w2, output]}\n    control"
    weaker.ledger = weaker.ledger.replace(old, b"surfaces: [w13]}\n    control")
    weaker.plan += b"# planned afterwards\n"
    forge.relink(weaker)
    files = forge.seal(weaker)
    assert judge(files).exit_code == 0
    checked = judge(files, anchor=sha256(good.plan))
    assert (codes(checked), checked.exit_code) == (["V301"], 2)


class TestCases:
    """E1 to E9 of the evidence cases that people who do this job have met."""

    def test_e1_an_empty_folder(self, tmp_path: Path) -> None:
        """A ledger over nothing is missing, never supported."""
        checked = check(tmp_path, level="records", anchor=None)
        assert (checked.report.verdict, checked.exit_code) == ("missing", 3)
        gone = check(tmp_path / "gone", level="records", anchor=None)
        assert (gone.report.verdict, gone.report.findings[0].code, gone.exit_code) == ("missing", "V100", 3)

    def test_e2_one_record_of_seventy(self, parts: Parts, judge: Judge) -> None:
        """Every missing cell is named; that the one left agrees with itself counts for nothing."""
        for path in list(parts.records):
            if path != H0:
                without(parts, path)
        forge.prune(parts)
        checked = judge(forge.seal(parts))
        named = {f.where for f in checked.report.findings if f.code == "V401"}
        assert len(named) == 69
        assert checked.report.verdict == "missing"
        assert set(verdicts(checked).values()) == {"missing", "out-of-scope"}

    def test_e2_records_deleted_from_the_folder(self, good_files: Files, judge: Judge) -> None:
        """The same without making the manifest fit."""
        files = {p: d for p, d in good_files.items() if not p.startswith("records/") or p == H0}
        checked = judge(files)
        assert (checked.report.verdict, checked.exit_code) == ("missing", 3)
        assert codes(checked) == ["V102", "V401"]

    @pytest.mark.parametrize("listed", [True, False])
    def test_e3_a_good_record_and_an_empty_one(self, parts: Parts, judge: Judge, *, listed: bool) -> None:
        """Which of two is the record cannot be told, whether the manifest lists both or one."""
        twin = "records/qualification.native.H0.01.json"
        if listed:
            parts.extra[twin] = b""
        files = forge.seal(parts)
        files[twin] = b""
        checked = judge(files)
        assert (checked.report.verdict, checked.exit_code, codes(checked)) == ("ambiguous", 2, ["V403"])
        assert verdicts(checked)["C01"] == "ambiguous"

    def test_e4_truncated_json(self, good_files: Files, judge: Judge) -> None:
        """Malformed, with the file named."""
        checked = judge({**good_files, H0: good_files[H0][:100]})
        assert (checked.report.verdict, checked.exit_code) == ("malformed", 2)
        assert {f.where for f in checked.report.findings if f.code in {"V101", "V202"}} == {H0}

    def test_e5_a_claim_over_nothing(self, parts: Parts, judge: Judge) -> None:
        """No record at all: nothing is supported."""
        for path in list(parts.records):
            without(parts, path)
        forge.prune(parts)
        checked = judge(forge.seal(parts))
        assert checked.report.verdict == "missing"
        assert set(verdicts(checked).values()) <= {"missing", "out-of-scope"}

    def test_e6_a_claim_on_no_cell(self, parts: Parts, judge: Judge) -> None:
        """Malformed, and named."""
        files = ledger_with(
            parts, b"left: {cell: cross-order, history: H0}", b"left: {cell: crossed, history: H0}"
        )
        checked = judge(files)
        assert (verdicts(checked)["C03"], verdicts(checked)["C01"]) == ("malformed", "supported")
        finding = checked.report.findings[0]
        assert (finding.code, finding.where, finding.got) == ("V313", "ledger.yaml:C03.outcome[0]", "crossed")

    @pytest.mark.parametrize("key", ["software", "markers", "trajectory", "assumptions", "fixture"])
    def test_e7_nothing_has_a_default_that_passes(self, parts: Parts, judge: Judge, key: str) -> None:
        """A record without one of its fields is no record."""
        del parts.records[H0][key]
        checked = judge(forge.seal(parts))
        assert [(f.code, f.where) for f in checked.report.findings] == [("V203", f"{H0}:{key}")]
        assert checked.exit_code == 2

    def test_e8_both_arms_ran_the_same(self, parts: Parts, judge: Judge) -> None:
        """Cross-order got its own alignment: the treatment was not delivered, whatever the outcome."""
        own = parts.records[H0]["treatment"]["alignment"]["sha256"]
        for replicate in range(1, 6):
            record = parts.records[f"records/transfer.cross-order.H0.{replicate}.json"]
            record["treatment"]["alignment"]["sha256"] = own
        checked = judge(forge.seal(parts))
        assert codes(checked) == ["V503"]
        assert verdicts(checked)["C03"] == "malformed"
        assert checked.exit_code == 2

    def test_e9_killed_before_its_record(self, parts: Parts, judge: Judge) -> None:
        """The killed attempt is kept, the next one is the process; nothing is lost and nothing counted twice."""
        killed = {
            "outcome": "killed",
            "reason": "ended by SIGKILL",
            "exit_code": None,
            "signal": 9,
            "record": None,
        }
        parts.attempts += attempt(parts, 71, **killed)
        assert judge(forge.seal(parts)).exit_code == 0


def test_what_is_mutated_is_a_whole_bundle_again(good_folder: Path, find: Find) -> None:
    """A forger's fixing up leaves no trace of its own: no finding of integrity, documents or references."""
    bundle = load(FolderEvidence(good_folder), Library())
    for mutation in bundle.ledger.mutations:
        overlay = apply(mutation, bundle)
        files = {path: overlay.read(path, 2**30) for path in overlay.entries}
        found = [code for code, _ in find(files, level="raw")]
        assert mutation.code in found
        assert set(found) <= {mutation.code, "V801"}
