"""The job file of the documentation."""

from pathlib import Path

from barnabas.pipeline.jobs.reading import read_job

ROOT = Path(__file__).parents[4]


def test_the_example_of_the_documentation_is_correct():
    file = read_job(ROOT / "docs" / "examples" / "orders.yaml")
    assert file.job.last_view == "totals"
    assert file.job.unique_columns == ["id", "at"]
    assert not file.job.keeps_all
