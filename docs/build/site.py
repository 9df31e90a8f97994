"""Build the site of the documents: `python -m docs.build.site [FOLDER]`, by default `build/site`.

It needs the extra `docs`. Warnings are errors. `docs/sphinx/` has the settings, the table of
contents, and the pages of the API reference.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> int:
    """Build the site into a folder; return Sphinx's exit code, 0 for success."""
    try:
        from sphinx.cmd.build import build_main
    except ImportError as error:
        sys.exit(f"the site of the documents: {error}; pip install '.[docs]'")
    settings = ("-c", str(ROOT / "docs" / "sphinx"))
    return build_main(["-q", "-W", "--keep-going", *settings, str(ROOT), str(folder)])


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "site"))
