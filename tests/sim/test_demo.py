import pytest

from shoal.sim.demo import tell


def test_the_demo_tells_a_story_in_which_nothing_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = tell()

    told = capsys.readouterr().out
    assert outcome.violations == ()
    assert "announces by gossip" in told
    assert "starts all 4 of the gang train" in told
    assert "preempts tasks with notice: priority 50 > -10" in told
    assert "again to" in told
    assert "takes up ada:1." in told
    assert "19 of 19 tasks done, none lost, none ended twice" in told
    assert told.splitlines()[-1].startswith("next: make sim-soak")
    assert max(len(line) for line in told.splitlines()) <= 80
    assert "\x1b" not in told
