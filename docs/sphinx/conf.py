"""The settings of Sphinx; docs/build/site.py runs it."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The reference is that of these sources, not of an installed Barnabas.
sys.path.insert(0, str(ROOT))

from barnabas import __version__  # noqa: E402

project = "Barnabas"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
# The pages stay where GitHub shows them, so the whole repository is the folder of sources.
root_doc = "docs/sphinx/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/sphinx/*.md",
    "examples/README.md",
    "findings/README.md",
    "benchmarks/RESULTS.md",
]
exclude_patterns = [".*", "build", "dist", "tests", "**/__pycache__"]

html_theme = "furo"
html_title = f"Barnabas {release}"
# A page at the top of the site that leads to the table of contents.
html_extra_path = ["top"]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

# A name in single backticks is code in our docstrings.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
# The plugin's page needs its docstring alone, and the extra `docs` has no pytest.
autodoc_mock_imports = ["pytest"]
