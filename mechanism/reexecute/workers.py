"""Shares of the treatments on worker processes, one for each CPU unless said otherwise."""

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from mechanism.errors import MechanismError
from mechanism.reexecute.compute import Outcome, Work, compute
from mechanism.reexecute.source import MAX_ALIGNMENT, BundleError, Source, read_file
from mechanism.reexecute.treatments import Treatment

#: Read once, when a worker first loads numpy: workers are what is parallel here.
_ONE_THREAD = dict.fromkeys(
    ("MECHANISM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


def compute_all(
    work: Work, source: Source, treatments: tuple[Treatment, ...], *, jobs: int
) -> Mapping[Treatment, Outcome]:
    """Every treatment's outcome. Raises FixtureError, or MechanismError if a worker dies."""
    outcomes: dict[Treatment, Outcome] = {}
    readable: list[tuple[Treatment, bytes]] = []
    for treatment in treatments:
        try:
            path = f"alignments/{treatment.alignment}.json"
            readable.append((treatment, read_file(source.folder, path, MAX_ALIGNMENT)))
        except BundleError as fault:
            outcomes[treatment] = Outcome(values={}, assumptions=(), fault=str(fault))
    shares = [share for start in range(jobs) if (share := readable[start::jobs])]
    done = _on_workers(work, shares) if len(shares) > 1 else [compute(work, share) for share in shares]
    for share, results in zip(shares, done, strict=True):
        outcomes |= {treatment: outcome for (treatment, _), outcome in zip(share, results, strict=True)}
    return outcomes


def _on_workers(work: Work, shares: list[list[tuple[Treatment, bytes]]]) -> list[list[Outcome]]:
    context = multiprocessing.get_context("spawn")  # a fork would copy whatever threads numpy has here
    with _environment(_ONE_THREAD), ProcessPoolExecutor(len(shares), mp_context=context) as pool:
        try:
            return list(pool.map(compute, [work] * len(shares), shares))
        except BrokenProcessPool as fault:
            raise MechanismError(
                "a worker process died, as for lack of memory; try again with --jobs 1"
            ) from fault


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """The environment that workers inherit; this process's own is restored."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
