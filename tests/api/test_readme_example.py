"""The README's notebook example is executed, and gives what it says."""

import doctest
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_notebook_example() -> None:
    text = README.read_text(encoding="utf-8")
    block = text.split("```pycon\n")[1].split("```")[0]
    example = doctest.DocTestParser().get_doctest(block, {}, "README.md", str(README), 0)
    assert len(example.examples) >= 6
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(example).failed == 0
