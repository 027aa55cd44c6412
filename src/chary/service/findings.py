"""What an audit found: how far it looked, and every place where something is not as it must be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

# Findings that are kept of one kind: a table that was replaced would fill pages.
MOST = 20


class Finding(NamedTuple):
    """Something that is not as it must be; `seq` is the event it is about, if it is about one."""

    where: str
    seq: int | None
    message: str


@final
@dataclass(slots=True)
class Findings:
    """The result of an audit.

    Attributes:
        events: How many events were looked at.
        decisions: How many of them are decisions.
        snapshots: How many snapshots were looked at.
        head: The hash of the last event, in hexadecimal digits. Publish it outside: a trail whose end was cut
            off is whole, except that it does not contain this hash.
        found: What is not as it must be, in order; of one kind at most `MOST`.
        more: How many findings were left out, by kind.
    """

    events: int = 0
    decisions: int = 0
    snapshots: int = 0
    head: str = ""
    found: list[Finding] = field(default_factory=list)
    more: dict[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found."""
        return not self.found

    def add(self, where: str, seq: int | None, message: str) -> None:
        """Note something that is not as it must be."""
        if sum(finding.where == where for finding in self.found) >= MOST:
            self.more[where] = self.more.get(where, 0) + 1
        else:
            self.found.append(Finding(where, seq, message))

    def describe(self) -> str:
        """Return the result in a sentence."""
        looked = f"{self.events} events, {self.decisions} decisions and {self.snapshots} snapshots"
        if self.is_whole:
            return f"{looked} are as they were written; the head is {self.head}."
        n = len(self.found) + sum(self.more.values())
        return f"{n} {'finding' if n == 1 else 'findings'} in {looked}; the first: {self.found[0].message}"
