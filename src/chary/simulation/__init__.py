"""Run an agent on a finite MDP and judge it, compiled or, to compare with, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents import AGENTS
from chary.agents.canary import Canary
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.own import OwnAgent
from chary.agents.protocol import POSTERIOR, AgentSpec
from chary.agents.worlds import WorldsSpec
from chary.arrays import Floats, Ints
from chary.audit import check_value_cap
from chary.callbacks import Callback, play
from chary.errors import MOST_EPISODES, InvalidSetting, check_choice, check_integer, check_seed
from chary.mdp import FiniteMDP
from chary.model.risk_calibration import RiskRecord
from chary.planner._backup import new_scratch
from chary.policies import OwnBaseline
from chary.simulation._blocks import BlockRun, Job
from chary.simulation._calibration import differences_from, nearest_calibration
from chary.simulation._canary_run import CanaryRun
from chary.simulation._compiled import CompiledRun
from chary.simulation._judge import COVERAGES, EVERYWHERE, mean_at_start, new_judge
from chary.simulation._logged import LoggedStart
from chary.simulation._player import FULL, PLANNERS
from chary.simulation._record import new_record
from chary.simulation._worlds_run import WorldsRun
from chary.simulation.run import EPISODE_COLUMNS, STEP_COLUMNS, CanaryLog, ChainLog, Run, Steps, no_chains
from chary.standing import Grounds
from chary.texts import shown

__all__ = ["DRIVERS", "LoggedStart", "Simulation", "simulate"]


DRIVERS = ("compiled", "step")


def simulate(
    mdp: FiniteMDP,
    agent: AgentSpec,
    *,
    episodes: int,
    warmup: int = 0,
    seed: int = 0,
    coverage: Annotated[str, COVERAGES] = "played",
    record_steps: bool = False,
    driver: Annotated[str, DRIVERS] = "compiled",
    planner: Annotated[str, PLANNERS] = "incremental",
    check_every: int = 0,
    progress: Callable[[int, int], None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Let `agent` play `episodes` episodes of `mdp` after a random warm-up, and judge every one of them.

    Args:
        mdp: The problem; the agent learns of it only what `mdp.told` returns.
        agent: What plays, for example `CharyUCBVI(eta=0.2)`.
        episodes: Number of online episodes, >= 1.
        warmup: Number of uniformly random episodes before them, >= 0.
        seed: Random seed.
        coverage: Where bounds are compared with the truth. `played` are explored steps that differ from the
            baseline, `everywhere` is every (t, s, a), which costs about one more plan per episode.
        record_steps: Whether to keep every step, as `run.steps`.
        driver: Execution path; both give identical trajectories. `step` goes through Gymnasium and the step
            API, slowly, as agents of your own always do.
        planner: Planning method of the compiled driver; both give identical plans. `full` is a whole backward
            induction before every episode.
        check_every: Compare every N-th plan with the full pass; 0 means never. What the episode of that plan
            was judged by is compared, too.
        progress: Called now and then with episodes done and episodes in all.
        callbacks: Told of every episode once its block is played, see `chary.callbacks`.

    Raises:
        CharyError: if an option is out of range or does not fit the problem.
        PlannerMismatch: if `check_every` finds a difference, which would be an error in chary.

    Example:
        >>> import chary
        >>> run = simulate(chary.envs.riverswim(), chary.UCBVI(), episodes=3)
        >>> len(run.regret)
        3
    """
    if progress is not None and not callable(progress):
        raise InvalidSetting(f"'progress' must be a function of two numbers, got {shown(progress)}.")
    simulation = Simulation(
        mdp,
        agent,
        episodes=episodes,
        warmup=warmup,
        seed=seed,
        coverage=coverage,
        record_steps=record_steps,
        driver=driver,
        planner=planner,
        check_every=check_every,
    )
    run: Run = play(simulation, callbacks, progress=progress)
    return run


@final
class Simulation:
    """A run of `simulate` in blocks of episodes, which can be watched, stopped and saved.

    The arguments are those of `simulate`. A compiled run can be saved between blocks and resumed by another
    Simulation with the same arguments, in another process: the result is the same to the last bit.
    Calibration passes two more: `logged`, episodes that are learnt from besides the random ones, and `own`,
    the policy that posterior worlds have for their baseline; both with driver `compiled` alone.

    Example:
        >>> import chary
        >>> simulation = Simulation(chary.envs.riverswim(), chary.UCBVI(), episodes=3)
        >>> simulation.start()
        >>> while simulation.done < 3:
        ...     _ = simulation.advance()
        >>> len(simulation.result().regret)
        3
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        agent: AgentSpec,
        *,
        episodes: int,
        warmup: int = 0,
        seed: int = 0,
        coverage: str = "played",
        record_steps: bool = False,
        driver: str = "compiled",
        planner: str = "incremental",
        check_every: int = 0,
        logged: LoggedStart | None = None,
        own: OwnBaseline | None = None,
    ) -> None:
        if not isinstance(mdp, FiniteMDP):
            raise InvalidSetting(
                f"'mdp' must be a FiniteMDP, got {type(mdp).__name__}. Use chary.envs or FiniteMDP."
            )
        if type(agent) not in (*AGENTS.values(), OwnAgent):
            raise InvalidSetting(
                f"'agent' must be one of {', '.join(spec.__name__ for spec in AGENTS.values())}, "
                f"got {type(agent).__name__}. Use chary.OwnAgent for a class of your own."
            )
        check_integer("episodes", episodes, minimum=1, largest=MOST_EPISODES)
        check_integer("warmup", warmup, minimum=0, largest=MOST_EPISODES)
        check_seed(seed)
        if not isinstance(record_steps, bool):
            raise InvalidSetting(f"'record_steps' must be True or False, got {shown(record_steps)}.")
        check_choice("coverage", coverage, COVERAGES)
        check_choice("driver", driver, DRIVERS)
        check_choice("planner", planner, PLANNERS)
        if isinstance(agent, OwnAgent):
            driver = DRIVERS[1]
        check_integer("check_every", check_every, minimum=0)
        if check_every and (driver != DRIVERS[0] or planner == PLANNERS[FULL]):
            raise InvalidSetting(
                f"'check_every' must be 0 with driver {driver!r} and planner {planner!r}, which make the "
                f"full pass themselves, got {check_every}. Use driver 'compiled' and planner 'incremental'."
            )
        if isinstance(agent, WorldsSpec):
            agent.check_problem(mdp.setting)
        self.mdp, self.agent, self.episodes = mdp, agent, episodes
        self._coverage = coverage
        scratch = new_scratch(mdp.n_states)
        in_lanes = driver == DRIVERS[0] and planner != PLANNERS[FULL] and agent.bonus == "hoeffding"
        judge = new_judge(mdp, scratch, coverage=COVERAGES.index(coverage), in_lanes=in_lanes)
        check_value_cap(float(judge.v_star.max()), mdp.setting.value_cap)
        if agent.bonus == POSTERIOR and (coverage == COVERAGES[EVERYWHERE] or check_every):
            raise InvalidSetting(
                f"'coverage' must be 'played' and 'check_every' 0 with bonus 'posterior', got {coverage!r} "
                f"and {check_every}: worlds have no bounds on values to compare."
            )
        self._job = job = Job(
            record=new_record(episodes, mdp.horizon, steps=record_steps),
            mdp=mdp,
            agent=agent,
            judge=judge,
            episodes=episodes,
            warmup=warmup,
            seed=seed,
            prior=agent.prior_actions(mdp.setting, mdp),
            scratch=scratch,
            logged=logged,
            own=own,
        )
        self._run: BlockRun | _Stepping
        if driver == "step":
            # Imported here: the step-by-step driver needs Gymnasium, the compiled one does not.
            from chary.simulation._canary_steps import play_canary_steps
            from chary.simulation._stepwise import play_steps

            self._run = _Stepping(play_canary_steps(job) if isinstance(agent, Canary) else play_steps(job))
        elif agent.bonus == POSTERIOR:
            self._run = WorldsRun(job)
        elif isinstance(agent, Canary):
            self._run = CanaryRun(job)
        else:
            self._run = CompiledRun(job, planner=planner, check_every=check_every)

    @property
    def done(self) -> int:
        """The number of episodes played."""
        return self._run.done

    @property
    def can_be_saved(self) -> bool:
        """Whether `state` and `restore` work: for compiled runs alone."""
        return isinstance(self._run, BlockRun)

    def start(self) -> None:
        """Play the warm-up, and compile what plays the rest or load it from the cache."""
        self._run.start()

    def advance(self) -> int:
        """Play one more block of episodes, about a tenth of a second, and return how many are done."""
        return self._run.advance()

    def so_far(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the episodes played until now, by name, in scaled units."""
        return {name: getattr(self._job.record.episodes, name)[: self.done] for name in EPISODE_COLUMNS}

    def rows(self, first: int) -> dict[str, NDArray[Any]]:
        """Return the columns of the episodes from `first` on that are done, by name, in the user's units."""
        columns = {name: column[first:] for name, column in self.so_far().items()}
        # Amounts of reward are floats, and all other columns are not.
        span = self.mdp.scale.span
        rows: dict[str, NDArray[Any]] = {
            name: each * span if each.dtype == np.float64 else each for name, each in columns.items()
        }
        # Rewards have an offset only where no episode ends early.
        returns = _raw_returns(rows["returns"], rows["length"], self.mdp)
        baseline = _raw_returns(rows["baseline_value"], self.mdp.horizon, self.mdp)
        return {**rows, "returns": returns, "baseline_value": baseline}

    def planned(self) -> dict[str, int]:
        """Return how much a compiled run has planned; nothing with driver `step`."""
        return self._run.planning()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that the rest of a compiled run depends on: counts, chains, log and generators.

        Raises:
            InvalidSetting: with driver `step`.
        """
        return self._resumable().state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `state` was taken; in place of `start`.

        Raises:
            InvalidSetting: with driver `step`.
            InvalidData: if it is not the state of such a run.
        """
        self._resumable().restore(state)

    def result(self) -> Run:
        """Return the judged run; all episodes must have been played."""
        if self.done < self.episodes:
            raise InvalidSetting(
                f"'episodes' must all be played before there is a result, got {self.done} of {self.episodes}."
            )
        log = self._run.log()
        scale, columns = self.mdp.scale, self._job.record.arrays()
        # Rewards have an offset only where no episode ends early.
        judge, whole = self._job.judge, self.mdp.horizon
        incumbent = mean_at_start(judge, judge.v_incumbent)
        steps = Steps(**{name: columns[f"step_{name}"] for name in STEP_COLUMNS})
        return Run(
            problem=self.mdp.name,
            spec=self.agent,
            standing=self._grounds().standing,
            scale=scale,
            episodes=self.episodes,
            warmup=self._job.warmup,
            seed=self._job.seed,
            coverage=self._coverage,
            seconds=self._run.seconds,
            incumbent_value=float(_raw_returns(np.float64(incumbent * scale.span), whole, self.mdp)),
            **self.rows(0),
            chains=log if isinstance(log, ChainLog) else no_chains(),
            steps=steps if len(steps.action) else None,
            planning=self._run.planning(),
            canary=log if isinstance(log, CanaryLog) else None,
        )

    def _grounds(self) -> Grounds:
        """Return everything that the promise leans on, the calibration of a scaled bonus included."""
        grounds = self.agent.grounds(self.mdp.told(self.agent.reward))
        if isinstance(self.agent, CharyUCBVI) and self.agent.bonus == POSTERIOR:
            record = self.agent.calibration
            if not isinstance(record, RiskRecord):
                return grounds
            used = {"problem": self.mdp.name, **self.agent.calibrated(self.episodes, self._job.warmup)}
            return replace(grounds, coverage=record.coverage(differences_from(record, self.mdp, used)))
        if not isinstance(self.agent, CharyUCBVI) or grounds.bounds is None or grounds.bounds.certified:
            return grounds
        nearest, outside = nearest_calibration(
            self.mdp, self.agent, episodes=self.episodes, warmup=self._job.warmup
        )
        if nearest is None:
            return grounds
        return replace(grounds, outside=outside, calibrated_on=nearest.given)

    def _resumable(self) -> BlockRun:
        if isinstance(self._run, _Stepping):
            raise InvalidSetting(
                "'driver' must be 'compiled' to save or resume a run, got 'step', as for agents of your own."
            )
        return self._run


@final
class _Stepping:
    """The step-by-step driver, advanced one episode at a time; it has no memory to save."""

    def __init__(self, playing: Generator[int, None, ChainLog | CanaryLog]) -> None:
        self.done, self.seconds = 0, 0.0
        self._playing = playing

    def start(self) -> None:
        """Do nothing: the warm-up is played with the first episode."""

    def planning(self) -> dict[str, int]:
        return {}

    def advance(self) -> int:
        began = time.perf_counter()
        self.done = next(self._playing)
        self.seconds += time.perf_counter() - began
        return self.done

    def log(self) -> ChainLog | CanaryLog:
        try:
            next(self._playing)
        except StopIteration as finished:
            log: ChainLog | CanaryLog = finished.value
            return log
        raise AssertionError("the last episode was played")


def _raw_returns(returns: Floats | np.float64, length: Ints | int, mdp: FiniteMDP) -> Floats:
    """Return discounted returns with the offset of rewards, which every step played adds once."""
    steps = np.concatenate([[0.0], np.cumsum(mdp.setting.discount ** np.arange(mdp.horizon))])
    return np.asarray(returns + mdp.scale.low * steps[length])
