"""The command line: what is printed where, with which exit code, and what is written."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import chary
from chary.agents import AGENTS, make_agent
from chary.cli import app, main, terminal
from chary.errors import CharyError, InvalidSetting, UnknownName
from chary.presets import NAMES, parse, preset
from chary.simulation.references import references
from chary.storage.result_folder import ResultFolder

# What `chary run --json` prints at least.
PROMISED = (
    "problem agent rule charge pool clock data bonus bonus_scale standing eta delta episodes warmup seed "
    "regret violations max_true_deficit max_deficit exploring_steps chains_started chains_finished "
    "chains_abandoned chains_blocked value_coverage_failures bonus_coverage_failures "
    "charge_coverage_failures seconds episodes_per_second version"
).split()
QUICK = ("--episodes", "3", "--warmup", "2")
BOXES = re.compile("[\u2500-\u257f]")


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        assert self.err == ""
        assert self.out.count("\n") == 1
        found = json.loads(self.out, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
        assert isinstance(found, dict)
        return found


Cli = Callable[..., Answer]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: str) -> Answer:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Answer(left.value.code, out, err)

    return call


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from chary.cli import main; main()", *arguments]


# chary run


def test_run_prints_one_json_object_with_every_promised_key(cli: Cli) -> None:
    found = cli("run", "riverswim", *QUICK, "--json").json()
    assert [key for key in PROMISED if key not in found] == []
    assert (found["problem"], found["agent"], found["episodes"], found["warmup"]) == (
        "riverswim",
        "chary",
        3,
        2,
    )
    assert found["version"] == chary.__version__


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_runs_and_answers_with_the_same_keys(cli: Cli, agent: str) -> None:
    found = cli("run", "riverswim", "--agent", agent, *QUICK, "--json").json()
    assert found["agent"] == agent
    assert [key for key in PROMISED if key not in found] == []


def test_the_same_seed_answers_the_same_and_another_one_differently(cli: Cli) -> None:
    def answer(seed: str) -> dict[str, Any]:
        found = cli("run", "riverswim", "--agent", "random", *QUICK, "--seed", seed, "--json").json()
        return {key: value for key, value in found.items() if "second" not in key and key != "seed"}

    assert answer("1") == answer("1")
    assert answer("1") != answer("2")


def test_options_left_out_come_from_the_preset_and_given_ones_win(cli: Cli) -> None:
    usual = preset("corridor")
    found = cli("run", "corridor", "--episodes", "2", "--json").json()
    for key in ("warmup", "eta", "bonus", "reward", "delta"):
        assert found[key] == getattr(usual, key)
    options = (
        "--eta 0.2 --rule capped --step-bound 0.05 --after-refusal close --charge paper --pool 3 "
        "--clock meta --data meta --patience 4 --bonus hoeffding --bonus-scale 0.5 --reward estimated "
        "--delta 0.2 --seed 9"
    )
    found = cli("run", "corridor", *QUICK, *options.split(), "--json").json()
    given = zip(options.split()[::2], options.split()[1::2], strict=True)
    for option, value in given:
        assert str(found[option[2:].replace("-", "_")]) == value
    assert cli("run", "corridor", *QUICK, "--chains", "off", "--json").json()["chains"] is False


def test_every_option_of_every_agent_is_on_the_command_line(cli: Cli) -> None:
    text = cli("run", "--help").out
    known = {field.name for spec in AGENTS.values() for field in fields(spec)}
    assert [name for name in known if f"--{name.replace('_', '-')} " not in text] == []


def test_both_drivers_give_the_same_numbers(cli: Cli) -> None:
    compiled, stepwise = (
        cli("run", "riverswim", *QUICK, "--driver", driver, "--json").json()
        for driver in ("compiled", "step")
    )
    assert [key for key in compiled if "second" not in key and compiled[key] != stepwise[key]] == []


def test_infinity_is_null_in_json_and_told_apart_from_no_budget(cli: Cli) -> None:
    found = cli("run", "riverswim", *QUICK, "--eta", "inf", "--json").json()
    assert found["eta"] is None
    assert found["eta_infinite"] is True
    assert found["violations"] == 0
    assert cli("run", "riverswim", *QUICK, "--json").json()["eta_infinite"] is False


def test_a_prior_is_read_from_a_file_or_the_problem(cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "right.npy", np.ones(6, dtype=int))
    (tmp_path / "right.csv").write_text("1\n" * 6)
    calls = [
        cli(
            "run",
            "riverswim",
            "--agent",
            "frozen",
            *QUICK[:2],
            *("--warmup", "0", "--prior", prior),
            "--json",
        ).json()
        for prior in ("none", str(tmp_path / "right.npy"), str(tmp_path / "right.csv"))
    ]
    # Nothing is known without a warm-up: the prior alone decides whether to swim right.
    assert calls[0]["regret"] != calls[1]["regret"] == calls[2]["regret"]
    assert cli("run", "sepsis", *QUICK, "--prior", "recorded", "--json").json()["problem"] == "sepsis"


def test_actions_and_horizon_change_the_problem(cli: Cli) -> None:
    every = cli("run", "sepsis", "--agent", "random", *QUICK, "--actions", "all", "--json").json()
    admissible = cli("run", "sepsis", "--agent", "random", *QUICK, "--json").json()
    assert every["regret"] != admissible["regret"]
    short = cli("run", "riverswim", "--agent", "random", *QUICK, "--horizon", "1", "--json").json()
    assert short["mean_return"] <= 1.0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--bonus", "kl"), "Certified per run: with probability at least 0.9 no episode has an expected"),
        ((), "Credible per episode: under the prior and given the data, with probability at least 0.99"),
        (("--rule", "paper"), "no true gap of a baseline exceeds 0.15;"),
        (("--rule", "capped", "--step-bound", "0.1"), "no true gap of a baseline exceeds 0.1;"),
        (
            ("--bonus", "bernstein"),
            "scale 1 of bonus bernstein, outside its calibration: calibrated with bonus hoeffding",
        ),
        (("--agent", "ucbvi"), "No budget is promised."),
    ],
)
def test_without_json_there_is_a_table_and_the_standing_in_words(
    cli: Cli, options: tuple[str, ...], word: str
) -> None:
    answer = cli("run", "riverswim", *QUICK, *options, "--verbose")
    assert (answer.code, answer.err) == (0, "")
    assert word in answer.out
    assert re.search(r"^regret +\d+(\.\d+)?$", answer.out, re.MULTILINE)
    assert "\x1b" not in answer.out
    assert not BOXES.search(answer.out)


HEADLINE = re.compile(
    r"regret [\d.,e-]+ \(baseline [\d.,e-]+, UCBVI [\d.,e-]+\); "
    r"0 of 1,200 episodes over budget; credible at 0\.1 %"
)


def test_the_first_line_compares_regret_and_tells_budget_and_standing(cli: Cli) -> None:
    long = ("run", "riverswim", "--episodes", "1200", "--seed", "1000")
    headline, *rest = cli(*long).out.splitlines()
    assert HEADLINE.fullmatch(headline)
    assert not [line for line in rest if line.startswith("chains_started")]
    alone = cli(*long, "--no-references").out.splitlines()[0]
    assert alone == re.sub(r" \(.*?\)", "", headline)


def test_references_are_the_runs_of_their_own_commands(cli: Cli) -> None:
    """The baseline alone is the same agent with rule closed, and UCBVI has the preset's bounds."""
    one = ("run", "corridor", *QUICK, "--seed", "4", "--json")
    found = cli(*one).json()["references"]
    assert found["baseline"] == cli(*one, "--rule", "closed", "--no-references").json()["regret"]
    assert found["ucbvi"] == cli(*one, "--agent", "ucbvi", "--no-references").json()["regret"]
    assert cli(*one, "--no-references").json()["references"] is None


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_references_of_which_none_explores(agent: str) -> None:
    own = make_agent(agent, eta=0.2)
    found = references(own, "kl", 1.0)
    assert list(found) == ["baseline", "ucbvi"]
    assert found["baseline"].options()["rule"] in ("closed", None)
    assert (found["baseline"].reward, found["ucbvi"].ties) == (own.reward, own.ties)


@pytest.mark.parametrize(
    ("options", "bonus"),
    [
        ("", "posterior"),
        ("--charge quantile", "posterior"),
        ("--charge paper", "kl"),
        ("--rule paper", "kl"),
        ("--data meta", "kl"),
        ("--delta 0.2", "kl"),
        ("--coverage everywhere", "kl"),
        ("--check-every 2", "kl"),
        ("--charge paper --bonus l1", "l1"),
    ],
)
def test_options_of_bounds_select_bounds(cli: Cli, options: str, bonus: str) -> None:
    one = ("run", "riverswim", *QUICK, "--no-references", *options.split(), "--json")
    assert cli(*one).json()["bonus"] == bonus


def test_patience_may_be_none_on_the_command_line(cli: Cli) -> None:
    one = ("run", "riverswim", *QUICK, "--no-references", "--json")
    assert cli(*one).json()["patience"] == 100
    assert cli(*one, "--patience", "none").json()["patience"] is None
    answer = cli(*one, "--patience", "never")
    assert (answer.code, answer.out) == (2, "")
    assert "must be a whole number, got 'never'" in answer.err


def test_a_calibrated_scale_is_played_as_it_was_calibrated(cli: Cli) -> None:
    """The preset's own length and budget are those of posterior worlds."""
    usual = preset("riverswim")
    scaled = usual.under("hoeffding")
    assert (scaled.episodes, scaled.warmup) != (usual.episodes, usual.warmup)
    one = ("run", "riverswim", "--bonus", "hoeffding", "--episodes", "4", "--no-references", "--json")
    found = cli(*one).json()
    assert (found["warmup"], found["eta"], found["patience"]) == (scaled.warmup, scaled.eta, None)
    assert [each for each in found["standing"]["given"] if "outside its calibration" in each] == [
        f"scale {found['bonus_scale']:.6g} of bonus hoeffding, outside its calibration: calibrated for "
        f"{scaled.episodes:,} episodes, played 4"
    ]


def test_a_run_that_stops_exploring_says_so(cli: Cli) -> None:
    """A run of benchmarks/patience.py: after 400 episodes 100 chains waited for what no budget affords."""
    one = ("run", "corridor", "--eta", "0.45", "--risk", "0.001", "--seed", "1000", "--episodes", "900")
    stalled = cli(*one, "--no-references", "--patience", "none").out
    assert "Exploration stalled: nothing was explored after episode " in stalled
    assert "100 of 100 chains were waiting at the end. Set a smaller --patience." in stalled
    assert "stalled" not in cli(*one, "--no-references").out


def test_a_calibrated_capped_run_says_both_weaknesses(cli: Cli) -> None:
    few = ("--episodes", "3", "--warmup", "2")
    command = ("run", "sepsis", "--rule", "capped", "--step-bound", "0.05", *few)
    answer = cli(*command)
    assert (answer.code, answer.err) == (0, "")
    assert f"scale {preset('sepsis').bonus_scale('hoeffding'):.6g} of bonus hoeffding" in answer.out
    assert "gaps <= step bound: no true gap of a baseline exceeds 0.05" in answer.out
    standing = cli(*command, "--json").json()["standing"]
    assert standing["level"] in ("calibrated", "uncertified")
    assert [each.split(":")[0] for each in standing["given"]][1] == "gaps <= step bound"


# Files


def test_out_holds_summary_table_and_arrays_that_agree(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    found = cli("run", "riverswim", *QUICK, "--out", str(out), "--json").json()
    assert sorted(os.listdir(out)) == ["episodes.csv", "run.json", "run.npz"]
    assert json.loads((out / "run.json").read_text()) == found
    with (out / "episodes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["episode"] for row in rows] == ["0", "1", "2"]
    with np.load(out / "run.npz") as arrays:
        for name in rows[0]:
            if name != "episode":
                np.testing.assert_array_equal([float(row[name]) for row in rows], arrays[name].astype(float))
        assert float(arrays["regret"].sum()) == found["regret"]


def test_results_of_an_earlier_run_are_kept_unless_told_otherwise(cli: Cli, tmp_path: Path) -> None:
    cli("run", "riverswim", *QUICK, "--out", str(tmp_path), "--json").json()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "mine.txt").write_text("not chary's")
    answer = cli("run", "riverswim", *QUICK, "--seed", "1", "--out", str(tmp_path), "--json")
    assert answer.code == 2
    assert "episodes.csv, run.npz, run.json" in answer.err
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())
    again = cli(
        "run", "riverswim", *QUICK, "--seed", "1", "--out", str(tmp_path), "--overwrite", "--json"
    ).json()
    assert json.loads((tmp_path / "run.json").read_text()) == again
    assert (tmp_path / "mine.txt").read_text() == "not chary's"
    assert len(list(tmp_path.iterdir())) == 4


def test_the_same_seed_writes_the_same_bytes(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cli("run", "riverswim", *QUICK, "--out", str(tmp_path / name), "--json").json()
    for file in ("episodes.csv", "run.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_folder_is_gone_again_when_the_work_fails(tmp_path: Path) -> None:
    def work() -> None:
        with ResultFolder(tmp_path / "a" / "b", ["c"]):
            assert (tmp_path / "a" / "b").is_dir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_written_when_one_of_them_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "in the way").mkdir()
    folder = ResultFolder(tmp_path, ["in the way", "good"], overwrite=True)
    with pytest.raises(InvalidSetting, match=r"'out' must be a folder that can be written to"):
        folder.write({"in the way": b"1", "good": b"2"})
    assert [path.name for path in tmp_path.iterdir()] == ["in the way"]


# The other commands


def test_check_answers_in_words_and_in_json(cli: Cli) -> None:
    answer = cli("check", "riverswim", "--eta", "0.1")
    assert (answer.code, answer.err) == (0, "")
    assert [line.split(":")[0] for line in answer.out.splitlines()] == [
        "Assumption 2.2 (ergodicity) fails",
        "Assumption 2.3 (gaps at most 0.05) fails",
    ]
    found = cli("check", "riverswim", "--eta", "inf", "--json").json()
    assert found["assumption_2_3"]["status"] == "holds"
    assert cli("check", "riverswim", "--step-bound", "0.5", "--json").json()["assumption_2_3"]["bound"] == 0.5


def test_problems_lists_all_of_them_with_their_presets(cli: Cli) -> None:
    rows = cli("problems", "--json").json()["problems"]
    assert [row["problem"] for row in rows] == list(NAMES) == list(chary.envs.PROBLEMS)
    assert (rows[1]["states"], rows[1]["pairs"]) == (716, 2238)
    table = cli("problems").out.splitlines()
    assert table[0].split()[:2] == ["problem", "states"]
    assert [line.split()[0] for line in table[1 : len(NAMES) + 1]] == list(NAMES)
    # Those with continuous states follow in a table of their own.
    continuous = cli("problems", "--json").json()["continuous"]
    assert [row["problem"] for row in continuous] == list(chary.envs.CONTINUOUS_IDS)
    assert [line.split()[0] for line in table[len(NAMES) + 4 :]] == list(chary.envs.CONTINUOUS_IDS)
    assert [(row["actions"], row["horizon"]) for row in continuous] == [(4, 200), (3, 200), (5, 96), (6, 30)]


def test_agents_lists_all_of_them_with_their_options(cli: Cli) -> None:
    rows = cli("agents", "--json").json()["agents"]
    assert [row["agent"] for row in rows] == list(AGENTS)
    assert "rule" in rows[0]["options"]
    lines = cli("agents").out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith((" ", "All take"))] == list(AGENTS)
    assert any("calibration" in line for line in lines)
    assert max(map(len, [*lines, *cli("problems").out.splitlines()])) <= 80


def test_version_is_the_installed_one(cli: Cli) -> None:
    assert cli("--version") == Answer(0, f"chary {chary.__version__}\n", "")
    assert metadata.version("chary") == chary.__version__


def test_nothing_to_do_shows_the_help(cli: Cli) -> None:
    assert cli().out == cli("--help").out
    assert cli().code == 0
    listed = {info.name for info in app.registered_commands}
    listed |= {str(group.name) for group in app.registered_groups}
    assert listed == {
        *("run", "check", "calibrate", "bench", "problems", "agents", "demo"),
        *("reproduce", "sweep", "status", "report", "data", "plan", "serve", "audit"),
    }


def test_demo_draws_eight_lines_and_prints_eight_rows(cli: Cli, tmp_path: Path) -> None:
    call = ("demo", "--out", str(tmp_path / "out"), "--episodes", "2")
    answer = cli(*call)
    assert (answer.code, answer.err) == (0, "")
    rows = answer.out.splitlines()
    labels = ["UCBVI", "CUCBVI", "StepMix", "baseline", "paper's", "chary,", "chary,", "worlds,"]
    assert [row.split()[0] for row in rows[1:9]] == labels
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert cli(*call).code == 2
    assert cli(*call, "--overwrite").code == 0


def test_calibrate_finds_a_scale_and_checks_it_for_another_budget(cli: Cli, tmp_path: Path) -> None:
    options = (
        "--bonus bernstein --episodes 20 --warmup 3 --precision 3.9 --workers 1 --bonus-scale 0.05 --json"
    )
    kept = tmp_path / "found.json"
    found = cli("calibrate", "random", *options.split(), "--eta", "2", "--out", str(kept)).json()
    assert json.loads(kept.read_text()) == found
    assert found["standing"] == "calibrated"
    assert found["calibration"]["bonus_scale"] == found["scale"]
    assert [trial["siblings"] for trial in found["trials"]][-1] == "check"
    checked = cli("calibrate", "random", *options.split(), "--eta", "0.5", "--check").json()
    assert len(checked["trials"]) == 1
    assert checked["configuration"]["eta"] == 0.5


# Manners


def test_help_imports_nothing_heavy() -> None:
    """This keeps `--help` well under half a second; a clock would also measure other processes."""
    code = (
        "import sys\n"
        "from chary.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'numpy', 'numba', 'scipy', 'gymnasium', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """Return all that a command prints when stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    variables = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.Popen(
        command(*arguments),
        stdout=theirs,
        stderr=theirs,
        env={**variables, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # Linux: the other end was closed
            break
    os.close(ours)
    assert process.wait() == 0
    return seen.decode()


def test_a_terminal_gets_boxes_and_progress_unless_no_color_is_set() -> None:
    fancy = on_a_terminal("run", "riverswim", *QUICK)
    assert "\x1b[" in fancy
    assert BOXES.search(fancy)
    assert "3/3" in fancy
    plain = on_a_terminal("run", "riverswim", *QUICK, NO_COLOR="1")
    assert "\x1b" not in plain
    assert not BOXES.search(plain)
    assert "regret" in plain
    assert not BOXES.search(on_a_terminal("--help", NO_COLOR="1"))


def test_without_a_terminal_progress_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 9.0, 11.0, 39.0, 42.0, 99.0])
    monkeypatch.setattr(terminal, "monotonic", lambda: next(now))
    with terminal.progress(compiles=False) as bar:
        report = bar("calibrating posterior")
        for done in range(1, 6):
            report(done * 1000, 5000)
    assert capsys.readouterr().err.splitlines() == [
        "calibrating posterior: 2,000 of 5,000 after 11 s",
        "calibrating posterior: 4,000 of 5,000 after 42 s",
    ]


def test_ctrl_c_ends_with_130_one_line_and_nothing_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        command("run", "inventory", "--episodes", "10000000", "--warmup", "1", "--out", str(out), "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not out.exists():
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        printed, complained = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130
    assert printed == ""
    assert complained.endswith("chary: interrupted.\n")
    assert not out.exists()


def test_a_reader_that_leaves_early_is_no_error_worth_a_traceback() -> None:
    process = subprocess.Popen(command("problems"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1


BOOM = """
from chary.cli import app, main
@app.command()
def boom() -> None:
    1 / 0
main()
"""


def test_a_defect_is_one_line_with_the_way_to_its_traceback() -> None:
    quiet = subprocess.run([sys.executable, "-c", BOOM, "boom"], capture_output=True, text=True)
    assert (quiet.returncode, quiet.stdout) == (1, "")
    assert quiet.stderr.startswith("chary: unexpected ZeroDivisionError: division by zero.")
    assert quiet.stderr.count("\n") == 1
    assert "--log-level debug" in quiet.stderr
    loud = subprocess.run(
        [sys.executable, "-c", BOOM, "--log-level", "debug", "boom"], capture_output=True, text=True
    )
    assert "Traceback" in loud.stderr


def test_log_level_info_reports_on_stderr_alone(cli: Cli) -> None:
    answer = cli("--log-level", "info", "run", "riverswim", *QUICK, "--json")
    assert answer.code == 0
    assert answer.err.startswith("INFO chary: chary on riverswim")
    assert json.loads(answer.out)["problem"] == "riverswim"


# Presets


@pytest.mark.parametrize("problem", NAMES)
def test_every_problem_has_a_preset_its_agent_accepts(cli: Cli, problem: str) -> None:
    found = cli("run", problem, *QUICK, "--json").json()
    assert found["bonus"] == preset(problem).bonus
    assert (found["bonus_scale"], found["risk"]) == (None, preset(problem).risk)
    scaled = cli("run", problem, *QUICK, "--bonus", "hoeffding", "--no-references", "--json").json()
    assert scaled["bonus_scale"] == preset(problem).bonus_scale("hoeffding")


PRESET = 'episodes = 5\nwarmup = 1\neta = 0.2\nbonus = "hoeffding"\nreward = "known"\n'


def test_a_calibrated_scale_is_taken_from_the_preset() -> None:
    usual = parse(PRESET + "[scale]\nhoeffding = 0.25\n")
    assert usual.bonus_scale("hoeffding") == 0.25
    assert usual.bonus_scale("bernstein") == 1.0


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (PRESET + "warmpu = 3", UnknownName, "got 'warmpu'"),
        (PRESET + "[scale]\nkl = 0.5", UnknownName, "'scale' must be one of hoeffding, bernstein, got 'kl'"),
        (
            PRESET + "[scale]\nhoeffding = 0",
            InvalidSetting,
            r"'scale.hoeffding' must lie in \(0, inf\), got 0",
        ),
        (PRESET + "scale = 2", InvalidSetting, "'scale' must be a table of factors, got 2"),
        (PRESET.replace("episodes = 5", ""), InvalidSetting, "'episodes' must be given"),
        (PRESET.replace("hoeffding", "hofding"), UnknownName, "Did you mean 'hoeffding'"),
        (PRESET.replace("0.2", "nan"), InvalidSetting, "'eta' must lie in"),
        ("episodes", InvalidSetting, "'preset' must be TOML"),
    ],
)
def test_a_preset_with_a_mistake_is_refused(text: str, error: type[CharyError], message: str) -> None:
    with pytest.raises(error, match=message):
        parse(text)
