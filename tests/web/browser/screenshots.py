"""Screenshots of every page: on a laptop and on a phone, light and dark.

    python -m tests.web.browser.screenshots [FOLDER] [NAME ...]

Writes FOLDER/<page>-<light|dark>-<width>.png (FOLDER: .bench/screens), of the pages whose name has NAME in it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast import Holdfast
from holdfast.testing import running_server
from holdfast.web.routes import ROUTES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.web.browser import chromium, components
from tests.web.browser.data import fill, send_heartbeats
from tests.web.browser.pages import EXAMPLES
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


def main(folder: str = ".bench/screens", *names: str) -> None:
    """Write the screenshots."""
    if reason := chromium.why_missing():
        sys.exit(f"no screenshots: {reason}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as fonts, _serving() as web:
        fonts_file = Path(fonts, "fonts.conf")
        fonts_file.write_text(FONTS)
        with chromium.launched(env={**os.environ, "FONTCONFIG_FILE": str(fonts_file)}) as browser:
            for look in LOOKS:
                for path in _shoot(browser, web, look, names, Path(folder)):
                    print(path)


@contextmanager
def _serving() -> Iterator[Web]:
    """Serve a filled store, and the page of all components."""
    ROUTES.routes = [*ROUTES.routes, *components.pages]
    with running_server() as url:
        app = Holdfast(url, namespace="production")
        fill(app)
        with serve(Site(app, lambda _: LOCAL)) as web:
            yield web
        app.close()


def _shoot(browser: Browser, web: Web, look: Look, names: Sequence[str], folder: Path) -> Iterator[Path]:
    """Take a picture of each page in one look, and yield where it is."""
    theme, width = look
    with browser.new_context(
        base_url=web.url,
        color_scheme=theme,
        viewport={"width": width, "height": 900},
        device_scale_factor=1 if width > 1000 else 2,
    ) as context:
        page = context.new_page()
        for example in EXAMPLES:
            if not names or any(name in example.name for name in names):
                send_heartbeats(web.jobs)
                page.goto(example.url(web.jobs))
                path = folder / f"{example.name}-{theme}-{width}.png"
                page.screenshot(path=path, full_page=True)
                yield path


if __name__ == "__main__":
    main(*sys.argv[1:])
