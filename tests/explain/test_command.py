"""`mechanism explain` as a caller meets it: words, JSON, files of routes, plans that freeze, and refusals."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import save_file

from mechanism.__main__ import cli
from mechanism.explain.document import SECTIONS
from mechanism.fixture.routing import routing_file
from mechanism.plan.deliver import refuse_static, refuse_undeliverable
from mechanism.plan.document import load_ledger, load_plan

ROOT = Path(__file__).parents[2]
QWEN = ["--model", "qwen3-coder-30b-a3b", "--gpu", "rtx-3090"]
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 72,
    "num_experts_per_tok": 4,
    "hidden_size": 512,
    "moe_intermediate_size": 192,
    "hidden_act": "silu",
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True},
}
TOY = ["--sms", "8", "--smem", "101376", "--arch", "sm_86", "--tokens", "24", "--routing", "zipf:0.6"]
EXPOSED = ["--seed", "6"]


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *args])


def answer(*args: str) -> dict[str, Any]:
    done = run(*args, "--format", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_json_has_what_it_promises() -> None:
    found = answer(*QWEN, "--tokens", "64")
    assert found["verdict"] == "yes"
    assert (found["kernel"], found["block_size_m"], found["alignment_variant"]) == (
        "vllm==0.22.0",
        8,
        "large",
    )
    for gemm, tiles in zip(found["gemms"], (1524, 2032), strict=True):
        assert (gemm["tile"], gemm["ctas_per_sm"], gemm["grid"]) == ([64, 128], 3, 246)
        assert gemm["direct_tiles"] + gemm["split_tiles"] == gemm["tiles"] == tiles
        assert gemm["first_split_block"] in range(found["padded_blocks"])
    assert found["exposed"]["routes"] == sum(
        len(item["routes"]) for item in found["exposed"]["experts"] if item["exposed"]
    )
    assert [item["name"] for item in found["remedies"]] == [
        "stable order",
        "forced grid, patched launch",
        "full K",
        "one block per expert",
        "another kernel",
    ]
    assert found["sections"] == SECTIONS


def test_sections_exist_in_the_specification() -> None:
    """Every section that an answer cites is a heading, or a numbered check, of the committed text."""
    text = (ROOT / "mechanism" / "kernel" / "marlin-moe.md").read_text(encoding="utf-8")
    headings = {line.lstrip("#").split()[0].rstrip(".") for line in text.splitlines() if line.startswith("#")}
    for cited in SECTIONS.values():
        for section in cited.split(", "):
            assert section in headings or section in {"notation", "A", "B", "C"}, section


def test_words_come_first_and_carry_their_sections() -> None:
    lines = run(*QWEN, "--tokens", "64").stdout.splitlines()
    assert lines[4].startswith(
        "Can route alignment change your bits here? YES: 18 of 512 routes in this batch"
    )
    table = next(number for number, line in enumerate(lines) if line.startswith("GEMM"))
    assert table > 10
    assert "tile [4.1]" in lines[table]
    assert lines[-1] == "Numbers in brackets are sections of mechanism/kernel/marlin-moe.md."


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_recorded_routes(checkpoint: Path, suffix: str) -> None:
    ids = np.stack([np.arange(4) + 4 * (token % 17) for token in range(20)]).astype(np.int64)
    ids[:, 0] = 71
    path = checkpoint / f"routes{suffix}"
    if suffix == ".npz":
        np.savez(path, topk_ids=ids)
    else:
        save_file({"topk_ids": ids.astype(np.int32)}, path)
    found = answer("--checkpoint", str(checkpoint), *TOY[:6], "--routes", str(path))
    assert found["tokens"] == 20
    assert found["routing"] == path.name
    (crowded,) = found["exposed"]["experts"]
    assert (crowded["expert"], crowded["routes"]) == (71, list(range(0, 80, 4)))
    assert found["exposed"]["expected"] is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ["--gpu", "a100", "--tokens", "1"],
            "expected one of --model NAME, --config FILE, --checkpoint FOLDER, got none",
        ),
        (
            ["--model", "mixtral-8x7b", "--gpu", "rtx-3070", "--tokens", "1"],
            "--gpu: expected one of a100, a10, a40, rtx-3090, rtx-a6000, l4, l40s, rtx-4090, h100, h100-pcie, h200,"
            " b200, rtx-5090, got rtx-3070; nearest: rtx-3090, rtx-5090, rtx-4090; for another GPU give --sms,"
            " --smem and --arch",
        ),
        (
            ["--model", "mixtral-8x7b", "--sms", "82", "--tokens", "1"],
            "expected --gpu NAME (a100, a10, a40, rtx-3090, rtx-a6000, l4, l40s, rtx-4090, h100, h100-pcie, h200,"
            " b200, rtx-5090), or all of --sms, --smem and --arch; --smem, --arch missing",
        ),
        (QWEN, "expected --tokens N (tokens in one call of the layer), or --routes FILE, got neither"),
        (
            [*QWEN, "--tokens", "1000000000"],
            "--tokens: expected 1..32768 in one call of the layer, got 1000000000; a server passes at most its"
            " max_num_batched_tokens",
        ),
        (
            [*QWEN, "--tokens", "1", "--tp", "1025"],
            "--tp: expected 1..1024 ranks, got 1025; no layer is shared by more",
        ),
        (
            ["--model", "mixtral-8x7b", *TOY, "--sms", "1025"],
            "--sms: expected 1..1024 multiprocessors, got 1025; no GPU has more",
        ),
        (
            ["--model", "mixtral-8x7b", *TOY, "--smem", "1048577"],
            "--smem: expected 1..1048576 bytes, got 1048577; no GPU has more per block",
        ),
        (
            [*QWEN, "--tokens", "32769", "--routes", "none.npz"],
            "--tokens: expected 1..32768 in one call of the layer, got 32769; a server passes at most its"
            " max_num_batched_tokens",
        ),
        (
            [*QWEN, "--tokens", "1", "--launch", "64x128"],
            "--launch: expected [w13=|w2=]TKxTNxCTAS such as 64x128x3, got 64x128",
        ),
        (
            [*QWEN, "--tokens", "1", "--launch", "128x256x1"],
            "tile 128x256: no kernel was compiled for block 8; use one of 128x128, 64x128, 128x64",
        ),
        (
            [*QWEN, "--tokens", "1", "--kernel", "vllm==0.1.0"],
            "kernel 'vllm==0.1.0': its arithmetic is not known; pin one of vllm==0.11.0, vllm==0.22.0, vllm==0.29.0",
        ),
        (
            [*QWEN, "--tokens", "1", "--write-plan", "x.yaml"],
            "--write-plan: expected an exposed batch, got verdict no: no expert has more than 8 routes, so each has one"
            " padded block [2.4]; try other --tokens, --seed, --routing or --routes",
        ),
        (
            [*QWEN, "--tokens", "64", "--dtype", "bfloat16", "--write-plan", "x.yaml"],
            "--write-plan: expected float16, the only format of the fixture's recipe, got bfloat16; use --dtype"
            " float16",
        ),
        (
            [*QWEN, "--tokens", "64", "--kernel", "vllm==0.11.0", "--write-plan", "x.yaml"],
            "--write-plan: expected a build whose split tiles repeat, got vllm==0.11.0, which sums them by atomics;"
            " use --kernel vllm==0.22.0",
        ),
        (
            [*QWEN, "--tokens", "4096", "--routing", "zipf:0.6", "--write-plan", "x.yaml"],
            "--write-plan: expected at most 20000 routes in a plan, got 32768; ask with fewer --tokens",
        ),
        (
            [*QWEN, "--tokens", "64", "--write-plan", "x.txt"],
            "--write-plan: expected a file that ends in .yaml, got x.txt",
        ),
    ],
    ids=[
        "no-model",
        "gpu",
        "half-gpu",
        "no-tokens",
        "many-tokens",
        "many-ranks",
        "many-sms",
        "much-memory",
        "many-tokens-of-routes",
        "launch",
        "tile",
        "kernel",
        "not-exposed",
        "bf16",
        "0.11",
        "many-routes",
        "name",
    ],
)
def test_refusals(args: list[str], says: str) -> None:
    done = run(*args)
    assert done.exit_code == 4
    assert done.stderr == f"mechanism: refused: {says}\n"


def test_largest_question_that_is_taken(tmp_path: Path) -> None:
    """Sizes at their bounds: work grows with CTAs and routes, not with tiles, so that it has an answer."""
    config = {**CONFIG, "hidden_size": 2**20, "moe_intermediate_size": 2**20, "num_experts": 992}
    (tmp_path / "config.json").write_text(json.dumps(config))
    most = ["--sms", "1024", "--smem", "1048576", "--arch", "sm_86", "--tokens", "64", "--launch", "64x128x1"]
    for kernel in ("vllm==0.22.0", "vllm==0.11.0"):
        found = answer("--config", str(tmp_path / "config.json"), *most, "--kernel", kernel)
        w13 = found["gemms"][0]
        assert (w13["n"], w13["k"]) == (2**21, 2**20)
        assert w13["direct_tiles"] + w13["split_tiles"] == w13["tiles"]


def test_routes_beyond_any_call(tmp_path: Path) -> None:
    many, wide = tmp_path / "many.npz", tmp_path / "wide.npz"
    np.savez(many, topk_ids=np.zeros((32769, 8), np.int32))
    np.savez(wide, topk_ids=np.zeros((1, 993), np.int32))
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_experts_per_tok": 64}))
    config = ["--config", str(tmp_path / "config.json"), "--tokens", "32768"]
    for args, says in (
        (
            [*QWEN[:2], "--routes", str(many)],
            f"{many}: topk_ids: expected 1..32768 in one call of the layer, got 32769; a server passes at most its"
            " max_num_batched_tokens",
        ),
        (
            [*QWEN[:2], "--routes", str(wide)],
            f"{wide}: topk_ids: expected 1..992 experts per token, got 993; the alignment kernel takes no more"
            " (marlin-moe 2.3)",
        ),
        (
            config,
            "--tokens: expected 1..8192 tokens of 64 experts each, got 32768; one call of the layer has at most"
            " 524288 routes here",
        ),
    ):
        done = run(*args, "--gpu", "a100")
        assert (done.exit_code, done.stderr) == (4, f"mechanism: refused: {says}\n")


def test_files_that_are_none(tmp_path: Path) -> None:
    missing, text, other = tmp_path / "none.json", tmp_path / "text.json", tmp_path / "ids.npz"
    deep = tmp_path / "deep.json"
    text.write_text("[1]")
    deep.write_text("[" * 10**5)
    np.savez(other, ids=np.zeros((1, 1)))
    for args, says in (
        (
            ["--config", str(missing)],
            f"{missing}: cannot be read: No such file or directory; check the path: expected a Hugging Face config.json",
        ),
        (
            ["--config", str(text)],
            f"{text}: expected a JSON object, got list; give the config.json of a model",
        ),
        (
            ["--config", str(deep)],
            f"{deep}: expected JSON, got maximum recursion depth exceeded while decoding a JSON array from a unicode"
            " string; give the config.json of a model",
        ),
        (
            [*QWEN[:2], "--routes", str(other)],
            f"{other}: expected a tensor topk_ids, got ids; save it by that name",
        ),
    ):
        done = run(*args, "--gpu", "a100")
        assert (done.exit_code, done.stderr) == (4, f"mechanism: refused: {says}\n")


def test_a_written_plan_can_be_frozen_and_is_not_written_twice(checkpoint: Path) -> None:
    """The plan's routing is the answer's batch; every treatment can be delivered; its ledger fits its cells."""
    plan = checkpoint / "mine.yaml"
    args = ["--checkpoint", str(checkpoint), *TOY, *EXPOSED]
    found = answer(*args, "--write-plan", str(plan))
    loaded = load_plan(plan)
    refuse_static(loaded)
    ids = routing_file(loaded.plan.fixture).topk_ids
    assert refuse_undeliverable(loaded, load_ledger(loaded, checkpoint), ids) == found["padded_blocks"]
    exposed = next(item for item in found["exposed"]["experts"] if item["exposed"])
    held = [route for route in range(96) if ids[route // 4][route % 4] == exposed["expert"]]
    assert held == exposed["routes"]
    assert set(found["plan"]["block_boundary"]) | set(found["plan"]["within_block"]) <= set(held)
    again = run(*args, "--write-plan", str(plan))
    assert again.exit_code == 4
    assert again.stderr == (
        f"mechanism: refused: --write-plan: expected no file at {plan}, got one; remove it, or name another\n"
    )
    plan.unlink()
    left = run(*args, "--write-plan", str(plan))
    assert left.stderr == (
        f"mechanism: refused: --write-plan: expected no file at {checkpoint / 'mine-claims.yaml'}, got one;"
        " remove it, or name another\n"
    )
    assert not plan.exists()


@pytest.mark.slow
def test_a_written_plan_runs_and_its_claims_hold(checkpoint: Path) -> None:
    plan = checkpoint / "mine.yaml"
    assert run("--checkpoint", str(checkpoint), *TOY, *EXPOSED, "--write-plan", str(plan)).exit_code == 0
    for args in (["freeze", str(plan)], ["run", str(plan), "--out", str(checkpoint / "bundle")]):
        done = subprocess.run(
            [sys.executable, "-m", "mechanism", *args], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: SUPPORTED" in done.stdout


@pytest.mark.slow
def test_answers_in_a_second() -> None:
    """Processor time of the whole program, best of three: the wall clock of a busy machine says nothing."""
    for args in ([*QWEN, "--tokens", "64"], ["--model", "deepseek-v3", "--gpu", "h200", "--tokens", "8192"]):
        times = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "mechanism", "explain", *args], check=True, capture_output=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert min(times) <= 1.0


def test_needs_no_numpy() -> None:
    code = (
        "import sys; from mechanism.command.explain import explain_command;"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'pydantic')) and 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
