"""How long things may take, in seconds, in one place, and how they fit together.

A hold outlives the round of negotiation that it belongs to, so a commit that is sent
in time arrives in time. A lease outlives several renewals, so a few lost messages do
not cost a task. A scheduler gives a worker up later than the worker gives up the
lease, whatever their clocks do within `DRIFT_MAX`. The scheduler of a kept job stops to
start tasks of it (`SWAY_S`) well before another may begin to (`GONE_S`), and leases of
such a job last until that one has taken them over.
"""

from typing import Final

from shoal.model.backoff import Backoff

HOLD_S: Final = 6.0  # a worker keeps an offer open
ROUND_S: Final = 3.0  # a scheduler collects the offers of a gang
ELASTIC_ROUND_S: Final = 0.5  # it waits so long for more than the least it needs
LOOK_AROUND_S: Final = 0.1  # before a gang is placed, others may say what they have
PATIENCE_S: Final = 120.0  # gangs are taken to run so long, if none has ended here yet
PATIENCE_MIN_S: Final = 5.0  # and never shorter
PATIENCE_MAX_S: Final = 300.0  # a gang waits no longer for a good place
ROUND_PAUSE: Final = Backoff(0.1, 8.0, spread=(0.5, 1.0))  # between two rounds
ROOM_PAUSE_S: Final = 25.0  # between two rounds of a gang for which there is no room

LEASE_S: Final = 15.0  # a committed lease lives between renewals
LEASE_MAX_S: Final = 120.0  # a worker grants no more than this
RENEW_S: Final = 4.0  # a scheduler renews this often
LINGER_S: Final = 2.0  # a lease without a task waits for the next one
AHEAD_S: Final = 0.1  # so much work may wait at a lease behind what runs there
RECALL_S: Final = 0.3  # what waits longer is called back, for another lease to run
ENDS_TOGETHER_S: Final = 0.005  # ends wait to be synced together, if the next one runs
TENURE_S: Final = 60.0  # after this a lease takes no further task, if others wait
DRIFT_MAX: Final = 0.01  # two clocks differ by at most this in rate
KILL_S: Final = 5.0  # from the end of the grace until nothing is left of a task

WAIT_ASK_S: Final = 4.0  # a waiting group asks full workers this often, to be known
WAIT_S: Final = 6.0  # and wants to be remembered until it asks again
GANG_WAIT_S: Final = 30.0  # a gang likewise, through a round and the longest pause
WAIT_MAX_S: Final = 30.0  # no worker remembers longer

KEPT_LEASE_S: Final = 90.0  # a lease of a kept job: until another takes the job up
BEAT_S: Final = 3.0  # the scheduler of a kept job tells its keepers that it lives
SWAY_S: Final = 10.0  # it starts tasks so long after most of them heard that
GONE_S: Final = 20.0  # and they let nobody else schedule the job for so long
STAGGER_S: Final = 2.0  # between two keepers that want to take a job up
KEPT_ANSWER_S: Final = 5.0  # a client waits no longer for keepers

RESEND_S: Final = 0.7  # an unanswered message is repeated
RESEND: Final = Backoff(RESEND_S, 10.0)  # and again, ever more slowly
REPORT_KEEP_S: Final = 3_600.0  # a worker keeps a report nobody acknowledges

INVENTORY_DELAY_S: Final = 0.1  # changes of load are gathered this long
INVENTORY_REFRESH: Final = Backoff(8.0, 24.0)  # and repeated, ever more rarely
VIEW_TTL_S: Final = 80.0  # a view nobody refreshed is dropped; older nodes: 30 s
DIGEST_S: Final = 1.0  # a worker says what is free, at most this often
GOSSIP_S: Final = 1.0  # and neighbours pass on what they heard, likewise
HEARSAY_S: Final = 0.5  # those that gossip names have this long before all are asked

ANNOUNCE: Final = Backoff(1.0, 60.0, spread=(0.9, 1.1))  # between announcements
LOOKUP_AGAIN_S: Final = 10.0
PROVIDE_AGAIN_S: Final = 600.0

RETRY: Final = Backoff(1.0, 60.0)  # before a failed task is tried again
START_AGAIN: Final = Backoff(0.1, 60.0)  # likewise, if a worker could not start it
STRAGGLER_CHECK_S: Final = 2.0

INPUT_S: Final = 60.0
"""A task whose standard input nobody sends ends after this."""

LOOK_LENT_S: Final = 0.5
LOOK_S: Final = 1.0
"""How often to look for a machine's owner: while others use it, and otherwise."""

METER_S: Final = 60.0
"""How often the time of attempts that go on is counted."""
