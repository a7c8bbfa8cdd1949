"""The schedule map as a picture: padded blocks down, column tiles across. Pure text out, SVG 1.1.

Colours are from the Okabe-Ito set and never carry meaning alone: split tiles are also hatched with as
many bars as they have slices, moved routes are also boxed.
"""

from xml.etree import ElementTree as ET

from mechanism.show.schedule_map import BlockRow, GemmMap, ScheduleMap

ROW, TILE, TOP, LEFT, GAP, HEAD = 16, 15, 96, 150, 36, 150  # pixels; HEAD: room for a panel's heading
DIRECT, SPLIT, MOVED, INK, PALE = "#cfe3f2", "#e69f00", "#d55e00", "#1b1b1b", "#666666"


def schedule_svg(shown: ScheduleMap) -> str:
    """The picture's text. The same map gives the same bytes."""
    widths = [max(gemm.schedule.n_tiles * TILE, HEAD) for gemm in shown.gemms]
    panels = LEFT + sum(widths) + GAP * len(widths)
    routes_width = 40 + 7 * max((len(_routes_text(row)) for row in _told(shown)), default=0)
    width, height = max(panels + routes_width, 820), TOP + ROW * len(shown.blocks) + 70
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(width),
            "height": str(height),
            "viewBox": f"0 0 {width} {height}",
            "role": "img",
            "font-family": "ui-sans-serif, system-ui, sans-serif",
            "font-size": "11",
        },
    )
    ET.SubElement(root, "title").text = _title(shown)
    ET.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _heading(root, shown)
    _rows(root, shown)
    left = LEFT
    for gemm, panel in zip(shown.gemms, widths, strict=True):
        _panel(root, gemm, left)
        left += panel + GAP
    _routes(root, shown, left)
    _legend(root, shown, height - 40)
    ET.indent(root, "")
    return ET.tostring(root, encoding="unicode") + "\n"


def _title(shown: ScheduleMap) -> str:
    return f"{'SIMULATED s' if shown.simulated else 'S'}chedule of plan {shown.plan} on {shown.device}"


def _text(parent: ET.Element, x: float, y: float, text: str, **style: str) -> None:
    names = {name.replace("_", "-"): value for name, value in style.items()}
    ET.SubElement(parent, "text", {"x": f"{x:g}", "y": f"{y:g}", "fill": INK, **names}).text = text


def _heading(root: ET.Element, shown: ScheduleMap) -> None:
    _text(root, 16, 28, _title(shown), font_size="17", font_weight="600")
    moved = ", ".join(map(str, shown.moved_routes)) or "none"
    _text(root, 16, 48, f"{shown.title}. Routes that change padded block between histories: {moved}.")


def _rows(root: ET.Element, shown: ScheduleMap) -> None:
    _text(root, 16, TOP - 8, "padded block, expert", fill=PALE)
    told = {row.block for row in _told(shown)}
    for row in shown.blocks:
        y = TOP + ROW * row.block
        weight = "700" if row.block in told else "400"
        _text(root, 16, y + 12, f"{row.block}", font_weight=weight)
        _text(root, 52, y + 12, f"expert {row.expert}", font_weight=weight)
        if row.moves:
            mark = {"x": "12", "y": str(y), "width": str(LEFT - 20), "height": str(ROW - 1), "rx": "3"}
            ET.SubElement(root, "rect", {**mark, "fill": "none", "stroke": MOVED, "stroke-width": "1.5"})


def _panel(root: ET.Element, gemm: GemmMap, left: int) -> None:
    plan = gemm.schedule
    group = ET.SubElement(root, "g", {"transform": f"translate({left} {TOP})"})
    _text(group, 0, -22, gemm.label, font_weight="600")
    _text(group, 0, -8, f"{plan.grid} CTAs, {plan.n_tiles} column tiles", fill=PALE)
    for block in range(plan.padded_blocks):
        counts = gemm.slice_counts(block)
        whole = [column for column, slices in enumerate(counts) if slices == 1]
        if whole:  # one bar for all direct tiles of a block: split ones are drawn on top of it
            box = _box(group, 0, block * ROW, plan.n_tiles * TILE - 1, DIRECT)
            ET.SubElement(box, "title").text = f"padded block {block}: {len(whole)} column tiles direct"
        for column, slices in enumerate(counts):
            if slices > 1:
                _split(group, column * TILE, block * ROW, slices, _says(gemm, block, column))
    height = str(plan.padded_blocks * ROW)
    for column in range(1, plan.n_tiles):
        x = f"{column * TILE - 0.5:g}"
        ET.SubElement(group, "line", {"x1": x, "x2": x, "y2": height, "stroke": "#ffffff"})


def _box(group: ET.Element, x: int, y: int, width: int, fill: str) -> ET.Element:
    size = {"width": str(width), "height": str(ROW - 1)}
    return ET.SubElement(group, "rect", {"x": str(x), "y": str(y), **size, "fill": fill})


def _split(group: ET.Element, x: int, y: int, slices: int, says: str) -> None:
    """A split tile: besides its colour, one bar per cut, so that it does not take colour to see it."""
    ET.SubElement(_box(group, x, y, TILE - 1, SPLIT), "title").text = says
    for cut in range(1, slices):
        at = f"{x + (TILE - 1) * cut / slices:.1f}"
        ET.SubElement(
            group, "line", {"x1": at, "x2": at, "y1": str(y + 2), "y2": str(y + ROW - 3), "stroke": INK}
        )


def _says(gemm: GemmMap, block: int, column: int) -> str:
    parts = gemm.schedule.slices(block, column)
    ranges = ", ".join(f"CTA {part.cta}: k-tiles {part.begin}..{part.end - 1}" for part in parts)
    return f"padded block {block}, column tile {column}: {ranges}"


def _told(shown: ScheduleMap) -> list[BlockRow]:
    experts = [row.expert for row in shown.blocks]
    return [row for row in shown.blocks if row.moves or experts.count(row.expert) > 1]


def _routes_text(row: BlockRow) -> str:
    return "   ".join(f"{name}: {' '.join(map(str, routes))}" for name, routes in row.routes.items())


def _routes(root: ET.Element, shown: ScheduleMap, left: int) -> None:
    _text(root, left, TOP - 8, "routes, where an expert fills more than one block", fill=PALE)
    moved = set(shown.moved_routes)
    place = {"x": str(left), "fill": INK, "xml:space": "preserve"}
    for row in _told(shown):
        line = ET.SubElement(root, "text", {**place, "y": str(TOP + ROW * row.block + 12)})
        for name, routes in row.routes.items():
            ET.SubElement(line, "tspan", {"fill": PALE}).text = f"{name}: "
            for route in routes:
                style = (
                    {"fill": MOVED, "font-weight": "700", "text-decoration": "underline"}
                    if route in moved
                    else {}
                )
                ET.SubElement(line, "tspan", style).text = f"{route} "
            ET.SubElement(line, "tspan").text = "   "


def _legend(root: ET.Element, shown: ScheduleMap, y: int) -> None:
    group = ET.SubElement(root, "g", {"transform": f"translate(16 {y})"})
    _box(group, 0, 0, TILE - 1, DIRECT)
    _text(group, 22, 12, "direct: one CTA over all of K")
    _split(group, 230, 0, 2, "split")
    _text(group, 252, 12, "split: one bar per cut of K")
    if not shown.moved_routes:
        return
    _text(
        group, 450, 12, str(shown.moved_routes[0]), fill=MOVED, font_weight="700", text_decoration="underline"
    )
    _text(group, 472, 12, "a route that moves between blocks from history to history")
