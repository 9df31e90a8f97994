"""The site of the documents, and their index, have every page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_table_of_contents_has_every_page() -> None:
    index = (ROOT / "docs" / "sphinx" / "index.md").read_text()
    listed = set(re.findall(r"^/([\w/-]+)$", index, re.MULTILINE))
    inside = [
        page for folder in ("docs", "examples", "findings") for page in (ROOT / folder).glob("*.md")
    ]
    pages = [*ROOT.glob("*.md"), *inside, ROOT / "benchmarks" / "RESULTS.md"]
    assert listed == {str(page.relative_to(ROOT).with_suffix("")) for page in pages}


def test_index_of_the_documents_has_every_page() -> None:
    listed = set(re.findall(r"\]\(([\w.-]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
