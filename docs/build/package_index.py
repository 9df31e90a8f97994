"""Prepare a checkout for a package index: `python -m docs.build.package_index URL REF`.

A package index shows the README without the repository. Its links become absolute, at the commit or
tag REF of the repository at URL, and pyproject.toml gets the URLs of the project.
"""

import re
import sys
from pathlib import Path

_PICTURE = re.compile(r"(?<=!\[)([^\]]*\]\()(?![a-z]+:)([^)\s]+)")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)")
"""The target of a link that is relative to the repository."""


def absolute(text: str, url: str, ref: str) -> str:
    """Return a page with links into the repository at `url`, at the commit or tag `ref`."""
    # A picture needs the file itself, not the page about it.
    pictures = _PICTURE.sub(rf"\1{url}/raw/{ref}/\2", text)
    return _LINK.sub(rf"{url}/blob/{ref}/\1", pictures)


def project_urls(url: str, ref: str) -> str:
    """Return the table `project.urls` of pyproject.toml."""
    urls = {
        "Homepage": url,
        "Documentation": f"{url}/blob/{ref}/docs/tutorial.md",
        "Changelog": f"{url}/blob/{ref}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }
    return "\n[project.urls]\n" + "".join(f'{name} = "{each}"\n' for name, each in urls.items())


def prepare(checkout: Path, url: str, ref: str) -> None:
    """Rewrite README.md and pyproject.toml of a checkout."""
    readme, project = checkout / "README.md", checkout / "pyproject.toml"
    readme.write_text(absolute(readme.read_text(), url, ref))
    project.write_text(project.read_text() + project_urls(url, ref))


if __name__ == "__main__":
    prepare(Path.cwd(), *sys.argv[1:])
