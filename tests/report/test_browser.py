"""The page in a real headless Chromium: light and dark, narrow and wide, keyboard, print; nothing overflows.

Debian: apt-get install chromium chromium-driver. With $REPORT_SHOTS set, screenshots are kept there to look at.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

selenium = pytest.importorskip("selenium", reason="needs selenium, of the extra dev")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver of Debian"),
]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def index(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small bundle."""
    from click.testing import CliRunner  # noqa: PLC0415

    from mechanism.__main__ import cli  # noqa: PLC0415

    out = tmp_path_factory.mktemp("page")
    assert CliRunner().invoke(cli, ["report", str(bundle), "--out", str(out)]).exit_code == 0
    return out / "index.html"


@pytest.fixture
def browser(index: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens the page from file:// in a browser of its own: width, and dark or light."""
    from selenium.webdriver import Chrome  # noqa: PLC0415
    from selenium.webdriver.chrome.options import Options  # noqa: PLC0415
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    opened: list[Any] = []

    def open_page(*, width: int = 1280, dark: bool = False, name: str = "") -> Any:
        options = Options()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={tmp_path / f'profile{len(opened)}'}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver: Any = Chrome(options=options, service=Service(str(DRIVER)))
        opened.append(driver)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(index.as_uri())
        if name and (shots := os.environ.get("REPORT_SHOTS")):
            keep_shot(driver, Path(shots) / f"{name}.png", width)
        return driver

    yield open_page
    for driver in opened:
        driver.quit()


def keep_shot(driver: Any, path: Path, width: int) -> None:
    """A picture of the whole page."""
    height = driver.execute_script("return document.documentElement.scrollHeight")
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    path.parent.mkdir(parents=True, exist_ok=True)
    driver.save_screenshot(str(path))


def luminance(colour: str) -> float:
    """Relative luminance of a CSS rgb(...) colour, as WCAG defines it."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


CONTRAST = """
const opaque = (node) => {
  for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!colour.startsWith('rgba') || colour.endsWith(', 1)')) return colour;
  }
  return 'rgb(255, 255, 255)';
};
return [...document.querySelectorAll('p, li, td, th, dt, dd, a, summary, h1, h2, h3, h4, span, code, strong')]
  .filter((node) => node.textContent.trim() && node.offsetParent)
  .map((node) => [node.className + ':' + node.textContent.trim().slice(0, 30), getComputedStyle(node).color, opaque(node)]);
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_read(browser: Open, *, dark: bool) -> None:
    """Every visible text has a contrast of 4.5 or more against what is behind it (WCAG AA)."""
    driver = browser(dark=dark, name="dark" if dark else "light")
    page = luminance(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert (page < 0.05) == dark
    found = driver.execute_script(CONTRAST)
    assert len(found) > 200
    for text, ink, behind in found:
        high, low = sorted((luminance(ink), luminance(behind)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ink, behind)


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_the_page_never_scrolls_sideways(browser: Open, width: int) -> None:
    """Wide pictures and tables scroll inside their own frames; text does not."""
    driver = browser(width=width, name=f"width-{width}")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    wide = driver.execute_script(
        "return [...document.querySelectorAll('main *')].filter((node) => !node.closest('.scroll, .sr')"
        " && node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 90))"
    )
    assert wide == []


def test_it_asks_for_nothing_and_complains_of_nothing(browser: Open, index: Path) -> None:
    driver = browser()
    assert driver.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert index.as_uri() in asked
    own = ("chrome:", "data:", "about:", "chrome-extension:")  # what a new tab loads before the page
    assert {url for url in asked if not url.startswith(own)} == {index.as_uri()}


def test_keyboard_reaches_everything(browser: Open) -> None:
    """Tab goes to the skip link first, then in order through links, frames and folds; Enter opens a fold."""
    from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415

    driver = browser()
    seen = []
    for _ in range(12):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        seen.append(driver.execute_script("return document.activeElement.textContent.trim().slice(0, 40)"))
        outline = driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
    assert seen[0] == "Skip to the claims"
    assert seen[1] == "Claims"
    assert seen[8].startswith("How it was decided")
    driver.execute_script("document.querySelector('.claim details:not([open]) summary').focus()")
    fold = "return document.activeElement.parentElement.open"
    assert driver.execute_script(fold) is False
    ActionChains(driver).send_keys(Keys.ENTER).perform()
    assert driver.execute_script(fold) is True


def test_screen_readers_get_names(browser: Open) -> None:
    """In the accessibility tree every picture, region and link has a name, and there is one main heading."""
    driver = browser()
    nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            role = node["role"]["value"]
            named.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    for role in ("image", "region", "link", "table", "heading"):
        assert named.get(role), role
        assert role == "table" or all(named[role]), (role, named[role])
    assert any("distinct trajectories" in name for name in named["image"])
    assert any("SIMULATED schedule" in name for name in named["image"])
    assert named["main"]
    assert named["navigation"] == ["Sections"]


def test_simulated_is_the_first_thing_seen(browser: Open) -> None:
    driver = browser()
    top = driver.execute_script("return document.getElementById('simulated').getBoundingClientRect().top")
    assert 0 <= top < 60
    assert driver.title.startswith("SIMULATED: ")


def test_prints_without_navigation(browser: Open, tmp_path: Path) -> None:
    import base64  # noqa: PLC0415

    driver = browser()
    made = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
    assert made.startswith(b"%PDF")
    assert 2 <= made.count(b"/Type /Page\n") + made.count(b"/Type /Page/") <= 20
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = driver.execute_script("return getComputedStyle(document.querySelector('nav')).display")
    assert shown == "none"
    (tmp_path / "page.pdf").write_bytes(made)
