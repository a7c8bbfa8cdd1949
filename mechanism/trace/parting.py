"""Where two stories part, in words: the first difference, whatever it still changes, and whether it lasts."""

from __future__ import annotations

from mechanism.trace.story import ElementStory, GemmStory, Value


def whole(story: GemmStory) -> Value:
    """The fp32 sum over all slices."""
    return story.adds[-1].value if story.adds else story.slices[0].total


def parting(left: ElementStory, right: ElementStory | None) -> str:
    """Sentences for people; left and right are of one element."""
    if right is None:
        return "The cell has one history: there is nothing to compare with."
    names = left.history, right.history
    told = []
    if left.inputs_differ:
        told.append(
            f"{left.inputs_differ} values of the input row, the activation of this route, differ"
            f" between {names[0]}"
            f" and {names[1]}: the difference arose at W13."
        )
    for mine, theirs in zip(left.gemms, right.gemms, strict=True):
        told += _gemm(mine, theirs, names, many=len(left.gemms) > 1)
    for mine_step, theirs_step in zip(left.steps, right.steps, strict=True):
        if mine_step.value.bits != theirs_step.value.bits:
            told.append(f"{mine_step.label}: {mine_step.value} against {theirs_step.value}.")
            break
    if left.final.bits == right.final.bits:
        last = f"The element is the same under both: {left.final}."
        return " ".join([*told, last] if told else [f"Nothing parts: every sum is the same. {last}"])
    return " ".join(
        [*told, f"The element is {left.final} under {names[0]} and {right.final} under {names[1]}."]
    )


def _gemm(mine: GemmStory, theirs: GemmStory, names: tuple[str, str], *, many: bool) -> list[str]:
    where = f"{mine.gemm.upper()} of route {mine.route}, column {mine.column}" if many else mine.gemm.upper()
    cut_alike = [item.k for item in mine.slices] == [item.k for item in theirs.slices]
    sums = whole(mine), whole(theirs)
    if sums[0].bits == sums[1].bits and mine.final.bits == theirs.final.bits:
        if cut_alike or many:
            return []
        return [
            f"{where} is cut differently ({_cuts(mine, theirs, names)}), and the sums are equal all the"
            f" same: {sums[0]}."
        ]
    told = [] if cut_alike else [f"{where} is cut differently over K: {_cuts(mine, theirs, names)}."]
    told.append(f"Its fp32 sums are {sums[0]} under {names[0]} and {sums[1]} under {names[1]}.")
    if mine.roundings[0].value.bits == theirs.roundings[0].value.bits:
        told.append(f"RN16 rounds both to {mine.roundings[0].value}: the difference ends here.")
    else:
        told.append(
            f"RN16 gives {mine.roundings[0].value} and {theirs.roundings[0].value}: here the bits part."
        )
    return told


def _cuts(mine: GemmStory, theirs: GemmStory, names: tuple[str, str]) -> str:
    def ranges(story: GemmStory) -> str:
        return " + ".join(f"[{item.k[0]}, {item.k[1]})" for item in story.slices)

    return (
        f"{names[0]} in block {mine.block} {ranges(mine)}, {names[1]} in block {theirs.block}"
        f" {ranges(theirs)}"
    )
