"""Processes in which the run has lost a role: none is placed there before one of them is heard again.

A stopped process is still on the scheduler's list, one that was killed for a while, and one that ends in good order
takes calls to its last moment.  An actor that is made there keeps the run waiting.
"""

from __future__ import annotations


class UnavailableProcesses:
    """Who was lost, and where."""

    def __init__(self) -> None:
        self._lost: dict[str, str] = {}
        self._leaving: set[str] = set()

    @property
    def addresses(self) -> set[str]:
        """Where no role is placed."""
        return self._leaving | set(self._lost.values())

    def lose(self, name: str, address: str) -> None:
        """Count the process at that address as silent: an actor there does not answer."""
        self._lost[name] = address

    def leave(self, address: str) -> None:
        """Count the process at that address as leaving: its actors may still be heard."""
        self._leaving.add(address)

    def heard(self, name: str) -> bool:
        """Count a lost actor as heard again; return whether its process can take a role from now on."""
        address = self._lost.get(name)
        if address is None or address in self._leaving:
            return False
        self._lost = {other: place for other, place in self._lost.items() if place != address}
        return True
