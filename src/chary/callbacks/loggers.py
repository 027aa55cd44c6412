"""Ready callbacks: CSV files, TensorBoard, MLflow, and Weights & Biases without an account."""

from __future__ import annotations

import csv
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Self, final

from chary.errors import InvalidSetting, check_choice, check_installed, check_integer, check_type
from chary.storage.files import as_path

__all__ = [
    "LOGGERS",
    "CSVLogger",
    "MLflowLogger",
    "TensorBoardLogger",
    "WandBLogger",
    "check_logger",
    "logger_in",
]

# What is written, and the files of a CSVLogger.
KINDS = ("episode", "plan", "warning")
# Rows that MLflow takes at once.
MOST_METRICS = 1000


# The ready loggers by name, and the package that each needs.
LOGGERS = {"csv": None, "tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}


def check_logger(kind: str) -> None:
    """Check that there is such a logger, and its package.

    Raises:
        UnknownName: if there is no such logger.
        InvalidSetting: if its package is not installed, with the command that installs it.
    """
    package = LOGGERS[check_choice("log", kind, LOGGERS)]
    if package is not None:
        check_installed(package, f"Logging to {kind}", kind)


class _Logger(ABC):
    """Means over `every` episodes, then plans and warnings, written where a subclass writes them."""

    def __init__(self, every: int) -> None:
        self._every = check_integer("every", every, minimum=1)
        self._sums: dict[str, float] = {}
        self._count, self._last, self._warnings = 0, -1, 0

    def on_episode(self, episode: int, values: Mapping[str, float]) -> None:
        """Write the means of the last `every` episodes, at the last of them."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        self._count, self._last = self._count + 1, episode
        if self._count == self._every:
            self._flush()

    def on_plan(self, plan: int, values: Mapping[str, float]) -> None:
        """Write numbers about planning."""
        self._write("plan", plan, values)

    def on_warning(self, message: str) -> None:
        """Write a warning."""
        self._warn(self._warnings, message)
        self._warnings += 1

    def close(self) -> None:
        """Write the means of the episodes that are left, and end."""
        if self._count:
            self._flush()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _flush(self) -> None:
        means = {name: total / self._count for name, total in self._sums.items()}
        self._sums, self._count = {}, 0
        self._write("episode", self._last, means)

    @abstractmethod
    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write numbers at a step."""

    @abstractmethod
    def _warn(self, number: int, message: str) -> None:
        """Write a warning."""

    @abstractmethod
    def _end(self) -> None:
        """Close what was opened."""


@final
class CSVLogger(_Logger):
    """Files episode.csv, plan.csv and warning.csv in a folder, each begun with its first row.

    Args:
        folder: The folder, which is made; no file in it is overwritten.
        every: The number of episodes per row, whose means it contains.

    Raises:
        InvalidSetting: if `every` is not a whole number >= 1, or a file exists already.
    """

    def __init__(self, folder: str | Path, *, every: int = 1) -> None:
        super().__init__(every)
        self._folder = as_path("folder", folder)
        for kind in KINDS:
            if (self._folder / f"{kind}.csv").exists():
                raise InvalidSetting(
                    f"'folder' must not contain {kind}.csv, got {str(self._folder)!r}. Choose another folder."
                )
        self._files: dict[str, tuple[TextIOWrapper, Any, tuple[str, ...]]] = {}

    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._row(kind, {kind: step, **values})

    def _warn(self, number: int, message: str) -> None:
        # A cell that begins with a sign is a formula to spreadsheets.
        text = f"'{message}" if message[:1] in tuple("=+-@\t\r") else message
        self._row("warning", {"warning": number, "message": text})

    def _row(self, kind: str, cells: Mapping[str, Any]) -> None:
        if kind not in self._files:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = (self._folder / f"{kind}.csv").open("x", encoding="utf-8", newline="")
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(cells)
            self._files[kind] = file, writer, tuple(cells)
        file, writer, names = self._files[kind]
        writer.writerow([cells.get(name, "") for name in names])
        if kind != "episode":
            file.flush()

    def _end(self) -> None:
        for file, *_ in self._files.values():
            file.close()


@final
class TensorBoardLogger(_Logger):
    """Event files for TensorBoard, with tags such as `episode/regret`, `plan/batches` and `warning`.

    Args:
        folder: The folder of the run.
        every: The number of episodes per point, whose means it is.

    Raises:
        InvalidSetting: if tensorboardX is not installed (`pip install 'chary[tensorboard]'`).
    """

    def __init__(self, folder: str | Path, *, every: int = 1) -> None:
        super().__init__(every)
        check_logger("tensorboard")
        import tensorboardX

        self._writer = tensorboardX.SummaryWriter(str(as_path("folder", folder)))

    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def _warn(self, number: int, message: str) -> None:
        self._writer.add_text("warning", message, number)

    def _end(self) -> None:
        self._writer.close()


@final
class MLflowLogger(_Logger):
    """A run of MLflow, with metrics such as `episode/regret` and warnings as tags `warning_0`, `warning_1`.

    Args:
        experiment: The experiment, which is made if there is none of this name.
        run_name: The name of the run.
        tracking_uri: Where runs are kept; by default what MLflow is set up with, for example by
            MLFLOW_TRACKING_URI.
        every: The number of episodes per point, whose means it is.

    Raises:
        InvalidSetting: if mlflow is not installed (`pip install 'chary[mlflow]'`).
    """

    def __init__(
        self,
        experiment: str = "chary",
        *,
        run_name: str | None = None,
        tracking_uri: str | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(every)
        check_logger("mlflow")
        from mlflow import MlflowClient

        check_type("experiment", experiment, str, "a text")
        self._client = MlflowClient(tracking_uri=tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        self.run_id: str = self._client.create_run(number, run_name=run_name).info.run_id
        self._metrics: list[Any] = []

    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        for name, value in values.items():
            self._metrics.append(Metric(f"{kind}/{name}", value, now, step))
            if len(self._metrics) == MOST_METRICS:
                self._send()

    def _warn(self, number: int, message: str) -> None:
        self._client.set_tag(self.run_id, f"warning_{number}", message)

    def _send(self) -> None:
        if self._metrics:
            self._client.log_batch(self.run_id, metrics=self._metrics)
            self._metrics = []

    def _end(self) -> None:
        self._send()
        self._client.set_terminated(self.run_id)


@final
class WandBLogger(_Logger):
    """A run of Weights & Biases, kept on this machine: no account, and nothing is sent.

    `wandb sync` sends it, where you want that.

    Args:
        folder: Where the run is kept.
        project: The name of the project.
        every: The number of episodes per point, whose means it is.

    Raises:
        InvalidSetting: if wandb is not installed (`pip install 'chary[wandb]'`).
    """

    def __init__(self, folder: str | Path, *, project: str = "chary", every: int = 1) -> None:
        super().__init__(every)
        check_logger("wandb")
        import wandb

        where = as_path("folder", folder)
        where.mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(console="off", silent=True)
        self._run = wandb.init(project=project, dir=str(where), mode="offline", settings=quiet)
        # Its own count of steps may not go back, and plans come after episodes.
        for kind in ("episode", "plan"):
            self._run.define_metric(f"{kind}/*", step_metric=kind)

    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({kind: step, **{f"{kind}/{name}": value for name, value in values.items()}})

    def _warn(self, number: int, message: str) -> None:
        self._run.summary[f"warning_{number}"] = message

    def _end(self) -> None:
        self._run.finish()


def logger_in(kind: str, folder: Path, name: str) -> _Logger:
    """Return a ready logger by name, for the run called `name`.

    Args:
        kind: One of `LOGGERS`.
        folder: The folder that it may write to; MLflow writes where it is set up to.
        name: The name of the run.

    Raises:
        UnknownName: if there is no such logger.
        InvalidSetting: if its package is not installed.
    """
    made: dict[str, Callable[[], _Logger]] = {
        "csv": lambda: CSVLogger(folder / name),
        "tensorboard": lambda: TensorBoardLogger(folder / name),
        "mlflow": lambda: MLflowLogger(run_name=name),
        "wandb": lambda: WandBLogger(folder / name),
    }
    check_logger(kind)
    return made[kind]()
