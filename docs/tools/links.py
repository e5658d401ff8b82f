"""Links that work twice: a page links to files of the repository; the site has pages for them or points to the source.

[metrics](../../src/hubscout/metrics)  →  ../metrics/index.md     made while the site is built
![](../experiments/race/figure.png)    →  figures/race-figure.png
[card](../CONTRIBUTING.md)             →  the file on the project's own page
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

SOURCE = "https://github.com/hubscout/hubscout/blob/main"
_LINK = re.compile(r"(?P<start>\]\()(?P<target>[^()\s#]+)(?=[#)\s])")
_CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_PAGES = (
    (r"docs/tools/notebook\.py", "docs/tutorial.ipynb"),
    (r"src/hubscout/cli", "docs/reference/commands.md"),
    (r"src/hubscout/metrics", "docs/metrics/index.md"),
    (r"src/hubscout/tuning/methods", "docs/methods/index.md"),
    (r"src/hubscout/tuning/methods/(\w+)\.py", r"docs/methods/\1.md"),
    (r"src/hubscout/(\w+)", r"docs/reference/\1.md"),
    (r"experiments/(\w+)/(\w+\.png)", r"docs/figures/\1-\2"),
)
"""Which page of the site stands for which file or folder of the repository."""


@dataclass(frozen=True)
class Link:
    """A link of a page to another file, and where in the text its address stands."""

    target: str
    start: int
    end: int

    @property
    def is_relative(self) -> bool:
        """Whether it leads to a file beside the page."""
        return not re.match(r"\w+:|//|<", self.target)


def links_of(text: str) -> Iterator[Link]:
    """The links and pictures of a page in Markdown, in order; what stands in code is none.

    >>> [link.target for link in links_of("[a](b.md#c), `[d](e)` and ![f](g.png)")]
    ['b.md', 'g.png']
    """
    plain = _CODE.sub(lambda found: " " * len(found[0]), text)
    for found in _LINK.finditer(plain):
        yield Link(found["target"], *found.span("target"))


def for_the_site(text: str, page: str) -> str:
    """A page, named by its path in the repository, with the links that the site needs.

    >>> for_the_site("[m](../../src/hubscout/metrics), [n](csv.md), [o](../../LICENSE)", "docs/how-to/a.md")
    '[m](../metrics/index.md), [n](csv.md), [o](https://github.com/hubscout/hubscout/blob/main/LICENSE)'
    """
    parts, position = [], 0
    for link in links_of(text):
        parts += [text[position : link.start], _address(link, page)]
        position = link.end
    return "".join(parts) + text[position:]


def _address(link: Link, page: str) -> str:
    if not link.is_relative:
        return link.target
    here = posixpath.dirname(page)
    path = posixpath.normpath(posixpath.join(here, link.target))
    for pattern, site in _PAGES:
        if found := re.fullmatch(pattern, path):
            named = found.expand(site)
            return posixpath.relpath(named.replace("_", "-") if "/methods/" in named else named, here)
    on_the_site = path.startswith("docs/") and not path.startswith("docs/tools/")
    return link.target if on_the_site else f"{SOURCE}/{path}"
