"""The pictures of docs/web.md: pages of the dashboard, with the week of `make web` in them.

    make screenshots                              # all; it installs Chromium and playwright
    python -m tests.docs.screenshots NAME ...     # some

The same seed tells almost the same story, so another run shows another moment of the same shop. Pictures have a
palette of at most 256 colours, which makes them small.
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from array import array
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.web.browser.pages import Example
from tests.web.browser.screenshots import drawing, need_browser
from tests.web.browser.week import EXAMPLES, serving_week

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from tests.web.serving import Web

FOLDER = Path(__file__).parents[2] / "docs" / "images"
COLOURS = 256
FLAT = 300  # pixels of a colour that is kept as it is; others are edges of letters
DECODE = """async (png) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}"""


class Picture(NamedTuple):
    """A page, in a window of this size. What is shown ends where the page does."""

    example: Example
    height: int
    width: int = 1440
    theme: Literal["light", "dark"] = "light"

    @property
    def scale(self) -> int:
        """Two on a phone."""
        return 1 if self.width > 1000 else 2


PICTURES = {
    "overview": Picture(EXAMPLES["overview"], 1180),
    "overview-dark": Picture(EXAMPLES["overview"], 760, theme="dark"),
    "jobs": Picture(Example("/jobs", query="q=state:running,throttled,failed+since:12h"), 900),
    "operation": Picture(EXAMPLES["operation-new"], 900),
    "job-running": Picture(EXAMPLES["job-running"], 1000),
    "job-waiting": Picture(EXAMPLES["job-waiting"], 660),
    "queue": Picture(EXAMPLES["queue-video"], 1020),
    "failures": Picture(EXAMPLES["failures"], 900),
    "workers": Picture(EXAMPLES["workers"], 900),
    "schedules": Picture(EXAMPLES["schedules"], 900),
    "phone-overview": Picture(EXAMPLES["overview"], 844, 390),
    "phone-job": Picture(EXAMPLES["job-waiting"], 844, 390),
    "phone-queue": Picture(EXAMPLES["queue-video"], 844, 390, "dark"),
}


def main(*names: str) -> None:
    """Write the pictures, or some of them."""
    need_browser()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with serving_week() as web, drawing() as browser:
        for name in names or PICTURES:
            path = FOLDER / f"{name}.png"
            path.write_bytes(_take(browser, web, PICTURES[name]))
            print(f"{path.stat().st_size // 1024:4} KiB  {path.name}", flush=True)


def _take(browser: Browser, web: Web, picture: Picture) -> bytes:
    with browser.new_context(
        base_url=web.url, color_scheme=picture.theme, device_scale_factor=picture.scale,
        viewport={"width": picture.width, "height": picture.height},
    ) as context:  # fmt: skip
        page = context.new_page()
        page.route("**/*", _hold_refreshes)
        page.goto(picture.example.url(web.jobs))
        page.locator("[data-live-state]:visible, main:not(:has([data-live]))").first.wait_for()  # it is connected
        end = page.locator("#main").bounding_box()
        assert end is not None
        height = min(picture.height, int(end["y"] + end["height"]))
        taken = page.screenshot(clip={"x": 0, "y": 0, "width": picture.width, "height": height})
        page.goto("about:blank")
        return _compact(page, taken)


def _hold_refreshes(route: Route) -> None:
    """Leave a page as it was opened: in a list that changes, rows would be marked."""
    if route.request.resource_type != "fetch":
        route.continue_()


# Fewer colours


def _compact(page: Page, png: bytes) -> bytes:
    """Return a picture with a palette; the browser reads the one that it took."""
    width, height, text = page.evaluate(DECODE, base64.b64encode(png).decode())
    pixels = array("I", base64.b64decode(text))
    counts = Counter(pixels)
    palette = _palette(counts)
    index = {colour: _nearest(palette, _parts(colour)) for colour in counts}
    places = bytes(map(index.__getitem__, pixels))
    rows = b"".join(b"\0" + places[row * width : (row + 1) * width] for row in range(height))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", b"".join(map(bytes, palette))),
            (b"IDAT", zlib.compress(rows, 9)),
            (b"IEND", b""),
        )
    )


def _palette(counts: Counter[int]) -> list[tuple[int, int, int]]:
    """Return the colours of areas as they are, and of others so many that all pixels resemble one."""
    difference = 0
    while True:
        found: list[tuple[int, int, int]] = []
        for colour, count in counts.most_common():
            parts = _parts(colour)
            if count >= FLAT or all(_distance(parts, other) > difference for other in found):
                found.append(parts)
                if len(found) > COLOURS and count < FLAT:
                    break
        if len(found) <= COLOURS:
            return found
        difference = 2 * difference + 3


def _parts(colour: int) -> tuple[int, int, int]:
    """Return red, green and blue of four bytes of a canvas."""
    red, green, blue, _ = colour.to_bytes(4, sys.byteorder)
    return red, green, blue


def _distance(one: tuple[int, int, int], other: tuple[int, int, int]) -> int:
    return sum((left - right) ** 2 for left, right in zip(one, other, strict=True))


def _nearest(palette: list[tuple[int, int, int]], parts: tuple[int, int, int]) -> int:
    return min(range(len(palette)), key=lambda place: _distance(palette[place], parts))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main(*sys.argv[1:])
