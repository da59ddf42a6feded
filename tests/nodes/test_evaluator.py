"""The evaluator's node: one order after the other, of versions that are whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Evaluate, SaveModel, Send
from psplatform.core.protocol.events import Evaluated, EvaluationFailed, ModelSaved, SaveFailed
from psplatform.core.protocol.messages import Moved, Pull, Pulled
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.quality import Watch
from psplatform.nodes.evaluator import EvaluatorNode


class World:
    """An evaluation that notes what it is asked for and answers when a test says so, and what the node has sent."""

    def __init__(self, watch: Watch, *, exact: bool) -> None:
        self.asked: list[Any] = []
        self.sent: list[Send] = []
        servers = [("server-0", 1), ("server-1", 1)]
        self.node = EvaluatorNode("evaluator", servers, watch, self.sent.append, lambda feed: self, exact=exact)

    def measure(self, version: int) -> None:
        self.asked.append(("measure", version))

    def keep(self, found: Evaluated) -> None:
        self.asked.append(("keep", found.version))

    def save(self, version: int) -> None:
        self.asked.append(("save", version))

    def feed(self, *events: Any) -> World:
        for event in events:
            self.node.feed(event)
        return self

    def serve(self, *versions: int) -> World:
        """Answer the last pull of each shard."""
        for shard, version in enumerate(versions):
            pull = [one for one in self.pulls if one.shard == shard][-1]
            self.node.feed(Pulled(shard, pull.request, version, 1))
        return self

    @property
    def pulls(self) -> list[Pull]:
        return [one.message for one in self.sent if isinstance(one.message, Pull)]

    @property
    def answers(self) -> list[Any]:
        return [one.message for one in self.sent if one.to == COORDINATOR]


@pytest.fixture
def world() -> World:
    return World(Watch(), exact=True)


FOUND = Evaluated(3, 0.5, 0.9)


def test_a_version_is_fetched_measured_and_told(world: World) -> None:
    world.feed(Evaluate(3, measure=True))
    assert [(one.to.name, one.message.version) for one in world.sent] == [("server-0", 3), ("server-1", 3)]
    assert world.serve(3, 3).asked == [("measure", 3)]
    assert world.answers == []
    assert world.feed(FOUND).answers == [FOUND]


def test_shards_are_measured_at_one_version(world: World) -> None:
    world.feed(Evaluate(3, measure=True)).serve(3, 4)
    assert world.asked == []
    assert [(one.shard, one.version) for one in world.pulls[2:]] == [(0, 4)]
    world.node.feed(Pulled(0, world.pulls[-1].request, 4, 1))
    assert world.asked == [("measure", 4)]


@pytest.mark.parametrize("measure", [False, True])
def test_a_version_whose_pulls_are_answered_at_once_is_measured_or_told_once(world: World, measure: bool) -> None:
    shows = [3, 4]

    def send(effect: Send) -> None:
        world.sent.append(effect)
        if isinstance(pull := effect.message, Pull):
            world.node.feed(Pulled(pull.shard, pull.request, shows[pull.shard], 1))
            shows[0] = 4  # from then on

    world.node = EvaluatorNode(
        "evaluator", [("server-0", 1), ("server-1", 1)], Watch(), send, lambda feed: world, exact=True
    )
    world.feed(Evaluate(3, measure=measure))
    assert [(one.shard, one.version) for one in world.pulls] == [(0, 3), (1, 3), (0, 4)]
    assert world.asked == ([("measure", 4)] if measure else [])
    assert world.answers == ([] if measure else [Evaluated(4, None, None)])


def test_blocks_are_measured_as_they_come() -> None:
    assert World(Watch(), exact=False).feed(Evaluate(3, measure=True)).serve(3, 4).asked == [("measure", 3)]


def test_what_is_only_to_be_fetched_is_not_measured(world: World) -> None:
    assert world.feed(Evaluate(3, measure=False)).serve(3, 3).answers == [Evaluated(3, None, None)]
    assert world.asked == []


@pytest.mark.parametrize("answer", [EvaluationFailed("ValueError", "wrong", "trace"), Evaluated(3, None, None)])
def test_whatever_was_found_is_told(world: World, answer: Any) -> None:
    assert world.feed(Evaluate(3, measure=True)).serve(3, 3).feed(answer).answers == [answer]


@pytest.mark.parametrize("answer", [ModelSaved(3), SaveFailed("full", "store")])
def test_a_model_is_saved(world: World, answer: Any) -> None:
    assert world.feed(SaveModel(3)).asked == [("save", 3)]
    assert world.feed(answer).answers == [answer]


def test_the_best_is_kept_before_it_is_told() -> None:
    world = World(Watch(keep=True), exact=True).feed(Evaluate(3, measure=True, best=0.8)).serve(3, 3).feed(FOUND)
    assert (world.asked, world.answers) == ([("measure", 3), ("keep", 3)], [])
    kept = replace(FOUND, kept=True)
    assert world.feed(kept).answers == [kept]


def test_what_is_no_better_is_not_kept() -> None:
    worse = 0.1 if Watch().metric in Watch().lower else 0.95
    world = World(Watch(keep=True), exact=True).feed(Evaluate(3, measure=True, best=worse)).serve(3, 3).feed(FOUND)
    assert (world.asked, world.answers) == ([("measure", 3)], [FOUND])


def test_orders_wait_for_the_one_at_hand(world: World) -> None:
    world.feed(Evaluate(3, measure=True), SaveModel(3)).serve(3, 3)
    assert (world.asked, len(world.pulls)) == ([("measure", 3)], 2)
    world.feed(FOUND, Evaluate(5, measure=True))
    assert (world.asked, len(world.pulls)) == ([("measure", 3), ("save", 3)], 2)
    world.feed(ModelSaved(3))
    assert [one.version for one in world.pulls[2:]] == [5, 5]


def test_an_order_that_is_given_again_while_a_version_is_measured_has_the_answer_to_the_first(world: World) -> None:
    """Executed afterwards, its answer would be taken for that of the next order, and the wrong version be saved."""
    world.feed(Evaluate(3, measure=True)).serve(3, 3).feed(Evaluate(4, measure=True), FOUND)
    assert (world.answers, len(world.pulls)) == ([FOUND], 2)
    world.feed(Evaluate(9, measure=True)).serve(3, 3)
    assert [one.version for one in world.pulls[2:]] == [9, 9]


def test_an_order_that_is_given_again_while_a_version_is_fetched_takes_the_place_of_the_first(world: World) -> None:
    world.feed(Evaluate(3, measure=True))
    first = world.pulls[0]
    world.feed(Evaluate(4, measure=True), Pulled(0, first.request, 3, 1)).serve(4, 4)
    assert world.asked == [("measure", 4)]
    assert len(world.feed(replace(FOUND, version=4)).answers) == 1


def test_nothing_is_expected_but_while_a_version_is_fetched(world: World) -> None:
    """What is measured must not be written over."""
    world.feed(Evaluate(3, measure=True))
    late = Pulled(0, world.pulls[0].request, 3, 1)
    assert world.node.expects(late)
    world.serve(3, 3)
    assert not world.node.expects(late)
    assert world.feed(late).asked == [("measure", 3)]


def test_a_shard_that_moves_is_asked_at_its_new_server(world: World) -> None:
    world.feed(Evaluate(3, measure=True), Moved(2, 1, 2, "replica-1-0"), Moved(1, 1, 1, "server-1"))
    assert [(one.to.name, one.message.epoch) for one in world.sent[2:]] == [("replica-1-0", 2)]
    world.node.feed(Pulled(0, world.pulls[0].request, 3, 1))
    world.node.feed(Pulled(1, world.pulls[1].request, 3, 1))  # of the server before
    assert world.asked == []
    world.node.feed(Pulled(1, world.pulls[2].request, 3, 2))
    assert world.asked == [("measure", 3)]


def test_what_was_fetched_of_a_server_that_is_gone_is_fetched_again(world: World) -> None:
    world.feed(Evaluate(3, measure=True))
    world.node.feed(Pulled(0, world.pulls[0].request, 3, 1))
    world.feed(Moved(1, 0, 2, "replica-0-0"))
    assert (world.sent[-1].to.name, world.pulls[-1].shard) == ("replica-0-0", 0)
