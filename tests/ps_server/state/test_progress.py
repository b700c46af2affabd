"""The progress of a run, and its end."""

import pytest

from ps_common.protocol.messages import Episode
from ps_common.settings.run_spec import Budget
from ps_server.state.progress import MOST_METER_NAMES, OF_EVERY_WORKER, MeterNames, Progress

START = 1000.0
NO_LIMIT = Budget()


@pytest.fixture
def progress() -> Progress:
    """One whose minutes count from START."""
    return counting(now=START)


def counting(*, now: float) -> Progress:
    progress = Progress()
    progress.count_minutes(True, now=now)
    return progress


def play(progress: Progress, *returns: float, budget: Budget = NO_LIMIT, now: float = START) -> None:
    for value in returns:
        progress.episode_finished(Episode(value, 10), budget, now=now)


def update(progress: Progress, *, steps: int = 20, staleness: int = 0, gradient_norm: float = 1.0) -> None:
    progress.update_applied(steps=steps, staleness=staleness, gradient_norm=gradient_norm)


def test_the_mean_return_is_that_of_the_last_hundred_games_and_of_fewer_before(progress: Progress) -> None:
    assert progress.mean_return is None
    play(progress, 4.0)
    assert progress.mean_return == 4.0
    play(progress, 1.0, 1.0)
    assert progress.mean_return == 2.0
    play(progress, *range(200))
    assert progress.mean_return == sum(range(100, 200)) / 100
    assert progress.episodes == 203


def test_the_best_mean_is_that_of_a_whole_hundred_games(progress: Progress) -> None:
    play(progress, *[50.0] * 99)
    assert progress.best_mean is None
    assert not progress.save_as_best()
    play(progress, 50.0)
    assert progress.best_mean == 50.0
    assert progress.save_as_best()
    play(progress, *[-50.0] * 10)
    assert progress.best_mean == 50.0
    assert not progress.save_as_best()
    play(progress, *[60.0] * 100)
    assert progress.best_mean == 60.0
    play(progress, *[0.0] * 5)  # the best moment passes between two checkpoints: the next may still be the best saved
    assert progress.save_as_best()
    assert progress.best_saved == 57.0
    assert progress.best_mean == 60.0


def test_a_checkpoint_is_better_if_the_mean_of_a_whole_hundred_games_is_higher(progress: Progress) -> None:
    play(progress, *[50.0] * 99)
    assert not progress.is_better_than_saved
    play(progress, 50.0)
    assert progress.is_better_than_saved
    progress.save_as_best()
    play(progress, *[50.0] * 5)
    assert not progress.is_better_than_saved, "as good is not better"
    play(progress, 51.0)
    assert progress.is_better_than_saved


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(max_steps=40), "max_steps 40 reached"),
        (Budget(max_minutes=2.5), "max_minutes 2.5 reached"),
        (Budget(max_episodes=100), "max_episodes 100 reached"),
        (Budget(max_episodes=101), ""),
        (Budget(until_return=18), "mean return of the last 100 episodes reached 18"),
        (Budget(max_steps=40, max_minutes=2.5, until_return=18), "max_steps 40 reached"),
        (Budget(max_steps=41, max_minutes=3, until_return=18.5), ""),
        (NO_LIMIT, ""),
    ],
    ids=str,
)
def test_a_run_is_over_at_the_first_limit_reached(progress: Progress, budget: Budget, reason: str) -> None:
    update(progress, steps=40)
    play(progress, *[18.0] * 100, budget=budget)
    assert progress.end_of(budget, now=START + 150) == reason


def test_a_target_once_reached_stays_reached_and_its_minute_is_the_first(progress: Progress) -> None:
    budget = Budget(until_return=18)
    play(progress, *[18.0] * 100, budget=budget, now=START + 60)
    play(progress, -21.0, budget=budget, now=START + 120)
    play(progress, *[21.0] * 100, budget=budget, now=START + 180)
    assert progress.minutes_to_target == 1.0
    assert progress.end_of(budget, now=START + 180) != ""


def test_rates_are_those_of_the_last_seconds(progress: Progress) -> None:
    for second in range(60):
        progress.tick(now=START + second)
        update(progress, steps=30 if second < 40 else 70)
    now = START + 60
    assert progress.step_rate.per_second(progress.global_steps, now=now) == pytest.approx(70, rel=0.05)
    assert progress.update_rate.per_second(progress.updates, now=now) == pytest.approx(1, rel=0.05)


def test_a_restored_progress_goes_on_where_the_checkpoint_was_made(progress: Progress) -> None:
    update(progress, steps=40, staleness=3)
    update(progress, steps=2, staleness=4)
    play(progress, *[0.1 * number for number in range(130)])
    kept = progress.record(now=START + 90)
    again = counting(now=5.0)
    again.restore(kept)
    assert (again.global_steps, again.updates, again.episodes, again.staleness_sum) == (42, 2, 130, 7)
    assert (again.mean_return, again.best_mean) == (progress.mean_return, progress.best_mean)
    assert again.best_saved == progress.best_saved
    assert again.minutes(now=5.0) == 1.5
    assert again.minutes(now=35.0) == 2.0
    assert again.record(now=5.0) == kept
    for each in (progress, again):
        play(each, 7.0)
    assert again.mean_return == progress.mean_return


@pytest.mark.parametrize(("target", "minutes"), [(18, 1.0), (17, 2.0), (19, None), (None, None)])
def test_a_target_reached_before_a_restart_keeps_its_minute_unless_it_is_another(
    progress: Progress, target: float | None, minutes: float | None
) -> None:
    play(progress, *[18.0] * 100, *[-21.0] * 50, budget=Budget(until_return=18), now=START + 60)
    again, budget = Progress(), Budget(until_return=target)
    again.restore(progress.record(now=START + 120))
    if target != 18:
        again.target_changed(budget, now=0.0)
    again.judge(budget, now=0.0)
    assert again.minutes_to_target == minutes
    assert (again.end_of(budget, now=0.0) != "") is (minutes is not None)


def test_minutes_stand_still_until_they_count_and_whenever_they_do_not() -> None:
    progress = Progress()
    assert progress.minutes(now=START) == 0.0
    for begins, ends in ((60, 120), (600, 630)):
        progress.count_minutes(True, now=START + begins)
        progress.count_minutes(True, now=START + begins + 1)
        progress.count_minutes(False, now=START + ends)
        progress.count_minutes(False, now=START + ends + 1)
    assert progress.minutes(now=START + 6000) == 1.5


def test_the_names_of_meters_are_bounded_whoever_reports_them() -> None:
    names = MeterNames()
    assert names.known({"loss": 1.0, "metrics/fuel": 2.0}) == {"loss": 1.0, "metrics/fuel": 2.0}
    counted = {name for k in range(50) for name in names.known({f"{k}/{number}": 1.0 for number in range(32)})}
    assert len(counted) == MOST_METER_NAMES - 1
    usual = dict.fromkeys(OF_EVERY_WORKER, 1.0)
    assert names.known(usual | {"late": 4.0}) == usual, "whoever has filled the rest"
