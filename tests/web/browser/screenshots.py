"""Screenshots of every page: on a laptop and on a phone, light and dark.

    python -m tests.web.browser.screenshots [--week] [FOLDER] [NAME ...]

Writes FOLDER/<page>-<light|dark>-<width>.png (FOLDER: .bench/screens), of the pages whose name has NAME in it. With
`--week`, the pages show the week of `make web`; otherwise, what the browser tests see.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast import Holdfast
from holdfast.testing import running_server
from holdfast.web.routes import ROUTES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.web.browser import chromium, components, week
from tests.web.browser.data import fill, send_heartbeats
from tests.web.browser.pages import EXAMPLES, Example
from tests.web.serving import Web, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Look = tuple[Literal["light", "dark"], int]
LOOKS: tuple[Look, ...] = (("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390))
# Pages use the reader's own font. In the pictures that is Inter (Debian's package fonts-inter), if it is installed.
FONTS = """<fontconfig><include>/etc/fonts/fonts.conf</include>
<match target="pattern"><test name="family"><string>sans-serif</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match target="pattern"><test name="family"><string>sans</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match target="pattern"><test name="family"><string>system-ui</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match></fontconfig>"""


def main() -> None:
    """Write the screenshots."""
    parser = argparse.ArgumentParser(prog="python -m tests.web.browser.screenshots", description=__doc__)
    parser.add_argument("--week", action="store_true", help="show the week of `make web`")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".bench/screens"))
    parser.add_argument("names", nargs="*", help="parts of the names of pages")
    chosen = parser.parse_args()
    examples = week.EXAMPLES if chosen.week else {example.name: example for example in EXAMPLES}
    wanted = {
        name: example
        for name, example in examples.items()
        if not chosen.names or any(part in name for part in chosen.names)
    }
    need_browser()
    with week.serving_week() if chosen.week else _serving() as web, drawing() as browser:
        for look in LOOKS:
            for path in shoot(browser, web, look, wanted, chosen.folder):
                print(path, flush=True)


def need_browser() -> None:
    """Exit if there is no browser."""
    if reason := chromium.why_missing():
        sys.exit(f"no screenshots: {reason}")


@contextmanager
def drawing() -> Iterator[Browser]:
    """Start a browser whose font is Inter. No event loop can be run in this thread meanwhile."""
    with tempfile.TemporaryDirectory() as fonts:
        fonts_file = Path(fonts, "fonts.conf")
        fonts_file.write_text(FONTS)
        with chromium.launched(env={**os.environ, "FONTCONFIG_FILE": str(fonts_file)}) as browser:
            yield browser


@contextmanager
def _serving() -> Iterator[Web]:
    """Serve a filled store, and the page of all components."""
    ROUTES.routes = [*ROUTES.routes, *components.pages]
    with running_server() as url:
        app = Holdfast(url, namespace="production")
        fill(app)
        ended = threading.Event()
        life = threading.Thread(target=_send_heartbeats, args=(url, ended))
        life.start()
        try:
            with serve(Site(app, lambda _: LOCAL)) as web:
                yield web
        finally:
            ended.set()
            life.join()
            app.close()


def _send_heartbeats(url: str, until: threading.Event) -> None:
    """Keep workers live: they are silent half a minute after a heartbeat."""
    with closing(Holdfast(url, namespace="production")) as app:
        while not until.wait(10):
            send_heartbeats(app)


def shoot(browser: Browser, web: Web, look: Look, examples: Mapping[str, Example], folder: Path) -> Iterator[Path]:
    """Take a picture of each page in one look, and yield where it is."""
    theme, width = look
    folder.mkdir(parents=True, exist_ok=True)
    with browser.new_context(
        base_url=web.url,
        color_scheme=theme,
        viewport={"width": width, "height": 900},
        device_scale_factor=1 if width > 1000 else 2,
    ) as context:
        page = context.new_page()
        for name, example in examples.items():
            page.goto(example.url(web.jobs))
            path = folder / f"{name}-{theme}-{width}.png"
            page.screenshot(path=path, full_page=True)
            yield path


if __name__ == "__main__":
    main()
