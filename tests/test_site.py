"""The site of the documents has every page, and builds without a warning."""

import re
from pathlib import Path

import pytest

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


@pytest.mark.timeout(300)
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("furo", "myst_parser", "sphinx", "sphinxcontrib.mermaid"):
        pytest.importorskip(module, reason="needs the extra `docs`")
    from docs.build.site import build

    assert build(tmp_path) == 0
    client = (tmp_path / "docs" / "sphinx" / "client.html").read_text()
    assert "send_offsets_to_transaction" in client
