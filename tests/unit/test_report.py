"""The report of a small sweep: all parts are there, nothing is loaded from elsewhere, verdicts keep rules."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.tiny_sweep import play, tiny_experiment

from chary.errors import InvalidData, InvalidSetting
from chary.report import write_report
from chary.report.charts_of import charts_of, looks_of
from chary.report.claims import (
    NOT_COMPARABLE,
    NOT_MEASURED,
    NOT_REPRODUCED,
    REPRODUCED,
    VERDICTS,
    Claim,
    Facts,
    answer_claims,
    say,
)
from chary.report.measured import Measured, Place
from chary.report.page import PAGE_LIMIT
from chary.results import Estimate, Tables, load_tables
from chary.runner.folder import SweepFolder
from chary.runner.toml import parse_experiment

CHARTS = {
    "regret",
    "violations",
    "frontier",
    "deficit",
    "deficit-over-time",
    "exploring",
    "chain-lengths",
    "chain-parts",
    "ratio",
    "scaling",
    "coverage",
    "study-scale",
    "study-prior",
    "study-chains",
    "runtime",
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("sweep")
    play(SweepFolder(where), tiny_experiment())
    return where


@pytest.fixture(scope="module")
def page(sweep: Path) -> Path:
    return write_report(sweep)


def own_part(page: Path) -> str:
    """The page without its scripts, of which plotly.js names many addresses that it never asks for."""
    return re.sub(r"<script.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_page_has_every_figure_and_stays_small(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(page.read_bytes()) < PAGE_LIMIT
    assert set(re.findall(r'<figure id="figure-([^"]+)"', text)) == CHARTS
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, flags=re.DOTALL)
    assert found is not None
    assert {figure["key"] for figure in json.loads(found.group(1).replace("<\\/", "</"))} == CHARTS


def test_figures_say_what_they_show_and_panels_at_which_budget(sweep: Path) -> None:
    charts = {chart.key: chart for chart in charts_of(tiny_experiment(), Measured(load_tables(sweep)))}
    assert charts["regret"].title == "Cumulative regret"
    assert [panel.title for panel in charts["regret"].panels] == ["η = 0.05", "η = 0.4"]
    assert len({chart.title for chart in charts.values()}) == len(charts)
    assert all(chart.caption and panel.y_label for chart in charts.values() for panel in chart.panels)
    # At the end of its line, the mean over both seeds.
    runs = load_tables(sweep).runs.filter(
        (pl.col("study") == "main") & (pl.col("algorithm") == "UCBVI") & (pl.col("budget") == 0.4)
    )
    ends = {series.label: series.y[-1] for series in charts["regret"].panels[1].series}
    assert ends["UCBVI"] == pytest.approx(runs["regret"].to_numpy().mean())


def test_every_figure_is_there_as_png_and_pdf(page: Path) -> None:
    names = {path.name for path in (page.parent / "figures").iterdir()}
    assert names == {f"{key}.{kind}" for key in CHARTS for kind in ("png", "pdf")}
    for link in re.findall(r'href="([^"#:]+)"', own_part(page)):
        assert (page.parent / link).is_file(), link


def test_the_page_loads_nothing_from_elsewhere(page: Path) -> None:
    own = own_part(page)
    assert "Content-Security-Policy" in own
    assert "default-src 'none'" in own
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", own)
    assert "@import" not in own
    assert "url(" not in own


def test_texts_of_users_are_not_taken_for_html(page: Path) -> None:
    own = own_part(page)
    assert "A &lt;tiny&gt; sweep" in own
    assert "<tiny>" not in own
    assert "a &lt;machine&gt;" in own
    assert "chary sweep tiny.toml --out &#x27;a &amp; b&#x27;" in own


def test_the_experiment_can_be_run_again_from_the_report(page: Path) -> None:
    text = (page.parent / "experiment.toml").read_text(encoding="utf-8")
    assert [each.spec.id for each in parse_experiment(text).plan()] == [
        each.spec.id for each in tiny_experiment().plan()
    ]


def test_small_tables_say_what_the_runs_say(page: Path, sweep: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((page.parent / "tables" / "summary.csv").read_text())))
    runs = load_tables(sweep).runs
    for row in rows:
        same = runs.filter(
            (pl.col("study") == row["study"])
            & (pl.col("variant") == row["variant"])
            & (pl.col("algorithm") == row["algorithm"])
            & (pl.col("budget") == float(row["budget"]))
        )
        assert len(same) == int(row["seeds"]) == 2
        assert float(row["regret"]) == pytest.approx(same["regret"].mean())
        assert int(row["violations"]) == same["violations"].sum()
    differences = list(csv.DictReader(io.StringIO((page.parent / "tables" / "differences.csv").read_text())))
    ours = next(row for row in differences if (row["algorithm"], row["less"]) == ("ours", "paper's variant"))
    here = runs.filter((pl.col("study") == "main") & (pl.col("budget") == float(ours["budget"])))
    means = {
        label: here.filter(pl.col("algorithm") == label)["regret"].to_numpy().mean()
        for label in ("ours", "paper's variant")
    }
    assert float(ours["regret"]) == pytest.approx(means["ours"] - means["paper's variant"])


def test_claims_are_written_with_their_rules(page: Path) -> None:
    claims = json.loads((page.parent / "claims.json").read_text(encoding="utf-8"))["claims"]
    assert {claim["verdict"] for claim in claims} <= set(VERDICTS)
    assert all(claim["rule"] and claim["answer"] for claim in claims)
    assert len({claim["key"] for claim in claims}) == len(claims)
    assert {claim["key"][0] for claim in claims} == set("abcdefg")


def test_a_report_is_rebuilt_with_the_same_bytes(page: Path, sweep: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {
            str(path.relative_to(page.parent)): path.read_bytes()
            for path in sorted(page.parent.rglob("*"))
            if path.is_file()
        }

    first = contents()
    (page.parent / "figures" / "gone.png").write_bytes(b"of an earlier report")
    assert write_report(sweep) == page
    assert contents() == first


def test_what_is_not_finished_is_listed(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "sweep")
    experiment = tiny_experiment()
    done = play(folder, experiment, leave_out=12)
    left = [each.spec.id for each in experiment.plan() if each.spec.id not in done]
    folder.note_failed(left[0], "Traceback\nValueError: the <reason>")
    own = own_part(write_report(folder.path, tmp_path / "elsewhere"))
    assert "This sweep is not complete: 1 failed" in own
    assert all(run in own for run in left)
    assert "ValueError: the &lt;reason&gt;" in own
    assert (tmp_path / "elsewhere" / "index.html").is_file()
    assert not (folder.path / "report").exists()


def test_a_sweep_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.claim(tiny_experiment(), "chary sweep")
    with pytest.raises(InvalidSetting, match="must hold a finished run"):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()


def test_files_of_others_are_not_touched(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidSetting, match="which holds other files"):
        write_report(sweep, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_run_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    run, *_ = play(folder, tiny_experiment(), leave_out=30)
    (tmp_path / "runs" / run / "result.npz").write_bytes(b"")
    with pytest.raises(InvalidData, match=run):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()


def test_a_library_that_is_missing_is_named(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(InvalidSetting, match=r"'plotly' must be installed.*chary\[report\]"):
        write_report(sweep)


def test_algorithms_look_the_same_everywhere_and_differ_from_each_other(sweep: Path) -> None:
    experiment = tiny_experiment()
    looks = looks_of(experiment)
    assert len(set(looks.values())) == len(looks)
    for chart in charts_of(experiment, Measured(load_tables(sweep))):
        for panel in chart.panels:
            for series in panel.series:
                if series.label in looks and series.kind != "points":
                    assert (series.colour, series.dash) == looks[series.label]


def test_a_single_seed_still_makes_a_report(tmp_path: Path) -> None:
    play(SweepFolder(tmp_path), tiny_experiment(seeds=1, episodes=30, etas=[0.4], studies=[]))
    own = own_part(write_report(tmp_path))
    assert not re.findall(r"\b(?:nan|inf)\b", own)
    assert NOT_COMPARABLE in own


def test_a_study_alone_makes_a_report_too(tmp_path: Path) -> None:
    play(SweepFolder(tmp_path), tiny_experiment(episodes=30), study="chains")
    own = own_part(write_report(tmp_path))
    assert "This sweep is not complete" in own
    assert {"study-chains", "runtime"} == set(re.findall(r'<figure id="figure-([^"]+)"', own))


FACTS = Facts(
    horizon=20, states=6, actions=6, delta=0.1, span=1.0, diameter="holds", diameter_says="It holds."
)
POINTS = np.arange(100, 10_001, 100)


def synthetic(**runs: dict[float, dict[str, Any]]) -> Measured:
    """Tables of made-up runs: by role, by budget, the power of N, and columns of `runs`; five seeds each."""
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for role, budgets in runs.items():
        study = "chains" if "study" in next(iter(budgets.values())) else "main"
        for budget, given in budgets.items():
            for seed in range(5):
                keys = {
                    "study": study,
                    "variant": "" if study == "main" else "corridor",
                    "algorithm": role,
                    "role": role,
                    "budget": budget,
                    "seed": seed,
                    "run": f"{role}{budget}{seed}",
                }
                regret = given.get("factor", 1.0) * (1 + 0.01 * seed) * POINTS ** given.get("power", 0.5)
                early = given.get("early", regret[9] / 1000)
                rows.append(
                    keys
                    | {
                        "episodes": 10_000,
                        "regret": float(regret[-1]),
                        "regret_first_half": float(regret[49]),
                        "regret_second_half": float(regret[-1] - regret[49]),
                        "regret_early_slope": float(early),
                        "regret_late_slope": float((regret[-1] - regret[-11]) / 1000),
                        "violations": given.get("violations", 0),
                        "violation_rate": given.get("violations", 0) / 10_000,
                        "exploring_steps": given.get("steps", 100) + seed,
                        "chains_finished": given.get("chains", 10),
                        "chain_exhausted": 50,
                        "chain_long_max": given.get("long", 3),
                        "chains_within_missed_bound": given.get("within", 10),
                        "chains_within_length_bound": given.get("within", 10),
                    }
                )
                for i, episode in enumerate(POINTS):
                    curves.append(
                        keys
                        | {
                            "episode": int(episode),
                            "regret": float(regret[i]),
                            "chain_episodes": float(given.get("lengths", (10.0, 2.0))[int(i >= 50)]),
                            "chains_finished": 1,
                        }
                    )
    return Measured(Tables(pl.DataFrame(rows), pl.DataFrame(curves)))


def answers(measured: Measured, facts: Facts = FACTS) -> dict[str, Claim]:
    return {claim.key: claim for claim in answer_claims(measured, facts)}


def both(**given: Any) -> dict[float, dict[str, Any]]:
    return {0.1: dict(given), 0.4: dict(given)}


def test_a_sweep_that_is_as_the_paper_says_reproduces_it() -> None:
    found = answers(
        synthetic(
            unconstrained={0.1: {"violations": 2000}, 0.4: {"violations": 500}},
            conservative=both(violations=300),
            paper={
                # 1/eta of excess: 3 beyond UCBVI's 1 at 0.1, a quarter of that at 0.4.
                0.1: {"factor": 4.0, "early": 100.0},
                0.4: {"factor": 1.75, "early": 100.0},
            },
            ours=both(factor=0.5, steps=10_000),
        )
    )
    for key in ("a1", "a2", "b1", "b2", "b3", "b4", "d1", "d2", "d3", "d4", "d6", "d7", "d8", "f1", "g1"):
        assert found[key].verdict == REPRODUCED, found[key].answer
    # √N is not linear at the start, the lemma's bound is beyond all episodes, and no chains were off.
    assert found["c1"].verdict == NOT_REPRODUCED
    assert found["d5"].verdict == NOT_COMPARABLE
    assert found["e1"].verdict == NOT_MEASURED
    assert found["d8"].numbers[0]["slope"] == pytest.approx(-1.0)
    assert found["g1"].numbers[0]["algorithm"] == "ours"


def test_a_sweep_that_is_not_as_the_paper_says_does_not() -> None:
    found = answers(
        synthetic(
            unconstrained=both(power=0.3),
            conservative=both(),
            paper=both(power=1.0, violations=400, long=5, within=8, lengths=(5.0, 5.0)),
            ours=both(power=1.0, steps=50, violations=20),
        )
    )
    for key in (
        "a1",
        "a2",
        "b1",
        "b2",
        "b3",
        "b4",
        "c1",
        "d1",
        "d2",
        "d3",
        "d4",
        "d6",
        "d7",
        "d8",
        "f1",
        "g1",
    ):
        assert found[key].verdict == NOT_REPRODUCED, found[key].answer
    assert "UCBVI broke no budget" in found["b2"].answer


def test_one_budget_against_it_is_enough() -> None:
    paper = {0.1: {"violations": 0}, 0.4: {"violations": 400}}
    claim = answers(synthetic(paper=paper))["b1"]
    assert [finding.fits for finding in claim.findings] == [True, False]
    assert claim.verdict == NOT_REPRODUCED


def test_a_rate_is_not_compared_with_one_that_has_not_begun_to_fall() -> None:
    claim = answers(synthetic(unconstrained=both(power=1.0), paper=both(power=1.0)))["a1"]
    assert claim.verdict == NOT_COMPARABLE


def test_linear_then_flat_regret_is_recognised() -> None:
    measured = synthetic(paper={0.1: {"power": 0.9, "early": 10.0}})
    assert answers(measured)["c1"].verdict == REPRODUCED


def test_lemmas_that_assume_what_is_not_so_are_not_comparable() -> None:
    facts = Facts(
        horizon=20,
        states=6,
        actions=6,
        delta=0.1,
        span=1.0,
        diameter="fails",
        diameter_says="The diameter is infinite.",
    )
    found = answers(synthetic(paper=both()), facts)
    for key in ("d3", "d4"):
        assert found[key].verdict == NOT_COMPARABLE
        assert "The diameter is infinite." in found[key].answer


def test_chains_off_are_compared_with_chains() -> None:
    linear = {0.4: {"power": 1.0, "study": True}}
    root = {0.4: {"power": 0.5, "study": True}}
    assert answers(synthetic(naive=linear, ours=root))["e1"].verdict == REPRODUCED
    assert answers(synthetic(naive=root, ours=root))["e1"].verdict == NOT_REPRODUCED


def test_absent_data_are_said_to_be_absent() -> None:
    found = answers(synthetic(baseline=both()))
    assert {claim.verdict for claim in found.values()} == {NOT_MEASURED}
    assert found["a1"].answer == "Needs an algorithm with role paper and one with role unconstrained."


def test_places_without_common_seeds_are_not_compared() -> None:
    measured = synthetic(paper=both(), unconstrained=both())
    runs = measured.tables.runs
    apart = runs.filter(
        ((pl.col("role") == "paper") & (pl.col("seed") < 2))
        | ((pl.col("role") != "paper") & (pl.col("seed") >= 2))
    )
    measured = Measured(Tables(apart, measured.tables.curves))
    assert measured.difference(Place("paper", 0.1), Place("unconstrained", 0.1), "regret") is None


def test_numbers_are_said_with_their_intervals() -> None:
    assert say(Estimate(1234.5, 1000.0, 2000.0)) == "1,234 (1,000 to 2,000)"
    assert say(Estimate(1e-14, -1e-15, 0.5)) == "0 (0 to 0.5)"
    assert say(Estimate(float("nan"), 0.0, 0.0)) == "unknown"
