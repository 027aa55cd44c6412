"""A sweep of methods over their own settings: its frontier, its canary, and no empty claims."""

from __future__ import annotations

import csv
import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import undrawn_figures
from tests.tiny_sweep import play

from chary.charts import Chart
from chary.errors import InvalidSetting
from chary.report import write_report
from chary.report.measured import Measured, Place
from chary.report.style import Lines, looks_of
from chary.report.tabular.frontier import frontiers_of
from chary.results import load_tables
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import Experiment, Study, Variant
from chary.sweeps.tabular import Algorithm, Conditions

ETA = 0.4
SCRIPTS = Path(__file__).parents[2] / "scripts"


def algorithm(group: str, point: str = "", agent: str = "chary", **options: Any) -> Algorithm:
    label = f"{group}, {point}" if point else group
    return Algorithm(label=label, agent=agent, group=group, point=point, options=options)


def experiment() -> Experiment:
    """Return two scales of UCBVI, two risks of worlds, one without a group, and a canary in a study."""
    return Experiment(
        name="sepsis-worlds",
        conditions=Conditions(
            problem="corridor",
            episodes=40,
            warmup=10,
            seeds=2,
            etas=(ETA,),
            bonus="hoeffding",
            bonus_scale=0.002,
            reward="known",
        ),
        algorithms=(
            algorithm("UCBVI", "c", "ucbvi"),
            algorithm("UCBVI", "c/4", "ucbvi", bonus_scale=0.0005),
            algorithm("worlds", "5 %", bonus="posterior", risk=0.05, worlds=8),
            algorithm("worlds", "1 %", bonus="posterior", risk=0.01, worlds=8),
            Algorithm(label="strict", agent="chary"),
        ),
        studies=(
            Study(
                name="usual-care",
                question="Where does it start?",
                algorithms=(algorithm("canary", agent="canary"), algorithm("UCBVI", "c", "ucbvi")),
                variants=(Variant(label="more warm-up", changes={"warmup": 20}),),
            ),
        ),
    )


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("methods")
    play(SweepFolder(where), experiment())
    write_report(where)
    return where


@pytest.fixture(scope="module")
def charts(sweep: Path) -> dict[str, Chart]:
    lines = Lines(Measured(load_tables(sweep)), looks_of(experiment()))
    return {chart.key: chart for chart in frontiers_of(experiment(), lines)}


def test_a_group_is_one_line_over_its_settings(sweep: Path, charts: dict[str, Chart]) -> None:
    measured = Measured(load_tables(sweep))
    (panel,) = charts["frontier"].panels
    lines = {series.label: series for series in panel.series}
    assert {name: series.marks for name, series in lines.items()} == {
        "UCBVI": ("c", "c/4"),
        "worlds": ("5 %", "1 %"),
        "strict": ("",),
    }
    places = [Place(label, ETA) for label in ("UCBVI, c", "UCBVI, c/4")]
    assert lines["UCBVI"].y == tuple(measured.mean(place, "regret").value for place in places)
    assert lines["UCBVI"].x == tuple(1000 * measured.rate(place).rate for place in places)
    assert len({series.colour for series in panel.series}) == len(panel.series)


def test_no_violation_has_a_place_of_its_own_and_is_not_a_rate(
    charts: dict[str, Chart],
) -> None:
    (panel,) = charts["frontier"].panels
    # 2 runs of 40 episodes: a single violation would be 12.5 per 1,000.
    assert panel.x_zero is not None
    assert panel.x_zero < 1000 / 80
    assert "no violation in 80 episodes, which does not show a rate of 0" in charts["frontier"].caption


def test_a_study_has_a_frontier_of_its_own(charts: dict[str, Chart]) -> None:
    (panel,) = charts["study-usual-care-more-warm-up-frontier"].panels
    assert [series.label for series in panel.series] == ["canary", "UCBVI"]


def test_settings_of_a_group_share_their_colour_and_differ_in_their_dashes() -> None:
    looks = looks_of(experiment())
    assert looks["UCBVI, c"].colour == looks["UCBVI, c/4"].colour != looks["worlds, 5 %"].colour
    assert len(set(looks.values())) == len(looks)


def test_the_frontier_is_a_table_with_every_setting(sweep: Path) -> None:
    with (sweep / "report" / "tables" / "frontier.csv").open(encoding="utf-8") as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file) if row["study"] == "main"}
    assert [(row["group"], row["point"]) for row in rows.values()] == [
        ("UCBVI", "c"),
        ("UCBVI", "c/4"),
        ("worlds", "5 %"),
        ("worlds", "1 %"),
        ("strict", ""),
    ]
    measured = Measured(load_tables(sweep))
    place = Place("UCBVI, c", ETA)
    share = measured.column(place, "deviating_steps").sum() / measured.column(place, "steps").sum()
    assert float(rows["UCBVI, c"]["deviating_share"]) == share > 0


def test_a_sweep_without_the_paper_s_algorithm_has_no_claims(sweep: Path) -> None:
    text = (sweep / "report" / "index.html").read_text(encoding="utf-8")
    assert 'id="claim-' not in text
    assert '<section id="claims"' not in text
    assert 'href="#claims"' not in text
    # No rule here leans on the gaps that the paper assumes to be small.
    assert '<section id="assumptions"' not in text
    assert not (sweep / "report" / "tables" / "claims.csv").exists()
    assert json.loads((sweep / "report" / "claims.json").read_text())["claims"] == []


def test_a_page_begins_with_the_frontier(sweep: Path) -> None:
    text = (sweep / "report" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<(?:section|figure) id="([^"]+)"', text)[:3] == [
        "figures",
        "figure-frontier",
        "figure-regret",
    ]
    assert text.index('id="figure-violations"') < text.index('<section id="summary"')


def test_algorithms_without_a_role_differ_in_their_colours_and_are_compared_with_the_first(
    tmp_path: Path,
) -> None:
    names = ("mine", "yours", "hers", "his", "ours", "theirs")
    several = tuple(Algorithm(label=name, agent="baseline") for name in names)
    looks = looks_of(replace(experiment(), algorithms=several, studies=()))
    assert len({look.colour for look in looks.values()}) == len(names)
    two = tuple(Algorithm(label=name, agent=agent) for name, agent in (("mine", "chary"), ("yours", "ucbvi")))
    folder = SweepFolder(tmp_path)
    play(folder, replace(experiment(), algorithms=two, studies=()))
    with undrawn_figures():
        page = write_report(tmp_path)
    with (page.parent / "tables" / "differences.csv").open(encoding="utf-8") as file:
        assert [(row["algorithm"], row["less"]) for row in csv.DictReader(file)] == [("yours", "mine")]
    text = page.read_text(encoding="utf-8")
    assert "was broken by mine in" in text or "No algorithm broke even the smallest budget" in text
    assert "2 seeds decide nothing" in text


def test_what_a_canary_promises_is_not_taken_for_a_budget(sweep: Path) -> None:
    measured = Measured(load_tables(sweep))
    place = Place("canary", ETA, "usual-care", "more warm-up")
    assert measured.standing(place).about == "coin"
    assert measured.text(place, "standing") == "certified per run (0.9), before the coin"
    promises = json.loads((sweep / "report" / "claims.json").read_text())["promises"]
    (told,) = [each for each in promises if each["of"].startswith("canary")]
    assert "before its coin is tossed" in told["standing"]["in_words"]


def test_a_canary_is_reported_by_its_coin(sweep: Path) -> None:
    with (sweep / "report" / "tables" / "canary.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    measured = Measured(load_tables(sweep))
    losses = measured.column(Place("canary", ETA, "usual-care", "more warm-up"), "canary_max_loss")
    assert float(row["max_loss"]) == losses.max() <= ETA
    assert row["breaches"] == "0"
    page = (sweep / "report" / "index.html").read_text(encoding="utf-8")
    assert re.search(r"runs with a promotion</th>", page)


def test_findings_are_looked_up_in_the_kept_tables(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    keep, findings = (importlib.import_module(name) for name in ("keep_reproduction", "worlds_findings"))
    assert findings.worlds(tmp_path) == ""
    kept = keep.main(sweep, tmp_path)
    text = findings.worlds(tmp_path)
    assert "## The paper's claims" not in (kept / "README.md").read_text()
    regret = Measured(load_tables(sweep)).mean(Place("worlds, 1 %", ETA), "regret").value
    assert f"| worlds | 1 % | {regret:.3g} (" in text
    assert "![Regret against violations" in text
    assert (kept / "figures" / "frontier.png").is_file()
    assert "no episode did, and the largest such loss was" in text


def test_pieces_of_a_reproduction_are_joined_where_they_play_the_same(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    keep, join = (importlib.import_module(name) for name in ("keep_reproduction", "join_reproduction"))
    kept = keep.main(sweep, tmp_path)
    tables = [kept / "tables" / f"{name}.csv" for name in ("frontier", "summary")]
    whole = [keep.rows_of(path) for path in tables]
    for path, rows in zip(tables, whole, strict=True):
        join.write_rows(path, [row for row in rows if row["algorithm"] != "worlds, 1 %"])
    provenance = json.loads((kept / "provenance.json").read_text())
    run, another = list(provenance["results"])[:2]
    provenance["results"][run] = None
    (kept / "provenance.json").write_text(json.dumps(provenance))
    join.main(sweep, kept)
    assert [keep.rows_of(path) for path in tables] == whole
    assert "| worlds, 1 % |" in (kept / "README.md").read_text()
    provenance = json.loads((kept / "provenance.json").read_text())
    assert provenance["results"][run] is not None
    provenance["results"][another] = "0" * 64
    (kept / "provenance.json").write_text(json.dumps(provenance))
    with pytest.raises(SystemExit, match="must have the same SHA-256, got 1 of"):
        join.main(sweep, kept)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"point": "c"}, "'group' must be given with point 'c', got ''."),
        ({"group": 3}, "'group' must be a text, got 3."),
        ({"group": "a", "point": 0.05}, "'point' must be a text, got 0.05."),
    ],
)
def test_a_point_without_a_line_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(said)):
        Algorithm(label="x", agent="ucbvi", **given)
