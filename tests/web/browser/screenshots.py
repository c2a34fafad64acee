"""Screenshots of every page: on a laptop, light and dark, and on a phone.

    python -m tests.web.browser.screenshots [FOLDER] [NAME ...]

Writes FOLDER/<page>-<light|dark>-<width>.png (FOLDER: .bench/screens), of the pages whose name has NAME in it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from holdfast import Holdfast
from holdfast.testing import running_server
from holdfast.web.routes import ROUTES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.web.browser import chromium, components
from tests.web.browser.data import fill
from tests.web.browser.pages import EXAMPLES
from tests.web.serving import serve

LOOKS: tuple[tuple[Literal["light", "dark"], int], ...] = (
    ("light", 1440),
    ("dark", 1440),
    ("light", 390),
    ("dark", 390),
)


def main(folder: str = ".bench/screens", *names: str) -> None:
    """Write the screenshots."""
    if reason := chromium.why_missing():
        sys.exit(f"no screenshots: {reason}")
    ROUTES.routes = [*ROUTES.routes, *components.pages]
    Path(folder).mkdir(parents=True, exist_ok=True)
    with running_server() as url:
        app = Holdfast(url, namespace="production")
        fill(app)
        with serve(Site(app, lambda _: LOCAL)) as web, chromium.launched() as browser:
            for theme, width in LOOKS:
                context = browser.new_context(
                    base_url=web.url,
                    color_scheme=theme,
                    viewport={"width": width, "height": 900},
                    device_scale_factor=1 if width > 1000 else 2,
                )
                page = context.new_page()
                for example in EXAMPLES:
                    if names and not any(name in example.name for name in names):
                        continue
                    page.goto(example.url)
                    path = Path(folder, f"{example.name}-{theme}-{width}.png")
                    page.screenshot(path=path, full_page=True)
                    print(path)
                context.close()
        app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
