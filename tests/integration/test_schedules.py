"""A schedule on a real node: it starts by the clock, and a restart repeats nothing."""

from pathlib import Path

import pytest
from tests.integration.transcripts import Session

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"

SESSION = """\
a$ shoal up --background -q --port 0
a$ shoal run --schedule "0 3 * * *" -- true
error: a job with a schedule does not run now
why:   each of its runs starts at its own time
next:  `shoal submit` with the same arguments; ...
(exit 2)
a$ shoal submit --schedule "0 3 * *" -- true
error: '0 3 * *' is not a schedule - at `--schedule`
why:   a schedule has 5 fields, and this has 4
next:  write it like `0 3 * * *`: ...
(exit 2)
a$ cat > far.yaml <<END
> command: "true"
> schedule: {cron: "0 3 * * *", timezone: Mars/Base}
> END
a$ shoal submit far.yaml
error: the job was not accepted: there is no time zone 'Mars/Base' on this machine
...
(exit 1)
a$ shoal submit -q --name beat --schedule "* * * * *" -- sleep 300
{beat}
a$ sleep $((60 - $(date +%-S)))
a% shoal show {beat}-1
job  {beat}-1  beat
state  running
of  {beat}
...
a$ shoal down -q
a$ shoal up --background -q --port 0
a$ shoal ps --name beat
#  JOB  NAME  STATE  TASKS  NODE  AGE  WHY
1  {beat}  beat  scheduled  1 task  ...  next run ...
2  {beat}-1  beat  ...
a$ shoal explain {beat}
{beat}.main.0 is blocked
  asks  1 CPU · no GPU
  why  it is a schedule: each of its runs is a job of its own
...
a$ shoal cancel -q {beat}
a$ shoal cancel -q {beat}-1
a$ shoal ps --active -q
"""


def test_a_schedule_starts_a_job_at_its_minute_and_not_again_after_a_restart(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path, EXAMPLES)
    try:
        session.play(SESSION)
    finally:
        session.close()
