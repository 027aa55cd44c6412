"""The report of a small sweep: all parts are there, nothing is loaded from elsewhere, verdicts keep rules."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.tiny_sweep import ETAS, play, tiny_experiment

import chary.report as report_module
from chary.errors import InvalidData, InvalidSetting
from chary.report import write_report
from chary.report.claims import (
    NOT_COMPARABLE,
    NOT_MEASURED,
    NOT_REPRODUCED,
    REPRODUCED,
    VERDICTS,
    Claim,
    say,
)
from chary.report.measured import Measured, Place
from chary.report.page import PAGE_LIMIT
from chary.report.style import looks_of
from chary.report.tabular.charts import charts_of
from chary.report.tabular.claims import Facts, answer_claims
from chary.results import Tables, load_tables
from chary.statistics import Estimate
from chary.storage.files import DRAFT, write_file
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import Study, Variant
from chary.sweeps.tabular import Algorithm
from chary.sweeps.toml import parse_experiment

SCRIPTS = Path(__file__).parents[2] / "scripts"

CHARTS = {
    "regret",
    "violations",
    "violations-incumbent",
    "baseline-value",
    "frontier",
    "deficit",
    "deficit-over-time",
    "exploring",
    "deviating",
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


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with one study alone: drawing the figures of a report is what takes time."""
    where = tmp_path_factory.mktemp("study")
    play(SweepFolder(where), tiny_experiment(episodes=30), study="chains")
    return where


def own_part(page: Path) -> str:
    """The page without its scripts, of which plotly.js names many addresses that it never asks for."""
    return re.sub(r"<script.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_page_has_every_figure_and_stays_small(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(page.read_bytes()) < PAGE_LIMIT
    assert set(re.findall(r'<figure id="figure-([^"]+)"', text)) == CHARTS
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, flags=re.DOTALL)
    assert found is not None
    assert {figure["key"] for figure in json.loads(found.group(1).replace("<\\/", "</"))["charts"]} == CHARTS


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
    assert "chary sweep tiny.toml --out &#39;a &amp; b&#39;" in own


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
        assert float(row["signed_deficit"]) == pytest.approx(same["signed_deficit_mean"].mean())
        assert float(row["signed_deficit_low"]) <= float(row["signed_deficit"])
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


def test_the_claims_are_one_folded_table(page: Path) -> None:
    own = own_part(page)
    claims = json.loads((page.parent / "claims.json").read_text(encoding="utf-8"))["claims"]
    folded = own.partition('<details class="claims">')[2].partition("</section>")[0]
    assert re.findall(r'<tr id="claim-([^"]+)"', folded) == [claim["key"] for claim in claims]
    assert own.index('<section id="figures"') < own.index('<section id="claims"')


def test_a_report_is_rebuilt_with_the_same_bytes(study: Path, tmp_path: Path) -> None:
    page = write_report(study, tmp_path / "report")

    def contents() -> dict[str, bytes]:
        return {
            str(path.relative_to(page.parent)): path.read_bytes()
            for path in sorted(page.parent.rglob("*"))
            if path.is_file()
        }

    first = contents()
    (page.parent / "figures" / "gone.png").write_bytes(b"of an earlier report")
    mark = page.parent / "report-files.json"
    told = json.loads(mark.read_text())
    assert set(told["files"]) == set(first) - {mark.name}
    mark.write_text(json.dumps({**told, "files": [*told["files"], "figures/gone.png"]}))
    assert write_report(study, page.parent) == page
    assert contents() == first


@pytest.mark.usefixtures("undrawn")
def test_what_is_not_finished_is_listed(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "sweep")
    experiment = tiny_experiment(episodes=30)
    done = play(folder, experiment, leave_out=2, study="chains")
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
    with pytest.raises(InvalidSetting, match="must contain a finished run"):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    "theirs",
    [
        "thesis.txt",
        "figures/holiday.png",
        "tables/accounts.csv",
        "claims.json",
        "index.html",
        "experiment.toml",
        "report-files.json",
    ],
)
def test_files_of_others_are_not_touched(sweep: Path, tmp_path: Path, theirs: str) -> None:
    (tmp_path / theirs).parent.mkdir(exist_ok=True)
    (tmp_path / theirs).write_text("years of work")
    with pytest.raises(InvalidSetting, match=f"which contains other files, such as '{theirs}'"):
        write_report(sweep, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / theirs]
    assert (tmp_path / theirs).read_text() == "years of work"


def test_a_file_put_into_a_report_stops_its_rebuilding(page: Path, sweep: Path) -> None:
    before = page.read_bytes()
    theirs = page.parent / "figures" / "notes.png"
    theirs.write_bytes(b"of somebody")
    try:
        with pytest.raises(InvalidSetting, match=r"'figures/notes.png'"):
            write_report(sweep)
        assert theirs.read_bytes() == b"of somebody"
        assert page.read_bytes() == before
    finally:
        theirs.unlink()


@pytest.mark.usefixtures("undrawn")
def test_a_report_that_was_interrupted_is_finished(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report"

    def killed(files: Mapping[Path, bytes]) -> None:
        # A process that is killed while it renames leaves some files, and drafts of others.
        for path, content in list(files.items())[:5]:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
            (path.parent / f"{DRAFT}abc").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(report_module, "write_files", killed)
    with pytest.raises(KeyboardInterrupt):
        write_report(study, out)
    assert not (out / "index.html").exists()
    assert len(list(out.rglob("*.*"))) > 3
    monkeypatch.undo()
    assert write_report(study, out).read_bytes() == write_report(study, tmp_path / "at once").read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_a_mark_that_points_elsewhere_removes_nothing(study: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("kept")
    out = tmp_path / "report"
    out.mkdir()
    listed = ["../precious.txt", "figures/../../precious.txt", str(tmp_path / "precious.txt")]
    (out / "report-files.json").write_text(json.dumps({"made_by": "chary report", "files": listed}))
    write_report(study, out)
    assert (tmp_path / "precious.txt").read_text() == "kept"


def test_a_damaged_run_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    run, *_ = play(folder, tiny_experiment(), leave_out=30)
    (tmp_path / "runs" / run / "result.npz").write_bytes(b"")
    with pytest.raises(InvalidData, match=run):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()


def test_a_library_that_is_missing_is_named(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(InvalidSetting, match=r"needs plotly\. Run: pip install 'chary\[report\]'"):
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


@pytest.mark.usefixtures("undrawn")
def test_a_study_alone_makes_a_report_too(study: Path, tmp_path: Path) -> None:
    own = own_part(write_report(study, tmp_path / "report"))
    assert "This sweep is not complete" in own
    assert {"study-chains", "runtime"} == set(re.findall(r'<figure id="figure-([^"]+)"', own))


FACTS = Facts(
    horizon=20, states=6, actions=6, delta=0.1, span=1.0, diameter="holds", diameter_says="It holds."
)
POINTS = np.arange(100, 10_001, 100)


def synthetic(seeds: int = 5, **runs: dict[float, dict[str, Any]]) -> Measured:
    """Tables of made-up runs: by role, by budget, the power of N, and columns of `runs`.

    A list stands for one number a seed; without a list of factors, regret differs a little by seed.
    """
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for role, budgets in runs.items():
        study = next(iter(budgets.values())).get("study", "main")
        for budget, given in budgets.items():
            for seed in range(seeds):

                def of(name: str, otherwise: Any, given: dict[str, Any] = given, seed: int = seed) -> Any:
                    value = given.get(name, otherwise)
                    return value[seed] if isinstance(value, list) else value

                keys = {
                    "study": study,
                    "variant": "" if study == "main" else "corridor",
                    "algorithm": role,
                    "role": role.split("_")[0],
                    "budget": budget,
                    "seed": seed,
                    "run": f"{role}{budget}{seed}",
                }
                regret = of("factor", 1.0) * (1 + 0.01 * seed) * POINTS ** of("power", 0.5)
                early = of("early", regret[9] / 1000)
                left = of("unfinished", 0)
                rows.append(
                    keys
                    | {
                        "episodes": 10_000,
                        "regret": float(regret[-1]),
                        "regret_first_half": float(regret[49]),
                        "regret_second_half": float(regret[-1] - regret[49]),
                        "regret_early_slope": float(early),
                        "regret_late_slope": float((regret[-1] - regret[-11]) / 1000),
                        "violations": of("violations", 0),
                        "violation_rate": of("violations", 0) / 10_000,
                        "exploring_steps": of("steps", 100) + seed,
                        "deviating_steps": of("deviating", 50),
                        "chains_finished": of("chains", 10),
                        "chains_unfinished": left,
                        "chains_unfinished_episodes": 700 * left,
                        "chains_unfinished_oldest": 700 if left else None,
                        "chain_exhausted": of("exhausted", 50),
                        "chain_long_max": of("long", 3),
                        "chains_within_missed_bound": of("within", 10),
                        "chains_within_length_bound": of("within", 10),
                    }
                )
                for i, episode in enumerate(POINTS):
                    curves.append(
                        keys
                        | {
                            "episode": int(episode),
                            "regret": float(regret[i]),
                            "chain_episodes": float(of("lengths", (10.0, 2.0))[int(i >= 50)]),
                            "chains_finished": 1,
                            "chains_born": 1 + int(left > 0 and i == of("born", 99)),
                        }
                    )
    runs_table = pl.DataFrame(rows, schema_overrides={"chains_unfinished_oldest": pl.Int64})
    return Measured(Tables(runs_table, pl.DataFrame(curves)))


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
            chosen=both(factor=0.5, steps=10_000),
        )
    )
    for key in (
        "a1",
        "a2",
        "b1",
        "b2",
        "b3",
        "b4",
        "d1",
        "d2",
        "d3",
        "d4",
        "d6",
        "d7",
        "d8",
        "f1",
        "f2",
        "g1",
    ):
        assert found[key].verdict == REPRODUCED, found[key].answer
    # √N is not linear at the start, the lemma's bound is beyond all episodes, and no chains were off.
    assert found["c1"].verdict == NOT_REPRODUCED
    assert found["d5"].verdict == NOT_COMPARABLE
    assert found["e1"].verdict == NOT_MEASURED
    assert found["d8"].numbers[0]["slope"] == pytest.approx(-1.0)
    assert all("5 seeds" in finding.words for claim in found.values() for finding in claim.findings)


def test_a_sweep_that_is_not_as_the_paper_says_does_not() -> None:
    paper = {"power": 1.0, "violations": 400, "long": 5, "within": 8, "lengths": (5.0, 5.0)}
    found = answers(
        synthetic(
            unconstrained=both(power=0.3),
            conservative=both(),
            paper={0.1: paper, 0.4: {**paper, "factor": 2.0}},
            ours=both(power=1.0, steps=50, violations=20),
            chosen=both(power=1.0, steps=50, violations=20),
        )
    )
    keys = "a1 a2 b1 b2 b3 c1 d1 d2 d3 d4 d6 d7 d8 f1 f2 g1"
    for key in keys.split():
        assert found[key].verdict == NOT_REPRODUCED, found[key].answer
    assert "UCBVI broke no budget" in found["b2"].answer


def test_one_budget_against_it_is_enough() -> None:
    paper = {0.1: {"violations": 0}, 0.4: {"violations": 400}}
    claim = answers(synthetic(paper=paper))["b1"]
    assert [finding.fits for finding in claim.findings] == [True, False]
    assert claim.verdict == NOT_REPRODUCED


def test_a_budget_that_most_runs_broke_is_not_kept() -> None:
    # One violation in 10,000 episodes is a small rate; but the budget is promised for whole runs, and 4 of 5
    # runs broke it.
    rare = [1, 1, 1, 1, 0]
    found = answers(
        synthetic(
            unconstrained=both(violations=2000),
            paper=both(factor=4.0, violations=rare),
            ours=both(factor=0.5, steps=10_000, violations=rare),
            chosen=both(factor=0.5, steps=10_000, violations=rare),
        )
    )
    for key in ("b1", "b5", "f1", "f2", "g1"):
        assert found[key].verdict == NOT_REPRODUCED, (key, found[key].answer)
        assert "4 of 5 runs" in found[key].answer
    # Two of five are not most, but more than delta promises may still be true.
    some = answers(synthetic(paper=both(violations=[1, 1, 0, 0, 0])))
    assert some["b1"].verdict == REPRODUCED
    assert some["b5"].verdict == NOT_COMPARABLE


def test_the_promise_of_a_run_is_a_binomial_over_runs() -> None:
    claim = answers(synthetic(seeds=40, paper=both()))["b5"]
    assert claim.verdict == REPRODUCED, claim.answer
    row = claim.numbers[0]
    assert (row["failures"], row["runs"], row["delta"]) == (0, 40, 0.1)
    # Clopper and Pearson: 0 of 40 runs.
    assert row["high"] == pytest.approx(1 - 0.025 ** (1 / 40))
    # Ten runs without a failure do not show that at most a tenth fail.
    assert answers(synthetic(seeds=10, paper=both()))["b5"].verdict == NOT_COMPARABLE


def test_a_study_may_ask_for_the_same_claims_under_its_conditions() -> None:
    measured = synthetic(
        unconstrained=both(violations=2000),
        paper=both(violations=400),
        unconstrained_best=both(violations=2000, study="best"),
        paper_best=both(factor=4.0, study="best"),
    )
    found = {claim.key: claim for claim in answer_claims(measured, FACTS, ["best"])}
    assert found["b1"].verdict == NOT_REPRODUCED
    assert found["b1-best"].verdict == REPRODUCED, found["b1-best"].answer
    assert (found["b1"].where, found["b1-best"].where) == ("", "corridor")
    # Claims that look at all studies themselves are answered once.
    assert not {"e1-best", "g1-best"} & found.keys()
    assert answers(measured)["b1"] == found["b1"]


def test_few_seeds_give_no_verdict() -> None:
    runs = {
        "unconstrained": {0.1: {"violations": 2000}, 0.4: {"violations": 500}},
        "conservative": both(violations=300),
        "paper": {0.1: {"factor": 4.0}, 0.4: {"factor": 1.75}},
        "ours": both(factor=0.5, steps=10_000),
        "chosen": both(factor=0.5, steps=10_000),
    }
    for claim in answers(synthetic(seeds=4, **runs)).values():
        assert claim.verdict in (NOT_COMPARABLE, NOT_MEASURED), claim.key
        assert all("4 seeds (too few seeds to decide)" in finding.words for finding in claim.findings)


@pytest.mark.parametrize("key", ["a1", "d6", "d7", "f1", "g1"])
def test_an_interval_that_contains_the_threshold_decides_nothing(key: str) -> None:
    # By the mean alone each of these would fit, or not: but one seed of five makes it.
    powers = [0.4, 0.4, 0.4, 0.4, 0.85]
    found = answers(
        synthetic(
            unconstrained=both(),
            paper={0.1: {"power": powers}, 0.4: {"power": powers, "factor": 1.1}},
            ours=both(steps=10_000, power=[0.41, 0.39, 0.41, 0.39, 0.85]),
            chosen=both(power=[0.5, 0.4, 0.55, 0.5, 0.45]),
        )
    )
    assert found[key].verdict == NOT_COMPARABLE, found[key].answer
    assert "undecided" in found[key].answer


def test_violations_in_one_seed_alone_are_not_a_proof() -> None:
    # 30 of 50,000 episodes: an interval over episodes would be far from 0, that over runs is not.
    found = answers(
        synthetic(
            unconstrained={0.1: {"violations": [30, 0, 0, 0, 0]}, 0.4: {"violations": 0}},
            paper=both(),
        )
    )
    for key in ("b2", "b4"):
        assert found[key].verdict == NOT_COMPARABLE
        assert "the interval contains 0" in found[key].answer
    # No algorithm broke the larger budget.
    assert found["b2"].findings[1].words.endswith("(no algorithm broke it: nothing to compare)")


def test_without_violations_there_is_nothing_to_compare() -> None:
    found = answers(synthetic(unconstrained=both(), conservative=both(), paper=both()))
    for key in ("b2", "b3", "b4"):
        assert found[key].verdict == NOT_COMPARABLE
        assert "no algorithm broke it" in found[key].answer
    assert "cannot be wrong" in found["b4"].rule


def test_no_violation_among_few_episodes_is_not_almost_never() -> None:
    # Over runs the interval has no width; 0 of 250 episodes may still be one in 70.
    measured = synthetic(paper=both())
    few = measured.tables.runs.with_columns(pl.lit(50).alias("episodes"))
    claim = answers(Measured(Tables(few, measured.tables.curves)))["b1"]
    assert claim.verdict == NOT_COMPARABLE


def test_unfinished_chains_are_stated_and_may_reverse_a_verdict() -> None:
    sure = answers(synthetic(paper=both(chains=100, within=100, unfinished=1)))
    for key in ("d2", "d3", "d4"):
        assert sure[key].verdict == REPRODUCED
    for key in ("d1", "d2", "d3", "d4", "d5"):
        assert "5 chains unfinished, the oldest for 700 episodes" in sure[key].answer
    assert "lower bounds" in sure["d5"].answer
    # All ten finished ones keep the bounds; with two more that may not, it is 83 %.
    unsure = answers(synthetic(paper=both(unfinished=2)))
    for key in ("d3", "d4"):
        assert unsure[key].verdict == NOT_COMPARABLE
        assert "unfinished chains could reverse it" in unsure[key].answer
    # Born at the beginning of the last fifth and not finished since: no longer 2 episodes in the mean.
    late = answers(synthetic(paper=both(unfinished=1, born=80)))["d1"]
    assert late.verdict == NOT_COMPARABLE
    assert "could reverse it" in late.answer


def test_unfinished_chains_may_have_exhausted_the_budget_too() -> None:
    facts = Facts(
        horizon=1, states=1, actions=1, delta=0.1, span=1.0, diameter="holds", diameter_says="It holds."
    )
    # The bound is 24 sqrt(log(5 * 10,000 / 0.1) * 10,000) / 20 = 435.
    for given, verdict in (
        ({"exhausted": 400}, REPRODUCED),
        ({"exhausted": 400, "unfinished": 1}, NOT_COMPARABLE),
        ({"exhausted": 500, "unfinished": 1}, NOT_REPRODUCED),
    ):
        claim = answers(synthetic(paper={20.0: given}), facts)["d5"]
        assert claim.verdict == verdict, claim.answer


def test_results_that_are_the_same_at_all_budgets_say_nothing_about_budgets() -> None:
    found = answers(synthetic(unconstrained=both(), paper=both(factor=2.0)))
    for key in ("a2", "d8"):
        assert found[key].verdict == NOT_COMPARABLE
        assert "the same at" in found[key].answer
    told = "“paper” are the same, number for number, at η = 0.1 and 0.4 in all 5 seeds"
    assert told in found["a2"].answer
    assert told in found["d8"].answer
    for key in ("a1", "b1", "c1", "d1", "d6", "d7"):
        assert "the same results at η = 0.1 and 0.4 in all 5 seeds" in found[key].answer
    # UCBVI's are the same runs, which is no finding.
    assert "“unconstrained” are the same" not in str(found)
    mostly = {0.1: {"factor": [2.0] * 5}, 0.4: {"factor": [2.0, 2.0, 2.0, 2.0, 1.9]}}
    found = answers(synthetic(unconstrained=both(), paper=mostly))
    assert "η = 0.1 and 0.4 in at least 4 of 5 seeds" in found["d8"].answer
    assert found["d8"].verdict == NOT_COMPARABLE


def test_only_settings_chosen_elsewhere_are_judged() -> None:
    ours = synthetic(unconstrained=both(), ours=both(factor=0.5))
    claim = answers(ours)["g1"]
    assert claim.verdict == NOT_MEASURED
    assert "Only a description" in claim.answer
    assert "ours at η = 0.1 and 0.4" in claim.answer
    study = {"study": "chosen"}
    facts = Facts(
        horizon=20,
        states=6,
        actions=6,
        delta=0.1,
        span=1.0,
        diameter="holds",
        diameter_says="It holds.",
        questions={"chosen": "Does what was chosen on seeds 1000 to 1003 hold?"},
    )
    measured = synthetic(
        unconstrained=both(factor=0.1),
        unconstrained_there={0.1: study},
        chosen={0.1: {**study, "factor": 0.5}},
    )
    claim = answers(measured, facts)["g1"]
    # Against UCBVI of the same study, not against that of the main one, which is better.
    assert claim.verdict == REPRODUCED, claim.answer
    assert "seeds 0 to 4" in claim.answer
    assert "chosen on seeds 1000 to 1003" in claim.answer


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
    linear = {0.4: {"power": 1.0, "study": "chains"}}
    root = {0.4: {"power": 0.5, "study": "chains"}}
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


def test_intervals_of_two_seeds_do_not_hide_the_means(sweep: Path) -> None:
    charts = {chart.key: chart for chart in charts_of(tiny_experiment(), Measured(load_tables(sweep)))}
    panels = charts["regret"].panels
    largest = max(value for panel in panels for series in panel.series for value in series.y)
    assert {panel.y_top for panel in panels} == {1.5 * largest}
    assert "cut at the edge" in charts["regret"].caption
    for panel in charts["scaling"].panels:
        for series in panel.series:
            assert all(low >= y / 10 for low, y in zip(series.low, series.y, strict=False))


def test_studies_show_every_budget_that_they_share(tmp_path: Path) -> None:
    experiment = tiny_experiment(episodes=30)
    studies = tuple(
        replace(study, variants=tuple(Variant(label=each.label, changes={**each.changes, "etas": ETAS})
                                      for each in study.variants))
        for study in experiment.studies
    )  # fmt: skip
    experiment = replace(experiment, studies=studies)
    play(SweepFolder(tmp_path), experiment)
    charts = {chart.key: chart for chart in charts_of(experiment, Measured(load_tables(tmp_path)))}
    for key in ("study-scale", "study-prior"):
        assert [panel.title for panel in charts[key].panels] == [
            f"η = {eta:g}: {what}"
            for eta in ETAS
            for what in ("regret", "violations per 1,000 episodes", "exploring steps", "deviating steps")
        ]
        assert charts[key].columns == 4


def test_pools_are_shown_against_their_size(tmp_path: Path) -> None:
    tiny = tiny_experiment(episodes=20, etas=[0.4], studies=["chains"])
    labels = {size: f"strict, pool {size}" for size in (1, 10)}
    sized = [
        Algorithm(label=labels[size], agent="chary", role="ours", options={"pool": size}) for size in labels
    ]
    variant = Variant(label="the same", changes={"etas": (0.4,)})
    free = tiny.algorithms[0]
    study = Study(name="pool", algorithms=(free, *sized), variants=(variant,))
    experiment = replace(tiny, studies=(study,))
    play(SweepFolder(tmp_path), experiment)
    measured = Measured(load_tables(tmp_path))
    (chart,) = (each for each in charts_of(experiment, measured) if each.key == "study-pool")
    lines = {series.label: series for series in chart.panels[0].series}
    assert (lines["strict"].x, lines["UCBVI"].x) == ((1.0, 10.0), (1.0, 10.0))
    places = [Place(label, 0.4, "pool", "the same") for label in (*labels.values(), "UCBVI")]
    one, ten, without = (measured.mean(place, "regret").value for place in places)
    assert lines["strict"].y == pytest.approx((one, ten))
    assert lines["UCBVI"].y == pytest.approx((without, without))


@pytest.mark.usefixtures("undrawn")
def test_a_chosen_setting_is_judged_on_the_page(tmp_path: Path) -> None:
    chosen = Algorithm(label="chosen one", agent="chary", role="chosen")
    ours = Algorithm(label="ours", agent="chary", role="ours")
    study = Study(
        name="chosen",
        question="Chosen on seeds 1000 to 1003, judged here.",
        algorithms=(Algorithm(label="UCBVI", agent="ucbvi", role="unconstrained"), chosen),
        variants=(Variant(label="as chosen", changes={"etas": (0.4,)}),),
    )
    experiment = replace(tiny_experiment(seeds=5, episodes=30), algorithms=(ours,), studies=(study,))
    play(SweepFolder(tmp_path), experiment, study="chosen")
    page = write_report(tmp_path)
    claims = json.loads((page.parent / "claims.json").read_text(encoding="utf-8"))["claims"]
    found = next(claim for claim in claims if claim["key"] == "g1")
    assert found["verdict"] != NOT_MEASURED
    assert "Study “chosen”: Chosen on seeds 1000 to 1003, judged here." in found["answer"]
    assert "chosen on other seeds" in own_part(page)
    # It looks like one of ours, and not like the first.
    looks = looks_of(experiment)
    assert looks["chosen one"] != looks["ours"]


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_reproduction_is_kept_and_replaced_as_a_whole(page: Path, sweep: Path, tmp_path: Path) -> None:
    assert page.is_file()
    within = tmp_path / "reproductions"
    target = script("keep_reproduction").main(sweep, within)
    first = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert {path.name for path in target.iterdir()} == {
        "README.md", "claims.json", "experiment.toml", "figures", "provenance.json", "tables"
    }  # fmt: skip
    (target / "figures" / "gone.png").write_bytes(b"of an earlier report")
    assert script("keep_reproduction").main(sweep, within) == target
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == first
    assert [path.name for path in within.iterdir()] == ["tiny"]


def test_a_reproduction_is_not_touched_where_there_is_no_report(tmp_path: Path) -> None:
    play(SweepFolder(tmp_path / "sweep"), tiny_experiment(episodes=30), study="chains")
    earlier = tmp_path / "reproductions" / "tiny" / "README.md"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("of last year")
    with pytest.raises(SystemExit, match="must contain a whole report"):
        script("keep_reproduction").main(tmp_path / "sweep", tmp_path / "reproductions")
    assert earlier.read_text() == "of last year"


@pytest.mark.parametrize("name", ["", "..", "../elsewhere", "a/b", ".hidden", "/tmp"])
def test_a_reproduction_stays_within_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemExit, match="must be that of a folder within"):
        script("keep_reproduction").target_of(name, tmp_path)


def test_a_reproduction_does_not_replace_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit, match=r"thesis\.txt"):
        script("keep_reproduction").target_of("tiny", tmp_path)


def test_settings_are_chosen_on_seeds_of_their_own(tmp_path: Path) -> None:
    tiny = tiny_experiment(episodes=60, etas=[0.4], studies=["scale"])
    by_factor = [Variant(label=f"scale {f:g}", changes={"bonus_scale_factor": f}) for f in (0.25, 50.0)]
    selection = replace(
        tiny,
        name="tiny-selection",
        studies=(replace(tiny.studies[0], algorithms=(), variants=tuple(by_factor)),),
    )
    # The factor multiplies the scale of the main runs.
    assert {p.spec.options["bonus_scale"] for p in selection.plan()} == {0.0002, 0.0002 * 0.25, 0.0002 * 50}
    play(SweepFolder(tmp_path / "sweep"), selection)
    study = """
[[studies]]
name = "best"
algorithms = ["UCBVI"]

[[studies.variants]]
label = "best"
bonus_scale_factor = 1.0 # UCBVI's best

[[studies]]
name = "chosen"

# begin chosen: written by scripts/choose_settings.py
# end chosen
"""
    experiments = tmp_path / "experiments"
    experiments.mkdir()
    target = experiments / "tiny.toml"
    target.write_text(replace(tiny, studies=()).to_toml().replace("studies = []", "") + study)
    regret = (
        load_tables(tmp_path / "sweep").runs.group_by("algorithm", "variant").agg(pl.col("regret").mean())
    )
    best = regret.filter(pl.col("algorithm") == "UCBVI").sort("regret")["variant"][0]
    script("choose_settings").main(tmp_path / "sweep", experiments)
    written = parse_experiment(target.read_text())
    assert written.studies[0].variants[0].changes == {
        "bonus_scale_factor": float(best.split()[-1]) if best else 1.0
    }
    (chosen,) = written.studies[1].algorithms
    assert (chosen.label, chosen.role) == ("chary, chosen", "chosen")
