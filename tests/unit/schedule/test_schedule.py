"""Schedules as data: text that round-trips, and a checker that no wrong list gets past."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.schedule.schedule_problems import problems, solve
from vpp_ms.errors import PlanError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import Action
from vpp_ms.schedule.grid import time_grid
from vpp_ms.schedule.schedule import Schedule, ScheduleError


def schedule_of(problem):
    return Schedule.of_walk(solve(*problem))


def with_rank(schedule, rank, actions):
    lists = list(schedule.actions)
    lists[rank] = tuple(actions)
    return Schedule(schedule.placement, tuple(lists))


@given(problems())
def test_the_text_reads_back(problem):
    schedule = schedule_of(problem)
    again = Schedule.from_text(schedule.to_text())
    assert again == schedule
    assert again.hash == schedule.hash


@settings(max_examples=200)
@given(problem=problems(), data=st.data())
def test_any_single_change_of_an_action_is_refused(problem, data):
    schedule = schedule_of(problem)
    n = len(problem[1])
    rank = data.draw(st.integers(0, schedule.placement.num_ranks - 1))
    actions = list(schedule.actions[rank])
    assume(actions)
    step = data.draw(st.integers(0, len(actions) - 1))
    change = data.draw(st.sampled_from(["drop", "double", "stage", "micro_batch"]))
    old = actions[step]
    if change == "drop":
        del actions[step]
    elif change == "double":
        actions.insert(data.draw(st.integers(0, len(actions))), old)
    elif change == "stage":
        stage = data.draw(st.integers(-1, schedule.placement.num_stages))
        assume(stage != old.stage)
        actions[step] = Action(stage, old.micro_batch)
    else:
        micro_batch = data.draw(st.integers(-1, n))
        assume(micro_batch != old.micro_batch)
        actions[step] = Action(old.stage, micro_batch)
    with pytest.raises(ScheduleError, match=f"rank {rank} step"):
        with_rank(schedule, rank, actions).check(n)


@settings(max_examples=200)
@given(problem=problems(), data=st.data())
def test_a_changed_order_is_refused_exactly_when_it_would_hang_or_break_fifo(problem, data):
    schedule = schedule_of(problem)
    rank = data.draw(st.integers(0, schedule.placement.num_ranks - 1))
    actions = data.draw(st.permutations(schedule.actions[rank]))
    changed = with_rank(schedule, rank, actions)
    if is_executable(changed):
        changed.check(len(problem[1]))
    else:
        with pytest.raises(ScheduleError):
            changed.check(len(problem[1]))


def is_executable(schedule):
    """Oracle: run the lists action by action, in any order that respects the dependencies."""
    lists = [list(actions) for actions in schedule.actions]
    done = set()
    progress = True
    while progress:
        progress = False
        for actions in lists:
            if not actions:
                continue
            stage, micro_batch = actions[0]
            needs = {(stage - 1, micro_batch), (stage, micro_batch - 1)}
            if all(s < 0 or mb < 0 or (s, mb) in done for s, mb in needs):
                done.add(tuple(actions.pop(0)))
                progress = True
    return not any(lists)


V = Schedule.from_text(
    "schedule v 2 ranks 2 virtual stages\nrank 0: 0.0 0.1 3.0 3.1\nrank 1: 1.0 2.0 1.1 2.1\n"
)


def test_a_valid_schedule_passes():
    V.check(2)
    assert V.num_micro_batches == 2


def test_a_deadlock_is_shown_in_the_grid():
    waits = with_rank(V, 0, [Action(0, 0), Action(3, 0), Action(0, 1), Action(3, 1)])
    with_rank(waits, 1, V.actions[1]).check(2)
    hangs = with_rank(waits, 1, [Action(1, 0), Action(1, 1), Action(2, 0), Action(2, 1)])
    with pytest.raises(ScheduleError, match="for ever") as caught:
        hangs.check(2)
    assert "rank 0 | a0 !b0  a1  b1" in str(caught.value)
    assert "rank 1 | a0 !a1  b0  b1" in str(caught.value)


def test_what_is_missing_is_marked_behind_the_list():
    with pytest.raises(ScheduleError, match="stage 2 runs 1 of 2") as caught:
        with_rank(V, 1, V.actions[1][:-1]).check(2)
    assert str(caught.value).splitlines()[-1] == "rank 1 |a0 b0 a1  !"


def test_a_stage_on_the_wrong_rank_names_its_owner():
    with pytest.raises(ScheduleError, match="stage 1 belongs to rank 1") as caught:
        with_rank(V, 0, [Action(1, 0), *V.actions[0]]).check(2)
    assert isinstance(caught.value, PlanError)


def test_a_schedule_of_another_number_of_micro_batches():
    with pytest.raises(ScheduleError, match="runs 2 of 3"):
        V.check(3)
    with pytest.raises(ScheduleError, match="there are 1 micro-batches"):
        V.check(1)


def test_a_schedule_of_another_number_of_ranks():
    with pytest.raises(ScheduleError, match="1 ranks; allowed: 2 ranks"):
        Schedule(V.placement, V.actions[:1]).check()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: empty"),
        ("rank 0: 0.0", "line 1"),
        ("schedule v 2 ranks 2 virtual stages\nrank 1: 0.0", "line 2.*rank 0:"),
        ("schedule v 1 ranks 2 virtual stages\nrank 0: 0.0 zero", "line 2"),
        ("schedule w 1 ranks 2 virtual stages\nrank 0: 0.0", "plain, loop, v"),
    ],
)
def test_text_that_is_no_schedule_names_the_line(text, says):
    with pytest.raises(PlanError, match=says):
        Schedule.from_text(text)


def test_an_error_crosses_processes():
    import pickle

    with pytest.raises(ScheduleError) as caught:
        V.check(3)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_the_grid_of_four_ranks_and_sixteen_micro_batches_fits_a_wide_screen():
    run = solve(Placement("v", 4, 2), [[1.0] * 8] * 16)
    lines = Schedule.of_walk(run).grid().splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 140
    assert lines[3].split("|")[1].split()[:4] == ["a0", "b0", "a1", "b1"]


def test_the_time_grid_shows_idling():
    run = solve(Placement("plain", 2), [[1.0, 1.0]] * 2)
    assert time_grid(run, columns=12).splitlines() == [
        "rank 0 |a0--a1--....",
        "rank 1 |....a0--a1--",
    ]
