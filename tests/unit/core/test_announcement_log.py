from shoal.core.discovery.announcement_log import ECHO_S, HEARD_MAX, AnnouncementLog
from shoal.model.ids import NodeId
from shoal.protocol.messages import Announcement

ANN = NodeId("ann")


def test_an_announcement_counts_once_until_some_time_has_passed() -> None:
    log = AnnouncementLog()
    said, next_ = (Announcement(scheduler=ANN, seq=seq) for seq in (1, 2))

    assert not log.repeats(said, 0.0)
    assert log.repeats(said, 1.0)
    assert not log.repeats(next_, 2.0)
    assert log.repeats(said, ECHO_S - 0.1)
    assert not log.repeats(said, ECHO_S + 0.1)


def test_few_announcements_are_remembered() -> None:
    log = AnnouncementLog()
    for seq in range(2 * HEARD_MAX):
        log.repeats(Announcement(scheduler=ANN, seq=seq), 0.0)

    assert len(log) == HEARD_MAX
