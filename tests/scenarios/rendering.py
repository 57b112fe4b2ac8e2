"""Effects of machines as short lines that stay the same as long as the meaning does."""

from collections.abc import Iterable
from typing import assert_never

from shoal.core import events
from shoal.core.admission.events import AdmissionEffect
from shoal.core.artifacts.events import DropOutputs, FetchCheckpoint, FetchOutputs
from shoal.core.durability import journal
from shoal.core.environments.events import RemoveEnvironment
from shoal.core.forwarding.events import ForwardingEffect
from shoal.core.housekeeping.events import MeteredRun, RunsMetered
from shoal.model.job import Job
from shoal.model.resources import GIB, Allocation, Profile
from shoal.protocol import messages as m
from shoal.protocol.succession.messages import Adoption


def effect_line(effect: events.Effect) -> str | None:
    """Write one effect; None for gossip that no story is about."""
    match effect:
        case events.Send():
            return f"to {effect.peer}: {message(effect.message)}"
        case events.Publish():
            return f"publish: {message(effect.message)}"
        case events.Spread() | events.Provide():
            return None
        case events.Disconnect():
            return f"disconnect {effect.peer}: {effect.reason}"
        case events.LookUp():
            return f"look up {effect.lookup}: {effect.key}"
        case events.Record():
            how = "record" if effect.durable else "record loosely"
            return f"{how}: {entry(effect.entry)}"
        case events.Answer():
            refused = f" refused: {effect.refused}" if effect.refused else " accepted"
            return f"answer {effect.token}: {effect.job}{refused}"
        case events.StartTask():
            where = f"{effect.lease} on {allocation(effect.allocation)}"
            gang = f" gang {words(effect.gang)}" if effect.gang else ""
            several = f" of {', '.join(effect.owners)}" if effect.owners[1:] else ""
            reach = f" reaches {effect.network}" if effect.network != "none" else ""
            more = f"{gang}{several}{reach}"
            return f"start {effect.attempt} {effect.task.id} {where}{more}"
        case events.StopTask():
            return f"stop {effect.attempt} within {seconds(effect.grace_s)}"
        case events.MakeEnvironment() | RemoveEnvironment():
            return _environment_line(effect)
        case events.StageTask() | FetchOutputs() | DropOutputs() | FetchCheckpoint():
            return _artifact_line(effect)
        case events.Show() | events.DoubtOutput() | events.PauseOutput():
            return _output_line(effect)
        case events.SignGrant() | events.KeepGrant():
            return _grant_line(effect)
        case events.Tell():
            return _told(effect.event)
        case _:
            # Those of one feature are told by its own tests.
            assert isinstance(effect, ForwardingEffect | AdmissionEffect)
            return type(effect).__name__


def message(message: m.AnyMessage) -> str:
    """Write a message: its name, then what matters in it."""
    if isinstance(message, m.ToScheduler):
        return _to_scheduler(message)
    if isinstance(message, m.ToWorker):
        return _to_worker(message)
    match message:
        case m.PeersWanted():
            return f"peers-wanted {message.request} {message.count}"
        case m.PeersKnown():
            known = words(
                f"{p.node}@{','.join(p.addresses)}" if p.addresses else p.node
                for p in message.peers
            )
            return f"peers-known {message.request} {known}".rstrip()
        case m.ReservationWanted():
            return f"reservation-wanted {message.request}"
        case m.Reservation():
            length = seconds(message.valid_for_s)
            return f"reservation {message.request} for {length}"
        case m.Revocation():
            return f"revocation of {message.node} up to {message.serial}"
        case m.Hello():
            return "hello"
        case m.Join():
            return f"join {message.request} {message.name}".rstrip()
        case m.Introduction():
            return f"introduction {message.request} of {message.newcomer}"
        case m.Welcome():
            return f"welcome {message.request} for {message.grant.node}"
        case m.Goodbye():
            return f"goodbye {message.reason}".rstrip()
        case _:
            return str(message.__struct_config__.tag)  # Of hosts: no machine says it.


def _displaced(offer: m.Offer) -> str:
    if not offer.displaces:
        return ""
    lost = [f"{loss.work} of priority {loss.priority}" for loss in offer.destroys]
    return f" displaces {offer.displaces}, destroys {' and '.join(lost)}"


def _to_scheduler(message: m.ToScheduler) -> str:
    match message:
        case m.Offer():
            length = seconds(message.valid_for_s)
            offered = f"offer {message.request} {words(message.leases)} for {length}"
            return offered + _displaced(message)
        case m.Refusal():
            what = [message.request, str(message.attempt or ""), *message.leases]
            return f"refusal {words(what)}: {message.reason}"
        case m.Committed():
            return f"committed {message.request} {words(message.leases)}"
        case m.Withdrawal():
            return f"withdrawal {words(message.leases)}: {message.reason}"
        case m.Renewed():
            alive = [_occupied(one) for one in message.leases]
            gone = ["gone", *message.gone] if message.gone else []
            return words(["renewed", *alive, *gone])
        case m.Preemption():
            grace = seconds(message.grace_s)
            return f"preemption {message.lease} within {grace}: {message.reason}"
        case m.Started():
            where = f"{message.lease} on {allocation(message.allocation)}"
            return f"started {message.attempt} {where}"
        case m.Report():
            next_ = f", {message.next} starts" if message.next else ""
            ended = f"{message.attempt} {message.lease} {outcome(message.outcome)}"
            after = f" after output {message.place.number}" if message.place else ""
            missing = f" without {message.missing} bytes" if message.missing else ""
            return f"report {ended}{next_}{after}{missing}"
        case m.Inventory():
            terms = f": {message.terms}" if message.terms else ""
            told = f"{message.epoch}.{message.seq} {load(message.load)}{terms}"
            return f"inventory {told}"
        case m.InventoryChanged():
            return f"load {message.epoch}.{message.seq} {load(message.load)}"
        case m.LoadDigest():
            return f"digest {message.epoch}.{message.seq} {load(message.load)}"
        case m.Progress():
            return f"progress {message.attempt} #{message.seq} {message.fraction}"
        case m.Output():
            text = message.data.decode(errors="replace")
            number = f" #{message.place.number}" if message.place else ""
            which = f"{message.stream}+{message.offset}"
            return f"output{number} {message.attempt} {which} {text}"
        case m.Staging() | m.Checkpoint():
            kind = message.__struct_config__.tag
            said = getattr(message, "note", "") or getattr(message, "made", "")
            how = f": {said}" if said else f" #{message.seq}"
            return f"{kind} {message.attempt}{how}"
        case _:
            assert_never(message)


def _to_worker(message: m.ToWorker) -> str:
    match message:
        case m.Announcement():
            wants = words(f"{w.count}x({profile(w.profile)})" for w in message.wants)
            return f"announcement {message.epoch}.{message.seq} wants {wants}"
        case m.Inquiry():
            return f"inquiry {message.request}"
        case m.Demand():
            preempt = " preempt" if message.preempt else ""
            what = f"{message.count}x({profile(message.profile)})"
            rank = f"priority {message.rank.priority}"
            verb = "claim" if message.claim else "demand"
            return f"{verb} {message.request} {what} {rank}{preempt}"
        case m.Commit():
            length = seconds(message.lease_s)
            return f"commit {message.request} {words(message.leases)} for {length}"
        case m.Release():
            if message.requests:
                return f"forgo {words(message.requests)}"
            return f"release {words(message.leases)}"
        case m.Renew():
            saved = [f"{one.lease}, saved {one.age_s:g} s ago" for one in message.saved]
            return f"renew {words(message.leases)} for {seconds(message.lease_s)}" + (
                f" ({'; '.join(saved)})" if saved else ""
            )
        case m.Assignment():
            gang = f" gang {words(message.gang)}" if message.gang else ""
            after = f" after {message.after}" if message.after else ""
            if message.checkpoint:
                after += f" from {message.checkpoint}"
            if message.inputs:
                after += f" with {words(each.tree for each in message.inputs)}"
            what = f"{message.attempt} {message.task.id} {message.lease}"
            return f"assignment {what}{gang}{after}"
        case m.Cancel():
            grace = seconds(message.grace_s)
            how = "unless started" if message.unless_started else f"within {grace}"
            return f"cancel {message.attempt} {message.lease} {how}"
        case m.Acknowledgement():
            return f"acknowledgement {words(message.attempts)}"
        case m.OutputReceipt():
            gap = " gap" if message.gap else ""
            return f"output-receipt up to {message.taken}{gap}"
        case Adoption():
            names = (f"{each.was} as {each.attempt}" for each in message.claims)
            return words(["adoption", *names, f"term {message.term}"])
        case _:
            assert_never(message)


def entry(entry: journal.Entry) -> str:
    """Write what a scheduler writes into its journal."""
    match entry:
        case journal.Incarnated():
            return f"incarnated {entry.generation}"
        case journal.Submitted():
            job: Job = entry.job
            return f"submitted {job.id} of {job.owner} priority {job.priority}"
        case journal.Assigned():
            places = words(f"{p.attempt}={p.task}@{p.lease}" for p in entry.places)
            return f"assigned {places}"
        case journal.Returned():
            counts = f"failures {entry.failures} crashes {entry.crashes}"
            return f"returned {entry.attempt} {entry.task} {counts}: {entry.reason}"
        case journal.RetriesRenewed():
            return f"renewed {entry.task}"
        case journal.Finished():
            by = f" by {entry.attempt}" if entry.attempt else ""
            why = f": {entry.reason}" if entry.reason else ""
            return f"finished {entry.task} {entry.state}{by}{why}"
        case journal.Cancelled():
            return f"cancelled {entry.job}"
        case journal.Answered():
            answer = entry.answer
            said = answer.outcome.digest or outcome(answer.outcome)
            return (
                f"answered {entry.task} by {answer.attempt} of {answer.owner}: {said}"
            )
        case journal.Judged():
            return f"judged {entry.worker} of {entry.owner}: {entry.verdict}"
        case _:
            return type(entry).__name__.lower() + f" {_fields(entry)}"


def _fields(entry: object) -> str:
    names = [name for name in ("task", "attempt") if hasattr(entry, name)]
    return words(getattr(entry, name) for name in names)


def outcome(outcome: m.Outcome) -> str:
    """Write how an attempt ended."""
    code = "" if outcome.exit_code is None else f" {outcome.exit_code}"
    why = f": {outcome.reason}" if outcome.reason else ""
    return f"{outcome.kind}{code}{why}"


def profile(profile: Profile) -> str:
    """Write what one task needs."""
    parts = [f"cpu {profile.cpu_milli / 1000:g}"] if profile.cpu_milli else []
    if profile.memory_bytes:
        parts.append(f"memory {profile.memory_bytes / GIB:g}")
    if profile.gpu:
        parts.append(f"gpu {profile.gpu.count}")
    return " ".join(parts) or "nothing"


def allocation(allocation: Allocation) -> str:
    """Write what a lease occupies."""
    devices = [share.device for share in allocation.shares]
    return words([f"cpu {allocation.cpu_milli / 1000:g}", *devices])


def load(load: m.Load) -> str:
    """Write what is free."""
    gpus = [f"gpu {sum(load.gpu_milli) / 1000:g}"] if load.gpu_milli else []
    draining = ["draining"] if load.draining else []
    active = [f"active {load.active}"] if load.active else []
    return words([f"cpu {load.cpu_milli / 1000:g}", *gpus, *active, *draining])


def seconds(span_s: float) -> str:
    """Write a duration, to the millisecond."""
    return f"{round(span_s, 3):g} s"


def _artifact_line(
    effect: events.StageTask | FetchOutputs | DropOutputs | FetchCheckpoint,
) -> str:
    if isinstance(effect, events.StageTask):
        return f"stage {effect.start.attempt} {effect.start.task.id}"
    if isinstance(effect, FetchCheckpoint):
        return f"fetch checkpoint {effect.tree} of {effect.task} at {effect.worker}"
    if isinstance(effect, DropOutputs):
        return f"drop outputs of {effect.attempt}"
    known = f", known {words(effect.earlier)}" if effect.earlier else ""
    compared = f" to compare{known}" if effect.verify else ""
    return f"fetch outputs of {effect.attempt} at {effect.worker}{compared}"


def _grant_line(effect: events.SignGrant | events.KeepGrant) -> str:
    if isinstance(effect, events.SignGrant):
        return f"sign {effect.request} for {effect.peer}"
    return f"keep the grant until {effect.grant.expires_wall_s:.0f}"


def _output_line(
    effect: events.Show | events.DoubtOutput | events.PauseOutput,
) -> str:
    match effect:
        case events.Show():
            return f"show {effect.task.id}: {message(effect.message)}"
        case events.DoubtOutput():
            why = f"doubted: {effect.reason}" if effect.reason else "whole"
            return f"the log of {effect.attempt} is {why}"
        case events.PauseOutput():
            what = "pause" if effect.paused else "resume"
            return f"{what} output to {effect.scheduler}"


def _environment_line(effect: events.MakeEnvironment | RemoveEnvironment) -> str:
    if isinstance(effect, RemoveEnvironment):
        return "remove an environment"
    reach = f" reaches {effect.network}" if effect.network != "none" else ""
    made = words((effect.need.kind, effect.need.name))
    return f"make {made} for {effect.start.attempt}{reach}"


def words(parts: Iterable[object]) -> str:
    """Join what is not empty."""
    return " ".join(text for part in parts if (text := str(part)))


def _occupied(one: m.Occupied) -> str:
    return f"{one.lease}@{one.attempt}" if one.attempt else one.lease


def _told(event: events.Event) -> str:
    if isinstance(event, RunsMetered):
        return " ".join(["meter:", *map(_metered, event.runs)])
    return f"tell the other machines: {type(event).__name__}"


def _metered(run: MeteredRun) -> str:
    return f"{run.job} {run.kind} {run.spent_s:g} s at {run.node}"
