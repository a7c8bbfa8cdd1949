"""Pairs of records that take each other's identity: who each says it is, and where it lies."""

import json
from collections.abc import Iterator
from itertools import combinations

from verifier.bundle import Bundle
from verifier.layout import limit_of
from verifier.sweep.leaves import written
from verifier.sweep.mutant import Mutant

_IDENTITY = ("phase", "cell", "history", "replicate")


def identity_mutants(bundle: Bundle) -> Iterator[Mutant]:
    """Every pair, each record under the other's name and claiming to be it."""
    paths = [facts.path for facts in bundle.facts]
    records = {path: json.loads(bundle.evidence.read(path, limit_of(path))) for path in paths}
    for one, other in combinations(paths, 2):
        first, second = records[one], records[other]
        changed = {
            one: written({**second, **{key: first[key] for key in _IDENTITY}}),
            other: written({**first, **{key: second[key] for key in _IDENTITY}}),
        }
        yield Mutant(kind="identities swapped", place="record", what=f"{one} and {other}", changed=changed)
