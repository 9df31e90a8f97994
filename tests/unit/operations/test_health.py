"""The changes that `cluster health --watch` shows."""

from dataclasses import replace

from barnabas.operations.answers.cluster import Problem
from barnabas.operations.health import Changes, unreachable

DEAD = Problem("brokers", "broker 3", "not alive")
LATE = Problem("isr", "orders-0", "not in sync: broker 3")
FEWER = Problem("isr", "orders-0", "1 replicas are in sync, min.insync.replicas is 2")
AWAY = Problem("brokers", "cluster", "cannot be reached")


def test_changes_are_new_problems_and_those_that_are_gone() -> None:
    assert Changes.between([], [DEAD, LATE]) == ([DEAD, LATE], [])
    assert Changes.between([DEAD, LATE], [LATE]) == ([], [DEAD])
    assert Changes.between([DEAD], [DEAD]) == ([], [])


def test_problem_with_another_text_is_not_solved() -> None:
    assert Changes.between([DEAD, LATE], [DEAD, FEWER]) == ([FEWER], [])
    second = replace(DEAD, check="transactions")
    assert Changes.between([DEAD, second], [DEAD]) == ([], [second])


def test_cluster_that_does_not_answer_has_solved_nothing() -> None:
    away = unreachable([DEAD, LATE], AWAY.problem)
    assert Changes.between([DEAD, LATE], away) == ([AWAY], [])
    assert unreachable(away, "timeout") == [replace(AWAY, problem="timeout"), DEAD, LATE]
    assert Changes.between(away, [LATE]) == ([], [AWAY, DEAD])
