"""The commands that look at a deployment and operate it, whether its service runs or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import typer

from chary.cli.options import Json
from chary.cli.serve_options import Directory, check_directory
from chary.cli.terminal import say, show
from chary.errors import InvalidSetting, check_choice, check_real
from chary.storage.files import as_json as json_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from chary.service.engine import Answer, Engine

MODES = ("apprentice", "budgeted", "frozen", "stopped")
ACTIONS = ("create", "list", "revoke")
Why = Annotated[str | None, typer.Option(help="Why, for the audit trail.", metavar="TEXT")]


def _token(
    *,
    directory: Directory,
    action: Annotated[str, typer.Argument(metavar="create|list|revoke", show_default=False)],
    token: Annotated[
        str | None, typer.Argument(metavar="ID", help="The token to revoke.", show_default=False)
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Whom the token is for; events name it.", metavar="TEXT")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What it may do; repeat the option for several.", metavar="decide|report|operate|audit|read"
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Days until it expires, by default never.", metavar="X")
    ] = None,
    reason: Why = None,
    as_json: Json = False,
) -> None:
    """Make, list or revoke tokens for callers.

    A token is printed once, when it is made: the service keeps its hash alone.
    """
    check_choice("action", action, ACTIONS)
    check_directory(directory)
    if action == "create":
        _create_token(directory, label, scope or [], days, as_json=as_json)
    elif action == "list":
        _list_tokens(directory, as_json=as_json)
    else:
        if token is None:
            raise InvalidSetting(
                f"'ID' must be the token to revoke, got None. chary serve token {directory} list"
            )
        why = reason or "no longer needed"
        _operate(
            directory,
            "DELETE",
            f"/v1/tokens/{quote(token, safe='')}?{urlencode({'reason': why})}",
            None,
            lambda engine, author: engine.revoke_token(token, author=author, reason=why),
        )
        say(json_line({"id": token, "revoked": True}) if as_json else f"Revoked: {token}")


def _create_token(
    directory: Path, label: str | None, scopes: list[str], days: float | None, *, as_json: bool
) -> None:
    from chary.service.tokens import mint

    if label is None:
        raise InvalidSetting("'label' must say whom the token is for, got None. Pass --label TEXT.")
    if not scopes:
        raise InvalidSetting(
            "'scope' must be given, got none. Pass --scope decide --scope report, or others."
        )
    # Checked here, so that both ways give the same sentence.
    made = mint(scopes, label, days=days)

    def add(engine: Engine, author: str) -> Answer:
        return engine.add_token(
            made.id, made.digest, scopes=made.scopes, label=label, expires=made.expires, author=author
        )

    body = {"label": label, "scopes": list(made.scopes), "days": days}
    answer = _operate(directory, "POST", "/v1/tokens", body, add)
    # The service has made one of its own; the engine has kept the one from here.
    told = {"id": made.id, "token": made.text} | {
        key: answer[key] for key in ("id", "token") if "id" in answer
    }
    told |= {"label": label, "scopes": list(made.scopes), "expires": made.expires}
    say(json_line(told) if as_json else told["token"])


def _list_tokens(directory: Path, *, as_json: bool) -> None:
    from chary.service.summary import tokens

    found = tokens(directory)
    if as_json:
        say(json_line({"tokens": found}))
        return
    rows = [
        (
            each["id"],
            each["label"],
            " ".join(each["scopes"]),
            each["expires"] or "never",
            "revoked" if each["revoked"] else "",
        )
        for each in found
    ]
    show(("id", "label", "scopes", "expires", "state"), rows)


def _mode(
    *,
    directory: Directory,
    mode: Annotated[
        str | None,
        typer.Argument(metavar="[apprentice|budgeted|frozen|stopped]", show_default=False),
    ] = None,
    reason: Why = None,
    as_json: Json = False,
) -> None:
    """Show or change the mode; stopped is the kill switch.

    A change holds from the next decision on, and is an event with its author and reason.
    """
    check_directory(directory)
    if mode is None:
        from chary.service.summary import mode_now

        now = mode_now(directory)
        say(json_line(now) if as_json else _said_mode(now))
        return
    check_choice("mode", mode, MODES)
    why = _required(reason)
    if mode == "stopped":
        answer = _operate(
            directory,
            "POST",
            "/v1/stop",
            {"reason": why},
            lambda engine, author: engine.stop(author=author, reason=why),
        )
    else:
        answer = _operate(
            directory,
            "PUT",
            "/v1/mode",
            {"mode": mode, "reason": why},
            lambda engine, author: engine.set_mode(mode, author=author, reason=why),
        )
    say(json_line(answer) if as_json else f"Mode: {mode}, from the next decision on.")


def _eta(
    *,
    directory: Directory,
    eta: Annotated[float, typer.Argument(help="The budget, in the user's units.", show_default=False)],
    reason: Why = None,
    as_json: Json = False,
) -> None:
    """Change the budget of new episodes; open ones keep theirs."""
    check_real("eta", eta, low=0.0, open_high=True)
    check_directory(directory)
    why = _required(reason)
    answer = _operate(
        directory,
        "PUT",
        "/v1/eta",
        {"eta": eta, "reason": why},
        lambda engine, author: engine.set_eta(eta, author=author, reason=why),
    )
    say(json_line(answer) if as_json else f"Budget: {eta:g} for episodes that begin from now on.")


def _erase(
    *,
    directory: Directory,
    episode: Annotated[str, typer.Argument(help="The name of an episode.", show_default=False)],
    reason: Why = None,
    as_json: Json = False,
) -> None:
    """Erase what is personal of an episode.

    Its name and its payload are deleted; the audit trail stays whole.
    """
    check_directory(directory)
    why = _required(reason)
    answer = _operate(
        directory,
        "DELETE",
        f"/v1/episodes/{quote(episode, safe='')}/payload?{urlencode({'reason': why})}",
        None,
        lambda engine, author: engine.erase(episode, author=author, reason=why),
    )
    say(json_line(answer) if as_json else "Erased: the name and the payload of the episode.")


def _status(*, directory: Directory, as_json: Json = False) -> None:
    """Show a deployment, whether its service runs or not.

    Its mode, episodes, decisions, ledgers, outcomes that are outstanding or lost, and the head of its trail.
    """
    check_directory(directory)
    from chary.service.local import running
    from chary.service.summary import mode_now, summary

    service, counts, now = running(directory), summary(directory), mode_now(directory)
    place = None if service is None else {"url": service.url, "pid": service.pid}
    if as_json:
        say(json_line({"directory": str(directory), "running": place, "mode": now, **counts}))
        return
    say("Not running." if service is None else f"Running at {service.url}, process {service.pid}.")
    say(_said_mode(now))
    say(_told(counts))
    modes = counts["by_mode"].items()
    if modes:
        say()
        rows = [
            (mode, str(row["decisions"]), str(row["explored"]), f"{row['charged']:.2f}")
            for mode, row in modes
        ]
        show(("mode", "decisions", "explored", "charged"), rows)


def _told(counts: dict[str, Any]) -> str:
    """Return the numbers of a deployment in words."""
    n = {name: f"{value:,}" for name, value in counts.items() if isinstance(value, int)}
    budget = "" if counts["eta"] is None else f"; new episodes have {counts['eta']:,.6g}"
    lines = {
        "Episodes": f"{n['episodes']}, of which {n['open']} open, {n['abandoned']} abandoned",
        "Decisions": f"{n['decisions']}, of which {n['explored']} explored; {n['overrides']} overruled, "
        f"{n['not_taken']} not taken",
        "Outcomes": f"{n['outcomes']} known, {n['outstanding']} outstanding, {n['lost']} lost",
        "Budgets": f"{n['ledgers_above_their_budget']} ledgers above their budget; the largest ledger is "
        f"{counts['largest_deficit']:,.6g}{budget}",
        "Trail": f"{n['events']} events; the head of their chain is {counts['head']}",
    }
    if counts["plan_refused"] is not None:
        lines["Plan"] = f"the last one was refused, an older one is in force: {counts['plan_refused']}"
    return "\n".join(f"{name:11}{text}" for name, text in lines.items())


def _backup(
    *,
    directory: Directory,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The folder to make; it must not exist.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Copy a deployment, whether its service runs or not.

    The copy is whole or not there. It is as secret as the original: it contains the key and the operator's
    token.
    """
    check_directory(directory)
    from chary.service.backup import back_up

    size = back_up(directory, out)
    told = {"directory": str(directory), "out": str(out), "bytes": size}
    say(json_line(told) if as_json else f"Copied: {out}, {size:,} bytes. Check it: chary audit verify {out}")


def _said_mode(now: dict[str, Any]) -> str:
    if now["since"] is None:
        return f"Mode: {now['mode']}, since the beginning."
    return f"Mode: {now['mode']}, since {now['since']}, by {now['author']}: {now['reason']}"


def _required(reason: str | None) -> str:
    """Return the reason of a change.

    Raises:
        InvalidSetting: if there is none.
    """
    if reason is None or not reason.strip():
        raise InvalidSetting("'reason' must say why, for the audit trail, got none. Pass --reason TEXT.")
    return reason


def _operate(
    directory: Path, method: str, path: str, body: Any, call: Callable[[Engine, str], Answer]
) -> dict[str, Any]:
    """Change something through the service if it runs, through the engine if not, and return the answer."""
    from chary.service import local

    service = local.running(directory)
    if service is not None:
        return local.call(service, directory, method, path, body)
    with local.engine_of(directory) as engine:
        return local.settled(engine, call(engine, local.AUTHOR))


COMMANDS = {
    "token": _token,
    "status": _status,
    "mode": _mode,
    "eta": _eta,
    "erase": _erase,
    "backup": _backup,
}
