"""Lines as our own programs write them, read by one pattern each: the same as `read_json` gives, sooner.

Each pattern is the schema of `ledger.bundle` in its canonical bytes, for values that need no escapes and
numbers of at most 15 digits. What does not match is left to the schema; a test holds the two together.
"""

import re

from verifier.bundle import Ended, Listed, Started

_COUNT = rb"(0|[1-9][0-9]{0,14})"
_NAME = rb'"([A-Za-z][A-Za-z0-9_-]{0,47})"'
_SHA = rb'"([0-9a-f]{64})"'
_STEP = rb"[A-Za-z0-9_][A-Za-z0-9._-]*"

_LISTED = re.compile(
    rb'\{"path":"(?=.{1,255}")(%b(?:/%b)*)","sha256":%b,"size":%b\}\n' % (_STEP, _STEP, _SHA, _COUNT)
)
_STARTED = re.compile(
    rb'\{"attempt":%b,"cell":%b,"event":"started","history":%b,"nonce":"([0-9a-f]{32})","phase":%b,'
    rb'"previous":%b,"replicate":([1-9][0-9]{0,14}),"time_us":%b\}\n'
    % (_COUNT, _NAME, _NAME, _NAME, _SHA, _COUNT)
)
_VALID = re.compile(
    rb'\{"attempt":%b,"descendants_killed":%b,"event":"ended","exit_code":0,"outcome":"valid","previous":%b,'
    rb'"reason":"","record":%b,"signal":null,'
    rb'"stderr":(?:null|\{"sha256":%b,"size":%b,"tail":"[ !#-\[\]-~]{0,4000}"\}),"time_us":%b\}\n'
    % (_COUNT, _COUNT, _SHA, _SHA, _SHA, _COUNT, _COUNT)
)


def plain_listed(data: bytes) -> tuple[str, Listed] | None:
    """A line of the manifest, with its line feed: path, size and digest."""
    match = _LISTED.fullmatch(data)
    if match is None:
        return None
    path, digest, size = match.groups()
    return path.decode(), Listed(int(size), digest.decode())


def plain_attempt(data: bytes) -> tuple[str, Started | Ended] | None:
    """A line of the attempts log, with its line feed: what it holds of the line before, and its event.

    A start, or an end that is valid: of others there are few.
    """
    if match := _STARTED.fullmatch(data):
        attempt, cell, history, nonce, phase, previous, replicate, time_us = match.groups()
        slot = (phase.decode(), cell.decode(), history.decode(), int(replicate))
        return previous.decode(), Started(int(attempt), slot, nonce.decode(), int(time_us))
    if match := _VALID.fullmatch(data):
        attempt, _, previous, record, _, _, time_us = match.groups()
        return previous.decode(), Ended(int(attempt), "valid", "", 0, None, record.decode(), int(time_us))
    return None
