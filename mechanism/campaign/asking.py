"""From a locked cell to what its process is asked: the request, and the alignment it will read."""

from pathlib import Path
from typing import Any

from ledger.canonical import sha256
from ledger.lock import LaunchLock, Lock, LockedCell
from ledger.plan import Plan
from ledger.record import RoutingFile
from mechanism.campaign.bundle import STAGING
from mechanism.campaign.damage import PUT_BACK
from mechanism.campaign.injection import injected
from mechanism.campaign.order import path_of
from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.errors import CampaignError
from mechanism.kernel.alignment import block_size_m, variant
from mechanism.kernel.arrival import relies_on_lane_order
from mechanism.plan.geometry import arrival_order
from mechanism.process import files
from mechanism.process.containment import JIT_CACHE, Containment, Kind, containment, limits_of
from mechanism.process.request import CellRequest
from mechanism.process.symbols import Symbols
from mechanism.values import frozen


@frozen
class Asking:
    """What all cells of a campaign have in common.

    `fixture_folder`: where the frozen fixture lies. `kind`: how cells are held; `writable`: what they may
    write to beside their own.
    """

    plan: Plan
    lock: Lock
    routing: RoutingFile
    fixture_folder: Path
    folder: Path
    symbols: Symbols
    kind: Kind
    writable: tuple[Path, ...] = ()

    def contain(self, request: CellRequest) -> Containment:
        """How the cell of the request is held."""
        cache = (self.folder / STAGING / JIT_CACHE,) if request.engine == "vllm" else ()
        return containment(
            self.kind,
            engine=request.engine,
            bundle=self.folder,
            fixture=self.fixture_folder,
            own=(Path(request.staging), *cache),
            more=self.writable,
            limits=limits_of(
                self.kind,
                engine=request.engine,
                shape=request.shape,
                fixture_bytes=sum(path.stat().st_size for path in self.fixture_folder.iterdir()),
                surfaces=request.surfaces,
            ),
        )

    def request(
        self, cell: LockedCell, *, attempt: int, nonce: str, injected_sha256: str | None, staging: Path
    ) -> CellRequest:
        """The request for one process."""
        fixture = self.plan.fixture
        launches = tuple(
            LaunchRequest(
                name=launch.name,
                tile_k=launch.tile_k,
                tile_n=launch.tile_n,
                threads=launch.threads,
                grid=grid,
                chosen_by=self._chosen_by(launch) if grid == launch.grid else "plan",
            )
            for launch, grid in zip(self.lock.launches, cell.grids, strict=True)
        )
        return CellRequest(
            plan=self.lock.plan.sha256,
            engine=self.plan.engine,
            phase=cell.phase,
            cell=cell.cell,
            history=cell.history,
            replicate=cell.replicate,
            attempt=attempt,
            nonce=nonce,
            kernel=self.plan.build.kernel,
            device=self.plan.build.device.model_dump(mode="json"),
            launches=(launches[0], launches[1]),
            shape=Shape(
                tokens=fixture.tokens,
                experts=fixture.experts,
                top_k=fixture.top_k,
                hidden=fixture.hidden,
                intermediate=fixture.intermediate,
                group_size=fixture.group_size,
                dtype=fixture.dtype,
                block_size_m=self._block_size_m(),
            ),
            fixture=self.lock.fixture.model_dump(mode="json"),
            fixture_folder=str(self.fixture_folder),
            arrival=self._arrival(cell.history) if injected_sha256 is None else None,
            injected=injected_sha256,
            rests_on=() if injected_sha256 is None or cell.donor is None else self._rests_on(cell.donor),
            record=path_of(cell),
            surfaces=self.plan.surfaces,
            environment=self.plan.environment,
            symbols=self.symbols.pairs,
            bundle=str(self.folder),
            staging=str(staging),
            containment=self.kind,
        )

    def place_alignment(self, cell: LockedCell, donor: str | None) -> str | None:
        """Write the alignment that the cell injects into the bundle; returns its digest.

        None if the cell constructs its own. `donor`: digest of its donor's native alignment, if it has one.
        """
        if cell.alignment == "constructed":
            return None
        data = injected(
            cell,
            donor=None if donor is None else self._donor(donor),
            routing=self.routing,
            block_size_m=self._block_size_m(),
            kernel=self.plan.build.kernel,
        )
        digest = sha256(data)
        if not self._alignment(digest).exists():
            files.write_once(self._alignment(digest), data)
        return digest

    def _chosen_by(self, launch: LaunchLock) -> str:
        pinned = self.plan.build.launch
        return (pinned.w13 if launch.name == "w13" else pinned.w2).chosen_by

    def _arrival(self, name: str) -> dict[str, Any]:
        """What makes the history happen: an arrival order in simulation, steps on a GPU."""
        history = self.plan.histories[name]
        if self.plan.engine == "simulated":
            return history.arrival.model_dump(mode="json")
        return {"kind": "steps", "steps": [step.model_dump(mode="json") for step in history.steps]}

    def _donor(self, digest: str) -> bytes:
        data = self._alignment(digest).read_bytes()
        if sha256(data) != digest:
            raise CampaignError(
                f"{self._alignment(digest)}: expected the content its name says, got {sha256(data)};"
                f" it was damaged: {PUT_BACK}"
            )
        return data

    def _rests_on(self, history: str) -> tuple[str, ...]:
        """U5 if the history's native alignment, which the cell injects, needs lanes served out of order."""
        fixture = self.plan.fixture
        if (
            self.plan.stable_construction
            or self.plan.engine != "simulated"
            or variant(fixture.routes, fixture.experts) != "large"
        ):
            return ()
        order = arrival_order(self.plan.histories[history].arrival, fixture.routes)
        return ("U5",) if relies_on_lane_order(order, self.routing.topk_ids) else ()

    def _alignment(self, digest: str) -> Path:
        return self.folder / "alignments" / f"{digest}.json"

    def _block_size_m(self) -> int:
        fixture = self.plan.fixture
        return block_size_m(fixture.tokens, fixture.top_k, fixture.experts)
