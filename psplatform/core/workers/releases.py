"""What a worker was released for: the gradient at hand, and the one after it, which may be granted or aborted early."""

from __future__ import annotations

from dataclasses import dataclass, replace

from psplatform.core.protocol.messages import Release


@dataclass(slots=True)
class Releases:
    """The releases that one worker knows.

    Attributes
    ----------
    at_hand
        Of the gradient at hand, or of the last one.
    following
        That came before the gradient at hand was done.
    forestalled
        Sequence of the last gradient that was aborted before it was begun: its release is not taken any more.
    aborted
        Sequence of the last gradient that was aborted or dropped.
    settled
        Sequence of the last gradient that a release said to be decided.
    """

    at_hand: Release | None = None
    following: Release | None = None
    forestalled: int = 0
    aborted: int = 0
    settled: int = 0

    def current(self, sequence: int) -> Release | None:
        """Return the release at hand if it is for that gradient."""
        return self.at_hand if self.at_hand is not None and self.at_hand.sequence == sequence else None

    def is_known(self, release: Release) -> bool:
        """Whether that or a later one was heard of."""
        newest = self.following or self.at_hand
        return release.sequence <= self.forestalled or (newest is not None and release.sequence <= newest.sequence)

    def begin(self, release: Release) -> None:
        """Take the next release in hand."""
        self.at_hand, self.following = release, None

    def confirm(self, release: Release) -> None:
        """Let a release that is known count as given by the coordinator that repeats it."""
        if self.following is not None and _repeats(self.following, release):
            self.following = replace(self.following, term=release.term)
        elif self.at_hand is not None and _repeats(self.at_hand, release):
            self.at_hand = replace(self.at_hand, term=release.term)

    def is_superseded(self, term: int) -> bool:
        """Whether there is one after that at hand, of that term or a higher one."""
        return self.following is not None and self.following.term >= term

    def forestall(self, sequence: int) -> bool:
        """Take no release of gradients up to that one, of which none is at hand; return whether that is new."""
        if sequence <= self.forestalled:
            return False
        self.forestalled = sequence
        if self.following is not None and self.following.sequence <= sequence:
            self.following = None
        return True


def _repeats(known: Release, release: Release) -> bool:
    return (known.sequence, known.version) == (release.sequence, release.version)
