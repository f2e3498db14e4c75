"""The pages of docs/benchmarks are views of the JSON lines beside them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from bench import class_tables, devices, mixed_classes, mixed_tables, small_tables, speed_page
from bench.papers import harness, pages, tables
from bench.papers.spec import PaperRun, load_paper

PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"
# What was last run of the pages that have a part of their table: paper, data sets, steps.
PARTS = {
    "images": ("images", ("digits",), None),
    "qsgp": ("qsgp", ("keggdirected",), 2500),
    "gpnn_parts": ("gpnn_parts", ("kin8nm", "elevators", "skillcraft"), None),
    "solvegp_full": ("solvegp", (), None),
}
SIZES = ("-quick", "-full")
WHOLE = (
    "bounds",
    "bounds_minibatches",
    "conv",
    "deep",
    "equal_time",
    "evidence",
    "grief",
    "softki",
    "softki_arms",
    "solvegp",
    "swsgp",
    "swsgp_union",
    "wins",
)


def open_page(page, folder):
    """The run of a committed page in a folder with its JSON lines, and its records."""
    name, datasets, steps = PARTS.get(page, (page, (), None))
    size = "full" if page.endswith("_full") else "small"
    run = PaperRun(load_paper(name), size, folder, steps, datasets)
    shutil.copy(PAGES / f"{page}.jsonl", folder / f"{run.stem}.jsonl")
    for size in SIZES:  # a page of all sizes
        if (others := PAGES / f"{page}{size}.jsonl").is_file():
            shutil.copy(others, folder)
    return run, harness.read_records(run)  # which refuses what cannot be resumed


@pytest.mark.parametrize("page", [*WHOLE, *PARTS])
def test_a_committed_page_is_rebuilt_from_its_lines(page, tmp_path):
    run, records = open_page(page, tmp_path)
    path = pages.write_page(run, records)
    assert path.read_text(encoding="utf-8") == (PAGES / f"{page}.md").read_text(encoding="utf-8")


def test_every_file_of_lines_has_a_page_that_is_rebuilt():
    stems = {re.sub(f"({'|'.join(SIZES)})$", "", path.stem) for path in PAGES.glob("*.jsonl")}
    others = {"small_tables", "class_tables", "mixed_classes", "mixed_tables"}
    others |= {"devices", "large", "speed"}
    assert stems == {*WHOLE, *PARTS, *others}


def test_the_page_on_files_has_the_peaks_of_its_records():
    lines = (PAGES / "large.jsonl").read_text(encoding="utf-8").splitlines()
    peaks = {r["title"]: r["peak"] for r in map(json.loads, lines) if r["num_rows"] == 10**6}
    page = " ".join((PAGES.parent / "large-data.md").read_text(encoding="utf-8").split())
    for title in ("SOLVE-GP", "SoftKI", "GRIEF"):
        assert f"{peaks[title]:.0f} MB ({title}" in page


def test_the_page_of_small_tables_is_a_view_of_its_records():
    records = small_tables.read(PAGES / "small_tables.jsonl")
    assert small_tables.page(records) == (PAGES / "small_tables.md").read_text()
    scores = {(r["data"], r["split"], r["row"]): r for r in records}
    pairs = [
        (r["nlpd"], scores[name, split, "exact"]["nlpd"])
        for (name, split, row), r in scores.items()
        if row == "auto"
    ]
    difference = np.mean([ours - theirs for ours, theirs in pairs])
    line = next(line for line in small_tables.page(records).splitlines() if "| auto |" in line)
    assert f"{difference:+.3f} ±" in line


def test_the_page_of_tables_of_classes_is_a_view_of_its_records():
    records = small_tables.read(PAGES / "class_tables.jsonl")
    assert class_tables.page(records) == (PAGES / "class_tables.md").read_text()
    losses = {(r["data"], r["split"], r["row"]): r["log_loss"] for r in records}
    rows = {row for _, _, row in losses}
    whole = {key[:2] for key in losses if all((*key[:2], row) in losses for row in rows)}
    mean = np.mean([losses[(*key, "LightGBM")] for key in whole])
    line = next(line for line in class_tables.page(records).splitlines() if "| LightGBM |" in line)
    assert f"| {mean:.3f} |" in line


def test_the_page_of_tables_with_categories_is_a_view_of_its_records():
    records = small_tables.read(PAGES / "mixed_tables.jsonl")
    text = (PAGES / "mixed_tables.md").read_text()
    assert mixed_tables.page(records) == text
    assert all(f"{r['nlpd']:.3f}, {r['rmse']:.3f}, {r['coverage']:.3f}" in text for r in records)


def test_the_page_of_classes_with_categories_is_a_view_of_its_records():
    records = small_tables.read(PAGES / "mixed_classes.jsonl")
    text = (PAGES / "mixed_classes.md").read_text()
    assert mixed_classes.page(records) == text
    assert all(f" {r['log_loss']:.4f} |" in text for r in records)


def test_the_page_of_devices_is_a_view_of_its_records():
    records = devices.read(PAGES)
    assert devices.page(records) == (PAGES / "devices.md").read_text()
    gpu = [r for r in records if r["where"] == ["gpu:0", False, False]]
    exact = {r["title"]: r["losses"] for r in records if r["where"] == ["cpu:0", False, False]}
    assert len(gpu) == 38
    rows = {row["model"]: row for row in devices.rows_of(records, "prediction")}
    assert rows["SoftKI(512)"]["gap, GPU 64"] < 1e-12
    assert len(exact) == 17


def test_the_page_of_speed_is_a_view_of_its_records():
    records = speed_page.read(PAGES / "speed.jsonl")
    text = (PAGES / "speed.md").read_text()
    assert speed_page.page(records) == text
    commands = {r["command"] for r in records}
    assert {c for section in speed_page.SECTIONS for c in section["commands"]} == commands
    steps = next(r for r in records if r["command"] == "all --quick")["tables"]["rows"]
    row = next(r for r in steps if r["title"] == "SOLVE-GP(512+512)")
    assert f"| SOLVE-GP(512+512) | {row['milliseconds']:.3g} | {row['ratio']:.3g} |" in text


def test_the_tables_of_the_command_line_are_means_over_splits(tmp_path):
    run, records = open_page("grief", tmp_path)
    header, rows = tables.summary(run, records)
    assert header == ("data set", "model", "splits", "RMSE", "NLPD", "s per split")
    same = [r for r in records if (r["row"], r["dataset"]) == ("type2", "servo")]
    means = [f"{np.mean([r[key] for r in same]):{form}}" for key, form in (("rmse", ".4g"),)]
    assert ("servo", "GRIEF, type II", "10", *means) in [row[:4] for row in rows]
    run, records = open_page("swsgp", tmp_path)
    header, rows = tables.summary(run, records)
    line = next(row for row in rows if row[1].startswith("SVGP-512-32"))
    assert line[:3] == ("flights2013", "SVGP-512-32, from 32 neighbors", "2000")


PUBLISHED = [
    ("0.005 ± 0.000", 0.00549, True),
    ("0.005 ± 0.000", 0.00551, False),
    ("0.20 ± 0.00", 0.2049, True),
    ("1.386 ± 0.14", 1.526, True),
    ("1.386 ± 0.14", 1.5266, False),
    ("35 ± 4", 39.4, True),
    ("0.1 ± 0.2", 0.3, True),
]


def test_published_digits_decide_what_is_reached():
    for published, rmse, reached in PUBLISHED:
        assert tables.reached(published, rmse) is reached


def test_a_row_that_failed_is_shown_as_such(tmp_path):
    run, records = open_page("solvegp", tmp_path)
    records[0] |= {"status": "failed", "message": "Kuu is not positive definite"}
    text = pages.write_page(run, records).read_text()
    assert "| GPflow SVGP 256, whitened | failed | 0.708 |" in text
    failure = "- GPflow SVGP 256, whitened, kin40k, split 0: Kuu is not positive definite"
    assert f"## Failed\n\n{failure}" in text
