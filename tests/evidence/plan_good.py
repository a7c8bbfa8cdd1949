"""Cases that must be accepted: a verifier that refuses everything is worth nothing."""

from ledger.canonical import sha256
from tests.evidence.base_bundle import HERE
from tests.evidence.case import Made, case
from tests.verifier import forge
from tests.verifier.edits import FAILED
from tests.verifier.forge import Document, Files, Parts


@case("good", "The base bundle as it is.")
def good(parts: Parts) -> Files:
    return forge.seal(parts)


@case("good-raw", "The base bundle, every captured tensor hashed again.", level="raw")
def good_raw(parts: Parts) -> Files:
    return forge.seal(parts)


@case(
    "good-reexecuted",
    "The base bundle, every distinct trajectory computed anew: its bits are the engine's, not drawn.",
    level="reexecute",
)
def good_reexecuted(parts: Parts) -> Files:
    return forge.seal(parts)


@case(
    "good-anchored",
    "Anchored by the digest of its lock, which holds those of plan and ledger.",
    anchor=lambda: sha256((HERE / "base" / "plan.lock").read_bytes()),
)
def good_anchored(parts: Parts) -> Files:
    return forge.seal(parts)


@case("captures-left-out", "Released without raw objects: the records stand by themselves at level records.")
def captures_left_out(parts: Parts) -> Files:
    parts.objects, parts.raw = {}, "left-out"
    return forge.seal(parts)


def _tried_before(parts: Parts, **outcome: object) -> Files:
    """The first process failed at first, and ran again as a new attempt."""
    started, ended = ({**event} for event in parts.attempts[:2])
    for event in parts.attempts:
        event["attempt"] += 1
    for record in parts.records.values():
        record["attempt"] += 1
    failed = [{**started, "nonce": "d" * 32, "time_us": 1}, {**ended, **outcome, "time_us": 2}]
    parts.attempts = failed + parts.attempts
    return forge.seal(parts)


@case(
    "killed-and-run-again",
    "E9: a process killed after its capture and before its record is not valid; resumed, it ran again as a new"
    " attempt. The log keeps both.",
)
def killed_and_run_again(parts: Parts) -> Files:
    reason = "ended by signal 9"
    return _tried_before(parts, outcome="killed", reason=reason, exit_code=None, signal=9, record=None)


@case(
    "failed-and-run-again",
    "A failed attempt is part of the log and takes nothing from the valid one after it.",
)
def failed_and_run_again(parts: Parts) -> Files:
    return _tried_before(parts, **FAILED)


def _moved(record: Document, time_us: int) -> None:
    """Into the boot after, at a time of its own."""
    record["process"].update(boot_id=sha256(b"the boot after"), started_us=time_us)
    record["markers"] = [{**marker, "time_us": time_us} for marker in record["markers"]]


@case("resumed-after-a-boot", "Another runner went on after a boot, with a clock that starts anew.")
def resumed_after_a_boot(parts: Parts) -> Files:
    resumed = {"event": "resumed", "torn": '{"event":"sta', "time_us": 5}
    for place, event in enumerate(parts.attempts[8:], start=6):
        event["time_us"] = place
        if event["event"] == "ended":
            _moved(parts.records[event["record"]], place - 1)
    parts.attempts = [*parts.attempts[:8], resumed, *parts.attempts[8:]]
    return forge.seal(parts)


@case(
    "ended-by-another-runner",
    "A runner died after its process had recorded; the next one, after a boot, wrote the end down by its own clock.",
)
def ended_by_another_runner(parts: Parts) -> Files:
    resumed = {"event": "resumed", "torn": "", "time_us": 5}
    for place, event in enumerate(parts.attempts[7:], start=6):
        event["time_us"] = place
    for event in parts.attempts[8:]:
        if event["event"] == "ended":
            _moved(parts.records[event["record"]], event["time_us"] - 1)
    parts.attempts = [*parts.attempts[:7], resumed, *parts.attempts[7:]]
    return forge.seal(parts)


@case(
    "the-machine-slept", "A machine slept for an hour while its campaign ran: the clock of its boot went on."
)
def the_machine_slept(parts: Parts) -> Files:
    for event in parts.attempts[8:]:
        if event["event"] == "ended":
            parts.records[event["record"]]["process"]["started_us"] += 3600 * 10**6
    return forge.seal(parts)


@case("zip", "The bundle in a .zip, without a folder around it.")
def zipped(parts: Parts) -> Made:
    return Made(files=forge.seal(parts), archive={"form": "zip", "top": ""})


@case("tar-gz-of-a-dot", "As `tar czf t.tar.gz -C DIR .` packs a bundle: every name begins with `./`.")
def tarred_of_a_dot(parts: Parts) -> Made:
    return Made(files=forge.seal(parts), archive={"form": "tar.gz", "top": "./"})


@case("tar-gz", "The bundle in a .tar.gz, in a folder of any name.", level="raw")
def tarred(parts: Parts) -> Made:
    return Made(files=forge.seal(parts), archive={"form": "tar.gz", "top": "any-name/"})
