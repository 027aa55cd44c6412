"""Logs from every source, and what is said about them: small files, numbers worked by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chary
from chary import CharyUCBVI, Setting, TabularAgent, Transition
from chary.cli import main
from chary.data import (
    Bins,
    Codebook,
    Log,
    inspect,
    load_discretiser,
    read_log,
    read_minari,
    read_observations,
    save_discretiser,
    write_log,
)
from chary.errors import InvalidData, InvalidSetting
from chary.mdp.setting import RewardScale

HEADER = "episode,t,state,action,reward,next_state,terminated\n"
# Two episodes: 0 -> 1 -> 2, which ends it, and 0 -> 0 cut off.
GOOD = HEADER + "4,0,0,1,0.5,1,0\n4,1,1,0,1,2,1\n9,0,0,0,0.1,0,0\n"
SETTING = Setting.declare(n_states=3, n_actions=2, horizon=2)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def same(one: Log, other: Log) -> bool:
    return all(one.columns()[name].tobytes() == other.columns()[name].tobytes() for name in one.columns())


def test_a_csv_file_becomes_episodes(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", GOOD), setting=SETTING)
    assert repr(log) == "Log(2 episodes, 3 transitions, 3 states, 2 actions)"
    assert list(log.episodes()) == [
        [Transition(0, 1, 0.5, 1, False), Transition(1, 0, 1.0, 2, True)],
        [Transition(0, 0, 0.1, 0, False)],
    ]
    assert log.lengths.tolist() == [2, 1]
    assert (log.horizon, log.n_states, log.n_actions, len(log)) == (2, 3, 2, 3)
    assert log.row.tolist() == [2, 3, 4]
    assert log.unit == "row"


def test_a_log_is_read_only(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", GOOD))
    with pytest.raises(ValueError, match="read-only"):
        log.state[0] = 1
    with pytest.raises(AttributeError):
        log.state = log.action  # type: ignore[misc]


def test_a_log_keeps_nothing_of_the_arrays_it_was_given() -> None:
    states = np.array([0, 1])
    columns: dict[str, Any] = {"episode": [0, 0], "t": [0, 1], "action": [0, 0], "reward": [0, 0]}
    log = Log(**columns, state=states, next_state=[1, 1], terminated=[False, False])
    states[0] = 1
    assert log.state.tolist() == [0, 1]


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode("utf-8-sig"),
        GOOD.replace("\n", "\r\n"),
        GOOD + "\n\n",
        GOOD.rstrip("\n"),
        GOOD.replace(",", ", "),
        GOOD.replace(",0\n", ",false\n").replace("2,1\n", "2,True\n"),
        GOOD.replace("4,", "4.0,", 1).replace("0.5", "5e-1"),
        GOOD.replace("0.5", '"0.5"'),
        "\n".join([HEADER.strip(), *reversed(GOOD.strip().split("\n")[1:])]),
        "t,episode,state,action,reward,next_state,terminated\n0,4,0,1,0.5,1,0\n1,4,1,0,1,2,1\n0,9,0,0,.1,0,0\n",
    ],
    ids=[
        "a mark before UTF-8",
        "lines of Windows",
        "blank lines at the end",
        "no last line break",
        "spaces",
        "words",
        "floats",
        "quotes",
        "another order",
        "other columns first",
    ],
)
def test_harmless_differences_between_files_make_none(content: str | bytes, tmp_path: Path) -> None:
    assert same(read_log(written(tmp_path / "a.csv", GOOD)), read_log(written(tmp_path / "b.csv", content)))


def test_rows_are_named_as_in_the_file_however_they_are_sorted(tmp_path: Path) -> None:
    lines = GOOD.strip().split("\n")
    shuffled = "\n".join([lines[0], lines[3], lines[2], lines[1].replace("0.5", "7")])
    with pytest.raises(InvalidData, match=r"'reward' must lie in \[0, 1\], got 7\.0 in row 4\."):
        read_log(written(tmp_path / "log.csv", shuffled), setting=SETTING)


def test_a_file_longer_than_a_chunk_is_read_and_its_mistakes_counted(tmp_path: Path) -> None:
    rows = [f"{k},0,{k % 3},0,{k / 7!r},0,0" for k in range(10_000)]
    log = read_log(written(tmp_path / "a.csv", HEADER + "\n".join(rows)))
    assert log.reward.tolist() == [k / 7 for k in range(10_000)]
    for k in (100, 5000, 9999):
        rows[k] = rows[k].replace(",0,0", ",0,maybe")
    with pytest.raises(InvalidData, match=r"got 'maybe' in row 102 and 2 more rows\."):
        read_log(written(tmp_path / "b.csv", HEADER + "\n".join(rows)))


def test_extra_columns_are_left_aside_when_asked(tmp_path: Path) -> None:
    content = GOOD.replace("reward", "ward,reward").replace(",1,0.5", ",1,A,0.5")
    content = content.replace("1,0,1,2", "1,0,B,1,2").replace("0,0,0.1", "0,0,C,0.1")
    file = written(tmp_path / "log.csv", content)
    assert read_log(file, ignore_extra=True).n_transitions == 3
    with pytest.raises(InvalidData, match="alone, got 'ward' too"):
        read_log(file)


def test_a_log_warms_an_agent_up(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", GOOD), setting=SETTING)
    agent = TabularAgent(CharyUCBVI(eta=0.5), SETTING)
    agent.warm_start(log.episodes())
    counts = log.to_counts(SETTING)
    assert counts.total(0, 1) == 1
    assert counts.successors(0, 0) == {0: 1}
    assert counts.reward_mean(1, 0) == 1.0
    agent.begin(0, 0)
    assert agent.act(0, 0, 0).action in (0, 1)
    with pytest.raises(InvalidData, match="must not be terminal"):
        agent.begin(1, 2)


def test_endings_can_be_given_a_state_of_their_own() -> None:
    columns: dict[str, Any] = {"episode": [0, 1, 1], "t": [0, 0, 1], "state": [0, 0, 1], "action": [0, 0, 0]}
    columns |= {"reward": [0, 0, 0], "next_state": [1, 1, 0], "terminated": [1, 0, 0]}
    log = Log(**columns)
    with pytest.raises(InvalidData, match=r"got a step to such a state, 1, in entry 1 and 1 more entry"):
        log.checked(setting=Setting.declare(n_states=2, n_actions=1, horizon=2), reward_range=None)
    own = log.with_own_ending()
    assert own.next_state.tolist() == [2, 1, 0]
    own.checked(setting=Setting.declare(n_states=3, n_actions=1, horizon=2))
    assert own.with_own_ending(7).next_state.tolist() == [7, 1, 0]


def test_padding_lets_rewards_be_negative_where_episodes_end(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", GOOD.replace("0.5", "-0.5")))
    allowed = [[1, 1], [1, 1], [1, 1], [1, 0]]
    told = Setting.declare(n_states=4, n_actions=2, horizon=4, allowed=allowed, scale=RewardScale(-1.0, 1.0))
    with pytest.raises(InvalidData, match=r"got true in row 3\. Use Setting\.declare\(early_endings=True\)"):
        log.checked(setting=told)
    padded = log.padded(4).checked(setting=told)
    assert padded.state.tolist() == [0, 1, 3, 3, 0]
    assert padded.next_state.tolist() == [1, 3, 3, 3, 0]
    assert padded.reward.tolist() == [-0.5, 1.0, 0.0, 0.0, 0.1]
    assert padded.row.tolist() == [2, 3, 3, 3, 4]
    TabularAgent(CharyUCBVI(eta=0.5), told).warm_start(padded.episodes())
    with pytest.raises(InvalidSetting, match=r"'horizon' must be a whole number >= 2, got 1"):
        log.padded(1)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_is_not_replaced_unasked(suffix: str, tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", GOOD))
    file = tmp_path / f"copy{suffix}"
    write_log(log, file)
    before = file.read_bytes()
    with pytest.raises(InvalidSetting, match="must not exist yet"):
        write_log(log, file)
    write_log(log, file, overwrite=True)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "log.csv"]


def test_parquet_without_polars_says_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = read_log(written(tmp_path / "log.csv", GOOD))
    write_log(log, tmp_path / "log.parquet")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        InvalidSetting, match=r"Parquet, unlike CSV, needs polars\. Run: pip install 'chary\[report\]'"
    ):
        read_log(tmp_path / "log.parquet")
    with pytest.raises(
        InvalidSetting, match=r"Parquet, unlike CSV, needs polars\. Run: pip install 'chary\[report\]'"
    ):
        write_log(log, tmp_path / "other.parquet")
    assert not (tmp_path / "other.parquet").exists()


CONTINUOUS = (
    "episode,t,state_0,state_1,action,reward,next_state_0,next_state_1,terminated\n"
    "0,1,1.5,9,1,1,0.5,9,1\n0,0,0.5,1,0,0,1.5,9,0\n1,0,1.5,1,0,0.25,-3,50,0\n"
)


def test_continuous_observations_become_cells_and_endings_a_state_of_their_own(tmp_path: Path) -> None:
    file = written(tmp_path / "log.csv", CONTINUOUS)
    # Cells: the first dimension below or above 1, the second below or above 5.
    grid = Bins([[0, 1, 2], [0, 5, 10]])
    log = read_log(file, discretiser=grid, n_states=grid.n_states + 1)
    assert log.state.tolist() == [0, 3, 2]
    # The last one is clamped; without termination row 2 would have led to cell 1.
    assert log.next_state.tolist() == [3, 4, 1]


def test_observations_to_fit_to_are_all_that_were_acted_upon_and_the_last_ones(tmp_path: Path) -> None:
    seen = read_observations(written(tmp_path / "log.csv", CONTINUOUS))
    assert seen.tolist() == [[0.5, 1], [1.5, 9], [1.5, 1], [0.5, 9], [-3, 50]]


def test_a_codebook_finds_clusters_whatever_their_units() -> None:
    generator = np.random.default_rng(3)
    # Dimension 1 is in units a thousand times smaller: unscaled, it alone would decide.
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 5000.0], [1.0, 5000.0]])
    which = generator.integers(0, 4, size=400)
    points = corners[which] + generator.normal(size=(400, 2)) * [0.02, 100.0]
    book = Codebook.fit(points, 4, generator=generator)
    cells = book(points)
    assert len(set(zip(which.tolist(), cells.tolist(), strict=True))) == 4
    order = np.lexsort((book.centres[:, 0].round(1), book.centres[:, 1].round(-3)))
    np.testing.assert_allclose(book.centres[order] / [1, 5000], corners / [1, 5000], atol=0.01)


def test_different_generators_give_different_codebooks() -> None:
    points = np.random.default_rng(0).normal(size=(300, 2))
    one, other = (Codebook.fit(points, 9, generator=np.random.default_rng(seed)) for seed in (1, 2))
    assert one.centres.tobytes() != other.centres.tobytes()


def test_a_codebook_is_fitted_to_a_sample_of_many_observations() -> None:
    points = np.random.default_rng(0).normal(size=(500, 1))
    book = Codebook.fit(points, 3, generator=np.random.default_rng(0), sample=50, iterations=2)
    assert book.n_states == 3
    points[:] = 1.0
    with pytest.raises(InvalidData, match="got 3 for 1"):
        Codebook.fit(points, 3, generator=np.random.default_rng(0))


@pytest.mark.parametrize(
    "saved", [Bins([[0, 1, np.inf], [-1, 1]], outside="refuse"), Codebook([[0.1], [2.0]])]
)
def test_a_saved_discretiser_is_the_same(saved: Bins | Codebook, tmp_path: Path) -> None:
    save_discretiser(saved, tmp_path / "saved.npz")
    again = load_discretiser(tmp_path / "saved.npz")
    assert type(again) is type(saved)
    for name, array in saved.to_arrays().items():
        np.testing.assert_array_equal(array, again.to_arrays()[name])


class Parity:
    """A discretiser of one's own."""

    n_states = 2

    def __call__(self, observations: Any, /) -> Any:
        return np.asarray(observations)[:, 0].astype(int) % self.n_states


def test_anything_with_states_that_can_be_called_discretises(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", CONTINUOUS), discretiser=Parity())
    assert log.state.tolist() == [0, 1, 1]
    assert log.next_state.tolist() == [1, 2, 1]


def minari_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observations: Any, space: Any) -> Any:
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    from gymnasium.spaces import Discrete
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffers = [
        EpisodeBuffer(
            id=k,
            observations=seen,
            actions=[1, 0],
            rewards=[0.5, 1.0],
            terminations=[False, k == 0],
            truncations=[False, k == 1],
        )
        for k, seen in enumerate(observations)
    ]
    return minari.create_dataset_from_buffers(
        "chary/test-v0",
        buffer=buffers,
        observation_space=space,
        action_space=Discrete(2),
        data_format="hdf5",
        algorithm_name="test",
        author="chary",
        author_email="chary@example.org",
        code_permalink="none",
        description="Two short episodes.",
    )


@pytest.mark.filterwarnings("ignore")
def test_a_minari_dataset_becomes_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = pytest.importorskip("gymnasium.spaces")
    dataset = minari_dataset(tmp_path, monkeypatch, [[0, 1, 2], [0, 0, 1]], spaces.Discrete(3))
    for given in (dataset, "chary/test-v0"):
        log = read_minari(given, setting=SETTING)
        assert list(log.episodes()) == [
            [Transition(0, 1, 0.5, 1, False), Transition(1, 0, 1.0, 2, True)],
            [Transition(0, 1, 0.5, 0, False), Transition(0, 0, 1.0, 1, False)],
        ]
        assert log.unit == "transition"
    with pytest.raises(
        InvalidData, match=r"'reward' must lie in \[0, 0\.5\], got 1\.0 in transition 1 and 1 more"
    ):
        read_minari(dataset, reward_range=(0.0, 0.5))
    with pytest.raises(
        InvalidData, match=r"'dataset' must be a Minari dataset on this machine, got 'no/such-v0'"
    ):
        read_minari("no/such-v0")


@pytest.mark.filterwarnings("ignore")
def test_a_continuous_minari_dataset_needs_a_discretiser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = pytest.importorskip("gymnasium.spaces")
    box = spaces.Box(0, 1, (2,), dtype=np.float32)
    seen = [np.array(rows, dtype=np.float32) for rows in ([[0, 0], [0, 1], [1, 1]], [[0, 0], [1, 0], [1, 1]])]
    dataset = minari_dataset(tmp_path, monkeypatch, seen, box)
    with pytest.raises(
        InvalidData, match=r"'dataset' must have discrete observations, got float32 of shape \(2,\)"
    ):
        read_minari(dataset)
    log = read_minari(dataset, discretiser=Bins([[0, 0.5, 1], [0, 0.5, 1]]))
    assert log.state.tolist() == [0, 1, 0, 2]
    assert log.next_state.tolist() == [1, 4, 2, 3]


def test_minari_missing_says_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'chary\[minari\]'"):
        read_minari("chary/test-v0")


def test_an_inspection_counts_what_is_there(tmp_path: Path) -> None:
    found = inspect(read_log(written(tmp_path / "log.csv", GOOD)))
    assert (found.episodes, found.transitions, found.terminated_episodes) == (2, 3, 1)
    assert (found.shortest, found.median_length, found.longest, found.horizon_at_least) == (1, 1.5, 2, 2)
    assert (found.states_seen, found.states_acted_in, found.actions_seen) == (3, 2, 2)
    # Acted in states 0 and 1 with two actions: (0, 0), (0, 1) and (1, 0) of four, each once.
    assert (found.pairs_possible, found.pairs_seen, found.pairs_seen_once) == (4, 3, 3)
    assert (found.coverage, found.median_visits) == (0.75, 1.0)
    assert found.least_seen == ((0, 0, 1), (0, 1, 1), (1, 0, 1))
    assert (found.lowest_reward, found.highest_reward) == (0.1, 1.0)
    assert found.mean_return == pytest.approx(0.8)
    assert found.terminal_states == (2,)
    # Nine pairs are allowed by a setting with three states and three actions.
    wide = Setting.declare(n_states=3, n_actions=3, horizon=4)
    assert inspect(read_log(tmp_path / "log.csv"), wide).coverage == pytest.approx(1 / 3)


def suspicions(rows: list[str], tmp_path: Path, setting: Setting | None = None) -> dict[str, tuple[int, ...]]:
    log = read_log(written(tmp_path / "log.csv", HEADER + "\n".join(rows)))
    return {each.kind: each.rows for each in inspect(log, setting).suspicions}


def episode(k: int, rewards: list[float], *, ended: bool = False) -> list[str]:
    last = len(rewards) - 1
    return [
        f"{k},{t},{t},0,{r},{9 if ended and t == last else t + 1},{int(ended and t == last)}"
        for t, r in enumerate(rewards)
    ]


def test_what_looks_odd_is_named_with_its_rows(tmp_path: Path) -> None:
    plain = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert suspicions(episode(0, plain), tmp_path) == {}
    assert suspicions(episode(0, [1, 1, 1]), tmp_path) == {"constant_reward": (2, 3, 4)}
    assert suspicions([*episode(0, plain), *episode(1, plain)], tmp_path) == {"duplicated_episode": (7,)}
    assert suspicions([*episode(0, plain), *episode(1, [*plain[:4], 90])], tmp_path) == {
        "outlier_reward": (11,)
    }
    shorter = suspicions([*episode(0, plain), *episode(1, plain[:4])], tmp_path)
    assert shorter == {"cut_off": (7,)}
    alone = [
        *episode(0, plain, ended=True),
        *episode(1, plain[1:], ended=True),
        *episode(2, [0.3], ended=True),
    ]
    assert suspicions(alone, tmp_path) == {"single_step": (11,)}
    goes_on = [*episode(0, plain), "1,0,0,0,0.2,1,0", "1,1,1,0,0.2,2,1"]
    # State 2 ends episode 1 in row 8; rows 3 and 4 lead to it and from it.
    assert suspicions(goes_on, tmp_path) == {"ending": (3, 4)}
    ranged = Setting.declare(n_states=6, n_actions=1, horizon=5)
    assert suspicions(episode(0, [0.1, 0.2, 0.3, 0.4, 1.1]), tmp_path, ranged) == {"reward_range": (6,)}


def test_a_state_of_any_size_can_be_inspected() -> None:
    large = 2**62
    columns: dict[str, Any] = {"episode": [large], "t": [0], "state": [large], "action": [large]}
    log = Log(**columns, reward=[1.0], next_state=[large], terminated=[False])
    assert inspect(log).least_seen == ((large, large, 1),)


def answer(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        main(arguments.split())
    out, err = capsys.readouterr()
    assert left.value.code == 0, err
    return out


def test_the_command_line_inspects_and_converts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "log.csv", GOOD)
    page = answer("data inspect log.csv", capsys)
    assert "2, of which 1 terminated" in page
    assert "must be at least 2" in page
    assert "Possible mistakes:\n- row 4: the start of an episode that is shorter than the longest" in page
    wider = json.loads(answer("data inspect log.csv --json --states 5 --actions 2 --horizon 9", capsys))
    assert (wider["pairs_possible"], wider["transitions"]) == (10, 3)
    assert [each["kind"] for each in wider["suspicions"]] == ["cut_off"]
    assert answer("data convert log.csv log.parquet", capsys) == "3 transitions of 2 episodes: log.parquet\n"
    told = json.loads(answer("data convert log.parquet again.csv --json", capsys))
    assert told == {"path": "again.csv", "episodes": 2, "transitions": 3}
    assert same(read_log("again.csv"), read_log("log.csv"))
    assert (tmp_path / "again.csv").read_text() == GOOD.replace("0,1,2,1", "0,1.0,2,1")
    answer("data convert log.csv again.csv --overwrite", capsys)


def test_the_command_line_discretises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "raw.csv", CONTINUOUS)
    save_discretiser(Bins([[0, 1, 2], [0, 5, 10]]), "grid.npz")
    answer("data convert raw.csv log.csv --discretiser grid.npz", capsys)
    assert read_log("log.csv").next_state.tolist() == [3, 4, 1]
    assert json.loads(answer("data inspect raw.csv --discretiser grid.npz --json", capsys))["episodes"] == 2


def test_the_module_is_a_public_name() -> None:
    assert chary.data.Log is Log
    assert all(getattr(chary.data, name) is not None for name in chary.data.__all__)
