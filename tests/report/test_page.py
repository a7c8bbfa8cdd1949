"""The page says what the verifier says, loads nothing, and shows what it can of a damaged bundle."""

import hashlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mechanism.__main__ import cli
from mechanism.report.page import Verdicts, page
from mechanism.report.source import read_source

Copied = Callable[[], Path]


class Read(HTMLParser):
    """Tags with their attributes, and the text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:  # noqa: D102
        self.words.append(data)

    @property
    def text(self) -> str:
        """All words, blanks joined."""
        return " ".join(" ".join(self.words).split())


def make(bundle: Path, out: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, ["report", str(bundle), "--out", str(out), *args])


def written(bundle: Path, out: Path, *args: str) -> str:
    done = make(bundle, out, *args)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out / 'index.html'}\n"
    return (out / "index.html").read_text(encoding="utf-8")


def verdicts(bundle: Path, level: str = "raw") -> Verdicts:
    done = subprocess.run(
        [sys.executable, "-m", "verifier", "check", str(bundle), "--level", level, "--format", "json"],
        check=False,
        capture_output=True,
    )
    return Verdicts(report=json.loads(done.stdout), level=level)


def test_says_what_the_verifier_says(bundle: Path, tmp_path: Path) -> None:
    text = written(bundle, tmp_path / "page")
    read = Read(text)
    report = verdicts(bundle).report
    assert report["claims"]
    for claim in report["claims"]:
        block = text[text.index(f'id="{claim["id"]}"') :].split("</li>")[0]
        assert f'class="verdict v-{claim["verdict"]}"' in block
        assert claim["statement"] in " ".join(Read(block).words).replace("\n", " ")
    for non_claim in report["non_claims"]:
        assert non_claim in read.text
    assert "checked at level raw" in read.text
    assert "The plan is self-declared" in read.text


def test_an_anchor_is_passed_on(bundle: Path, tmp_path: Path) -> None:
    text = written(bundle, tmp_path / "page", "--plan", str(bundle / "plan.yaml"))
    assert "The plan is self-declared" not in text
    assert ", anchored</dd>" in text
    assert "The claims are self-declared" not in text


def test_a_plans_digest_anchors_no_claim(bundle: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256((bundle / "plan.yaml").read_bytes()).hexdigest()
    text = written(bundle, tmp_path / "page", "--expect-plan", digest)
    assert "The plan is self-declared" not in text
    assert "The claims are self-declared: the digest of a plan says nothing of its ledger." in text


def test_loads_nothing_and_links_only_inside(bundle: Path, tmp_path: Path) -> None:
    """One file, no scripts, no network: the policy forbids it, and nothing asks for it."""
    text = written(bundle, tmp_path / "page")
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["index.html"]
    read = Read(text)
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in read.tags}
    ids = {attributes["id"] for _, attributes in read.tags if "id" in attributes}
    links = [attributes["href"] for tag, attributes in read.tags if tag == "a"]
    assert links
    assert {str(link).removeprefix("#") for link in links} <= ids
    assert set(re.findall(r"https?://[^\"' <]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "url(" not in text
    policy = next(attributes for tag, attributes in read.tags if attributes.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_can_be_used_without_a_mouse_or_eyes(bundle: Path, tmp_path: Path) -> None:
    read = Read(written(bundle, tmp_path / "page"))
    assert next(attributes for tag, attributes in read.tags if tag == "html")["lang"] == "en"
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in read.tags:
        if "scroll" in (attributes.get("class") or "").split():
            assert (attributes["tabindex"], attributes["role"]) == ("0", "region")
            assert attributes["aria-label"]
        if tag == "svg":
            assert attributes["role"] == "img"
        if tag == "th":
            assert attributes["scope"] in {"col", "row"}
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_same_bundle_same_bytes(bundle: Path, tmp_path: Path) -> None:
    assert written(bundle, tmp_path / "a") == written(bundle, tmp_path / "b")


def test_first_difference_with_the_sums_that_led_there(bundle: Path, tmp_path: Path) -> None:
    """The quick plan's published first difference at W13, and its trace, which has the captured bits."""
    text = Read(written(bundle, tmp_path / "page")).text
    assert "row 20, column 1 H0 0xB7B4 -0.4814 H1 0xB7B5 -0.4817" in text
    assert "RN16 gives 0xB7B4 and 0xB7B5: here the bits part." in text
    assert text.count("Both ends have the captured bits") == 4
    assert "OTHERS" not in text


def test_simulated_is_said_and_only_where_it_is(bundle: Path, tmp_path: Path) -> None:
    text = written(bundle, tmp_path / "page")
    assert text.count("SIMULATED") >= 4  # title, banner, picture, footer
    source = read_source(bundle)
    gpu = replace(source, summary=source.summary.model_copy(update={"evidence": "gpu"}))
    assert "SIMULATED" not in page(gpu, verdicts(bundle), tmp_path)


def test_captures_left_out(copied: Copied, tmp_path: Path) -> None:
    folder = copied()
    for path in (folder / "objects").iterdir():
        path.unlink()
    text = written(folder, tmp_path / "page")
    read = Read(text)
    assert 'id="no-raw"' in text
    assert "This bundle came without its raw tensors (or some of them)" in read.text
    assert "checked at level records" in read.text
    assert "The sums that led to" not in read.text
    assert "<td>differ</td>" in text


@pytest.mark.parametrize(
    ("name", "data", "section", "says"),
    [
        (
            "attempts.jsonl",
            b'{"event":"other"}\n',
            "processes",
            "attempts.jsonl, line 1: expected a started, ended or resumed event, got another; `verifier check` says what is wrong",
        ),
        ("build.json", b"{}", "build", "build.json:1: "),
        (
            "routing.json",
            b"{}",
            "differences",
            "The sums that led there could not be traced: routing.json:1: ",
        ),
    ],
    ids=["attempts", "build", "routing"],
)
def test_a_damaged_document_costs_its_section(
    copied: Copied, tmp_path: Path, name: str, data: bytes, section: str, says: str
) -> None:
    folder = copied()
    (folder / name).write_bytes(data)
    text = written(folder, tmp_path / "page")
    start = text.index(f'<section id="{section}"')
    part = Read(text[start : text.index("</section>", start)]).text
    assert "Not shown." in part
    assert says in part
    assert '<section id="verify"' in text
    assert "V" in Read(text[text.index('id="findings"') :].split("</table>")[0]).text


def test_missing_alignments_and_records_are_said(copied: Copied, tmp_path: Path) -> None:
    folder = copied()
    for path in (folder / "alignments").iterdir():
        path.unlink()
    (folder / "records" / "ablation.forced-grid.H1.1.json").unlink()
    text = Read(written(folder, tmp_path / "page")).text
    assert "is the bundle complete?" in text
    assert "1 records cannot be read: records/ablation.forced-grid.H1.1.json" in text


def test_words_of_a_bundle_are_words(copied: Copied, tmp_path: Path) -> None:
    """A hostile bundle puts no markup into the page."""
    folder = copied()
    build = json.loads((folder / "build.json").read_bytes())
    build["arithmetic"] = "<script>alert(1)</script>"
    (folder / "build.json").write_text(json.dumps(build, separators=(",", ":"), sort_keys=True))
    text = written(folder, tmp_path / "page")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_what_is_no_bundle_is_refused(bundle: Path, tmp_path: Path, copied: Copied) -> None:
    done = make(tmp_path / "none", tmp_path / "page")
    assert (done.exit_code, done.stderr) == (
        4,
        f"mechanism: refused: {tmp_path / 'none'}: expected the folder of a bundle, got none; check the path, and unpack a release first\n",
    )
    (tmp_path / "empty").mkdir()
    assert make(tmp_path / "empty", tmp_path / "page").stderr == (
        f"mechanism: refused: {tmp_path / 'empty'}: expected the folder of a bundle, got a folder without plan.yaml;"
        " check the path, and unpack a release first\n"
    )
    folder = copied()
    kept = (folder / "bundle.json").read_bytes()
    (folder / "bundle.json").unlink()
    assert make(folder, tmp_path / "page").stderr == (
        f"mechanism: refused: {folder}: expected a finished bundle, found no bundle.json; go on with it by"
        " `mechanism run --resume`\n"
    )
    (folder / "bundle.json").write_bytes(kept)
    (folder / "plan.yaml").write_text("[]")
    done = make(folder, tmp_path / "page")
    assert done.exit_code == 4
    assert f"{folder}: no page can be made of it: " in done.stderr
    assert not (tmp_path / "page").exists()
    assert bundle.exists()


def test_the_verifier_is_never_imported() -> None:
    code = "import sys; import mechanism.command.report; sys.exit('verifier' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
