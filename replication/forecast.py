"""What divergence a replica will have before anything is sent: from norms of gradients and momentum, in O(1) a step.

Source: R. Viswanathan, A. Balasubramanian, A. Akella, "Network-accelerated distributed machine learning for
multi-tenant settings" (MLfabric), 2020, the section on bounded divergence.  It is about stochastic gradient descent
with momentum, in the paper's symbols

    h_t = gamma h_{t-1} + u_t,        w_t = w_{t-1} + h_t,

where u_t is an update with its learning rate.  A replica at (w_f, h_f) whose server has applied u_{f+1} ... u_m lacks

    w_m - w_f = gamma S_{m-f} h_f + sum_j S_{m-j+1} u_j,        S_q = 1 + gamma + ... + gamma^{q-1},

so that, by the triangle inequality, norms are enough for a bound:

    div = gamma S_{m-f} |h_f| + sum_j S_{m-j+1} |u_j|.

Differences from the paper
--------------------------
* For two outstanding updates the paper prints the square of this bound term by term, with the cross term of h_0 and u_1
  twice; the second of them must be the one of h_0 and u_2.  With it, its square root is the sum above.
* The paper adds the terms up anew for every decision.  Here ``eta``, which bounds |h|, and ``D``, the sum of the etas
  of the outstanding updates, follow each step in constant time: D equals the sum above.
* Where the replica reports the norm of its momentum, which no bound exceeds, the forecast becomes tighter.

A server holds itself to the steps that it has measured (`psplatform.replication.accounts`): those are exact, whatever
the optimiser, and exist only once a step is computed.  This forecast speaks of steps that nobody has made yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from psplatform.errors import ConfigurationError


@dataclass
class Forecast:
    """The most that a replica's parameters may be away from its server's, under momentum.

    Parameters
    ----------
    momentum
        gamma, from 0 to 1.
    momentum_norm
        |h_0| where both stand alike at the beginning.

    Raises
    ------
    ConfigurationError
        If the momentum is out of its range.
    """

    momentum: float
    momentum_norm: float = 0.0
    _queue: deque[float] = field(default_factory=deque)
    _sum: float = 0.0
    # By how much the etas are above what is known: eta_k is too large by gamma^(k-f) times this.
    _excess: float = 0.0
    # S_q for the q updates that are outstanding.
    _series: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum <= 1:
            raise ConfigurationError(f"momentum must be from 0 to 1, not {self.momentum!r}", field="momentum")
        self._eta = self.momentum_norm

    @property
    def outstanding(self) -> int:
        """Number of updates that the server has applied and the replica has not."""
        return len(self._queue)

    @property
    def divergence(self) -> float:
        """The bound ``div``; 0 exactly where nothing is outstanding."""
        return max(0.0, self._sum - self.momentum * self._series * self._excess)

    def apply(self, update_norm: float) -> None:
        """Note that the server applies an update of norm |u|."""
        self._eta = self.momentum * self._eta + update_norm
        self._queue.append(self._eta)
        self._sum += self._eta
        self._count(len(self._queue))

    def replicate(self, momentum_norm: float | None = None) -> None:
        """Note that the replica applies the oldest outstanding update.

        Parameters
        ----------
        momentum_norm
            |h_f| at the replica after it, where that is known.

        Raises
        ------
        IndexError
            If nothing is outstanding.
        """
        eta = self._queue.popleft()
        self._sum -= eta
        self._excess *= self.momentum
        if momentum_norm is not None:
            self._excess = max(self._excess, eta - momentum_norm)
        self._count(len(self._queue))
        if not self._queue:
            # Sums of differences drift, so this is where the count begins anew.
            self._sum, self._eta, self._excess = 0.0, eta - self._excess, 0.0

    def after(self, update_norms: Iterable[float]) -> float:
        """Return the divergence if the server applied these updates, too, before the replica gets any."""
        ahead = Forecast(self.momentum)
        ahead._eta, ahead._sum, ahead._excess = self._eta, self._sum, self._excess
        ahead._queue.extend(self._queue)
        for update_norm in update_norms:
            ahead.apply(update_norm)
        return ahead.divergence

    def _count(self, outstanding: int) -> None:
        gamma = self.momentum
        self._series = float(outstanding) if gamma == 1 else (1 - gamma**outstanding) / (1 - gamma)
