"""Derive groups, tasks and profiles from a job spec.

All of it is known before anything is placed. A job without steps has one group,
`main`; a step is a group of its own name. An array or a sweep makes one task for each
of its points. A job on several nodes is a gang of one task for each node; an array or
sweep of gangs is one group for each point, `main-0`, `main-1` and so on. Some recipes
have several parts (`recipes.py`), each of which is a group.

In a command, `{name}` stands for a param, `{index}` for the index of an array or the
number of a point of a sweep, `{rank}` for the place in a gang. `{{name}}` is the text
`{name}`; braces around anything that is not a name are left alone, so JSON and code
pass as they are. The words of a command are split before the placeholders are filled:
a value never becomes two words, and no shell ever sees it.
"""

from __future__ import annotations

import re
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, final

import msgspec
from msgspec.structs import replace

from shoal.errors import SpecError, did_you_mean
from shoal.model.gpu import parse_gpu
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.inputs import inputs_from
from shoal.model.job import (
    INDEX,
    Group,
    Job,
    OnEnd,
    Task,
    TaskArray,
    Tasks,
    Work,
    each_changed,
)
from shoal.model.kinds import PROGRAM, RECIPE, is_built_in
from shoal.model.resources import Profile
from shoal.model.spec.canonical import at, canonical, nodes_of
from shoal.model.spec.documents import text_of
from shoal.model.spec.environments import python_need
from shoal.model.spec.limits import (
    ARGV_CHARS_MAX,
    ARGV_CHARS_TOTAL_MAX,
    GROUPS_MAX,
    TASKS_DERIVED_MIN,
)
from shoal.model.spec.points import parse_array, points, refuse_too_many
from shoal.model.spec.recipes import RecipePart, parts_of, retry_of
from shoal.model.spec.schedules import schedule_of
from shoal.model.spec.steps import step_job, step_order
from shoal.model.spec.sweeps import labels_of, objective_of
from shoal.model.spec.verification import STDOUT, check_verify, verify_of
from shoal.model.text.bounds import INPUTS_MAX, NAME_LENGTH_MAX
from shoal.model.text.texts import one_line
from shoal.model.units import parse_cpu, parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shoal.model.ids import BlobId
    from shoal.model.job import Input, NeedSource, Occurrence, Scalar
    from shoal.model.spec.spec import JobSpec, ResourcesSpec

MAIN: Final = "main"
CPU_DEFAULT: Final = "1"

_HOLE: Final = "\0"  # stands for an index; no word of a command can have it

_PLACEHOLDER: Final = re.compile(
    r"\{\{([A-Za-z_][A-Za-z0-9_.-]*)\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}"
)


def derive(
    spec: JobSpec,
    job: JobId,
    owner: OwnerId,
    priority: int | None = None,
    *,
    is_canonical: bool = False,
) -> Job:
    """Return the job that `spec` describes; `priority` replaces that of the spec.

    `is_canonical` says that it has been checked, as everything loaded has been.
    """
    spec = spec if is_canonical else canonical(spec)
    placement, rtt = spec.placement, spec.placement.max_rtt
    assert not isinstance(placement.same_leaf, bool)
    return Job(
        id=job,
        owner=owner,
        name=spec.name or _default_name(spec),
        groups=_Derivation(job).groups(spec),
        priority=spec.priority if priority is None else priority,
        preempt=spec.preempt,
        preemptible=spec.preemptible,
        at_most_once=spec.at_most_once,
        speculate=spec.speculate,
        keepers=spec.keepers,
        retry=retry_of(spec),
        policy=placement.policy,
        max_rtt_s=None if rtt is None else parse_duration(rtt),
        same_leaf=placement.same_leaf,
        nodes=tuple(map(NodeId, placement.node)),
        on_end=_on_end(spec),
        schedule=schedule_of(spec.schedule),
    )


def profiles_of(
    spec: JobSpec,
    modules: tuple[str, ...] = (),
    uses: tuple[str, ...] = (),
    longest_s: int = 0,
) -> tuple[Profile, ...]:
    """Return what one task of `spec` needs, the favourite alternative first."""
    labels = tuple((k, text_of(v)) for k, v in sorted(spec.placement.labels.items()))
    rest = Profile(labels=labels, modules=modules, uses=uses, longest_s=longest_s)
    needs = spec.any_of or (spec.resources,)
    return tuple(_profile(need, spec.resources, rest) for need in needs)


def _profile(need: ResourcesSpec, rest: ResourcesSpec, base: Profile) -> Profile:
    gpu, cpu, ram, disk = (
        getattr(rest, field) if (own := getattr(need, field)) is None else own
        for field in ("gpu", "cpu", "ram", "disk")
    )
    return msgspec.structs.replace(
        base,
        cpu_milli=parse_cpu(CPU_DEFAULT if cpu is None else cpu),
        memory_bytes=parse_size(ram or 0),
        disk_bytes=parse_size(disk or 0),
        gpu=parse_gpu(gpu or 0),
    )


@final
class _Derivation:
    """Makes the groups of one job, and counts what it makes against the limits."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._made: dict[GroupId, Group] = {}
        self._tasks = 0
        self._listed = 0  # of these, how many are not in a large array
        self._argv_chars = 0

    def groups(self, spec: JobSpec) -> tuple[Group, ...]:
        """Return all groups, each after those it needs."""
        if not spec.steps:
            self._add_parts(spec, MAIN, (), "$")
        of_step: dict[str, tuple[GroupId, ...]] = {}
        for name in step_order(spec):
            needed = (of_step[other] for other in spec.steps[name].needs)
            needs = tuple(group for groups in needed for group in groups)
            step, path = step_job(spec, name), f"$.steps.{name}"
            of_step[name] = self._add_parts(step, name, needs, path)
            if spec.steps[name].inputs:
                self._refuse_many_inputs(needs, path)
            else:
                self._take_no_outputs(of_step[name])
        return tuple(self._made.values())

    def _take_no_outputs(self, groups: tuple[GroupId, ...]) -> None:
        for group in groups:
            self._made[group] = replace(self._made[group], takes_outputs=False)

    def _refuse_many_inputs(self, needs: tuple[GroupId, ...], path: str) -> None:
        """Raise if a step would be handed more trees than one message can name."""
        groups = map(self._made.__getitem__, needs)
        count = sum(
            len(group.tasks) * bool(group.tasks[0].work.outputs) for group in groups
        )
        if count > INPUTS_MAX:
            raise SpecError(
                f"the step would be handed the outputs of {count} tasks",
                path=f"{path}.needs",
                because=f"the most is {INPUTS_MAX}",
                hint="`inputs: false` lets it start without them, after they are done",
            )

    def _add_parts(
        self, spec: JobSpec, name: str, needs: tuple[GroupId, ...], path: str
    ) -> tuple[GroupId, ...]:
        """Make the groups of all parts of a recipe."""
        parts = parts_of(spec, name, path)
        made = (self._add_points(part, needs, path) for part in parts)
        return tuple(group for groups in made for group in groups)

    def _add_points(
        self, part: RecipePart, needs: tuple[GroupId, ...], path: str
    ) -> tuple[GroupId, ...]:
        """Make one group for all points, or one for each if each is a gang."""
        name, spec = part.name, part.spec
        own = at(path, points, spec)
        is_many = spec.array is not None or spec.sweep is not None
        least, most = nodes_of(spec)
        shared = _Shared(spec, path, part)
        group = GroupId(f"{self._job}.{name}")
        if _is_large_array(spec):
            self._count(len(own), path, listed=False)
            made = Group(id=group, tasks=self._array(shared, group), needs=needs)
            return (self._add(made, path),)
        self._count(len(own) * most, path, listed=True)
        labels = labels_of(own) if is_many else [""]
        if most == 1:
            tasks = tuple(
                self._task(shared, group, (n, len(own)), (n, point, labels[n]), 0)
                for n, point in enumerate(own)
            )
            verify = verify_of(spec)
            made = Group(
                id=group,
                tasks=tasks,
                needs=needs,
                verify=verify,
                objective=objective_of(spec),
            )
            return (self._add(made, path),)
        check_verify(spec, path, most)
        ids: list[GroupId] = []
        for n, point in enumerate(own):
            group = GroupId(f"{self._job}.{name}" + (f"-{n}" if is_many else ""))
            tasks = tuple(
                self._task(shared, group, (rank, most), (n, point, labels[n]), rank)
                for rank in range(most)
            )
            gang = Group(
                id=group,
                tasks=tasks,
                gang_min=least,
                needs=needs,
                objective=objective_of(spec),
            )
            ids.append(self._add(gang, path))
        return tuple(ids)

    def _count(self, tasks: int, path: str, *, listed: bool) -> None:
        """Refuse to make more tasks than a job may have."""
        self._tasks += tasks
        self._listed += tasks * listed
        at(path, partial(refuse_too_many, listed=True), self._listed)
        at(path, refuse_too_many, self._tasks)

    def _array(self, shared: _Shared, group: GroupId) -> TaskArray:
        """Make a large array of one task, and of what tells the others from it."""
        assert shared.spec.array is not None
        indexes = parse_array(shared.spec.array)
        assert isinstance(indexes, range)
        own: dict[str, Scalar] = {INDEX: indexes[0]}
        place = (0, len(indexes))
        first = self._task(shared, group, place, (0, own, str(indexes[0])), 0)
        shared.work_of(0, {INDEX: indexes[-1]}, 0)  # The longest must fit, too.
        cut = shared.work_of(0, {INDEX: _HOLE}, 0).argv
        words = tuple(tuple(word.split(_HOLE)) for word in cut)
        return TaskArray(
            first=first,
            count=len(indexes),
            start=indexes[0],
            step=indexes.step,
            words=words if any(len(pieces) > 1 for pieces in words) else (),
        )

    def _add(self, group: Group, path: str) -> GroupId:
        if group.id in self._made:
            raise SpecError(
                f"two groups are called '{group.id}'",
                path=path,
                because="a sweep of gangs numbers its groups, and a step has that name",
                hint="rename the step",
            )
        self._made[group.id] = group
        if len(self._made) > GROUPS_MAX:
            raise SpecError(
                f"{len(self._made)} groups are too many",
                path=path,
                because=f"one job may have {GROUPS_MAX}; each gang of a sweep is one",
                hint="submit several jobs",
            )
        return group.id

    def _task(
        self,
        shared: _Shared,
        group: GroupId,
        place: tuple[int, int],
        point: tuple[int, Mapping[str, Scalar], str],
        rank: int,
    ) -> Task:
        index, size = place
        number, own, label = point
        work = shared.work_of(number, own, rank)
        self._argv_chars += sum(len(word) for word in work.argv)
        if self._argv_chars > ARGV_CHARS_TOTAL_MAX:
            raise SpecError(
                "the commands of all tasks are too long",
                path=shared.path,
                because=f"together they have over {ARGV_CHARS_TOTAL_MAX} characters",
                hint="put long values into a file of the workdir",
            )
        return Task(
            id=TaskId(f"{group}.{index}"),
            job=self._job,
            group=group,
            index=index,
            size=size,
            params={**shared.spec.params, **own},
            work=work,
            profiles=shared.profiles,
            time_limit_s=shared.time_limit_s,
            grace_s=shared.grace_s,
            label=label,
            alone=shared.is_gang and shared.spec.placement.distinct_nodes,
            memory_from=shared.memory_from,
            gpu_memory_from=shared.gpu_memory_from,
        )


@final
class _Shared:
    """What all tasks of one job or step have in common."""

    def __init__(self, spec: JobSpec, path: str, part: RecipePart) -> None:
        self.spec = spec
        self.memory_from: NeedSource = _source(part.assessed.memory)
        self.gpu_memory_from: NeedSource = _source(part.assessed.gpu_memory)
        self.path = path
        self.is_gang = nodes_of(spec)[1] > 1
        limit = spec.time_limit
        self.time_limit_s = None if limit is None else parse_duration(limit)
        self.grace_s = parse_duration(spec.grace)
        work = Work(
            # An image runs in a container, even if the spec does not say so.
            driver="container" if spec.image else spec.driver,
            argv=_words(spec.command),
            setup=_words(spec.setup),
            env={name: text_of(value) for name, value in spec.env.items()},
            secrets=spec.secrets,
            image=spec.image,
            workdir=spec.workdir,
            outputs=spec.outputs,
            network=spec.network,
            recipe=spec.recipe or "",
            keep_stdout=spec.verify is not None and spec.verify.compare == STDOUT,
            python=python_need(spec),
            mounts=spec.mounts,
            caches=spec.cache,
            stdin=spec.stdin,
        )
        if is_built_in(work, spec.params) and not _sweeps(spec, PROGRAM):
            work = msgspec.structs.replace(work, driver=RECIPE)
        self._work = work
        self.profiles = profiles_of(spec, part.modules, work.uses, self._longest_s)
        self._texts = {k: text_of(value) for k, value in spec.params.items()}
        self._texts.update(spec.params_text)
        least, most = nodes_of(spec)
        self._elastic = least < most

    @property
    def _longest_s(self) -> int:
        limit_s = self.time_limit_s
        return 0 if limit_s is None else ceil(limit_s + self.grace_s)

    def work_of(self, number: int, own: Mapping[str, Scalar], rank: int) -> Work:
        """Return the work of one task, with its placeholders filled."""
        texts = {**self._texts, "index": str(number)}
        texts.update((name, text_of(value)) for name, value in own.items())
        if not self._elastic:
            texts["rank"] = str(rank)
        argv = tuple(
            self._filled(word, f"{self.path}.command[{place}]", texts)
            for place, word in enumerate(self._work.argv)
        )
        size = sum(len(word) for word in argv)
        if size > ARGV_CHARS_MAX:
            raise SpecError(
                "the command is too long with its params filled in",
                path=f"{self.path}.command",
                because=f"it has {size} characters, the most is {ARGV_CHARS_MAX}",
                hint="put long values into a file of the workdir",
            )
        return msgspec.structs.replace(self._work, argv=argv)

    def _filled(self, word: str, path: str, texts: Mapping[str, str]) -> str:
        def text(found: re.Match[str]) -> str:
            escaped, name = found.groups()
            if escaped is not None:
                return f"{{{escaped}}}"
            if name not in texts:
                raise self._unknown(name, path, texts)
            return texts[name]

        return _PLACEHOLDER.sub(text, word)

    def _unknown(self, name: str, path: str, texts: Mapping[str, str]) -> SpecError:
        because = f"the placeholders are {', '.join(sorted(texts))}"
        if name == "rank":
            because = "an elastic gang numbers its tasks when they start"
        return SpecError(
            f"nothing is known for placeholder {{{name}}}",
            path=path,
            because=because,
            hint=did_you_mean(name, texts)
            or f"write {{{{{name}}}}} if it is plain text",
        )


def _is_large_array(spec: JobSpec) -> bool:
    """Whether the tasks of a spec are derived when needed, and not all at once.

    Whoever compares or keeps them wants each at hand.
    """
    if spec.array is None or nodes_of(spec)[1] > 1:
        return False
    if spec.verify is not None or spec.keepers or spec.objective is not None:
        return False
    indexes = parse_array(spec.array)
    return isinstance(indexes, range) and len(indexes) >= TASKS_DERIVED_MIN


def _source(is_estimate: bool) -> NeedSource:
    return "recipe" if is_estimate else "spec"


def _words(command: str | tuple[Scalar, ...] | None) -> tuple[str, ...]:
    assert not isinstance(command, str)
    return tuple(text_of(word) for word in command or ())


def _on_end(spec: JobSpec) -> OnEnd | None:
    if spec.on_end is None:
        return None
    return OnEnd(spec.on_end.webhook, _words(spec.on_end.command))


def _default_name(spec: JobSpec) -> str:
    name = spec.recipe or next(iter(_words(spec.command)), "steps")
    return one_line(name)[:NAME_LENGTH_MAX]


def _sweeps(spec: JobSpec, param: str) -> bool:
    """Whether tasks of a sweep differ in this param."""
    points = (spec.sweep,) if isinstance(spec.sweep, dict) else spec.sweep or ()
    return any(param in point for point in points)


def renamed(job: Job, id_: JobId) -> Job:
    """Return the same job under another id: what was derived need not be again."""
    groups = tuple(
        replace(
            group,
            id=GroupId(_renamed(group.id, job.id, id_)),
            tasks=each_changed(group.tasks, lambda task: _task_of(task, job.id, id_)),
            needs=tuple(GroupId(_renamed(each, job.id, id_)) for each in group.needs),
        )
        for group in job.groups
    )
    return replace(job, id=id_, groups=groups)


def _task_of(task: Task, old: JobId, new: JobId) -> Task:
    id_ = TaskId(_renamed(task.id, old, new))
    return replace(task, id=id_, job=new, group=GroupId(_renamed(task.group, old, new)))


def again(
    job: Job,
    id_: JobId,
    done: Collection[TaskId] = (),
    outputs: Mapping[TaskId, BlobId] | None = None,
    *,
    occurrence: Occurrence | None = None,
) -> Job:
    """Return a new job with the tasks of an old one, except the `done` ones.

    A task keeps its index, so its part of the work stays the same. A gang runs whole
    or not at all, also the second time. `outputs` of tasks that do not run again are
    handed to what needs them. There must be something left to do. What comes again of
    a schedule is a run of it, at once or as its next `occurrence`.
    """
    groups: list[Group] = []
    rerun = {group.id: _left(group, done) for group in job.groups}
    for group in job.groups:
        if not (left := rerun[group.id]):
            continue
        name = GroupId(_renamed(group.id, job.id, id_))
        tasks = each_changed(left, lambda task: _task_of(task, job.id, id_))
        needs = tuple(
            GroupId(_renamed(needed, job.id, id_))
            for needed in group.needs
            if rerun[needed]
        )
        inputs = _kept_inputs(group, job, rerun, outputs or {})
        made = replace(group, id=name, tasks=tasks, needs=needs, inputs=inputs)
        groups.append(made)
    assert groups, "all tasks are done"
    return replace(
        job, id=id_, groups=tuple(groups), schedule=None, occurrence=occurrence
    )


def _left(group: Group, done: Collection[TaskId]) -> Tasks:
    """Return the tasks of a group that run again, if any."""
    if not done:
        return group.tasks
    left = tuple(task for task in group.tasks if task.id not in done)
    is_all = len(left) == len(group.tasks) or (left and group.gang_min > 0)
    return group.tasks if is_all else left


def _kept_inputs(
    group: Group,
    job: Job,
    rerun: Mapping[GroupId, Tasks],
    outputs: Mapping[TaskId, BlobId],
) -> tuple[Input, ...]:
    """Return what a group was handed, and is handed again without another run."""
    if not group.takes_outputs:
        return group.inputs
    by_id = {each.id: each for each in job.groups}
    needed = (by_id[each] for each in group.needs)
    if not outputs:
        return group.inputs
    again = {task.id for each in group.needs for task in rerun[each]}
    kept = {task: tree for task, tree in outputs.items() if task not in again}
    return (*group.inputs, *inputs_from(needed, kept))


def _renamed(name: str, old: JobId, new: JobId) -> str:
    assert name.startswith(f"{old}.")
    return new + name[len(old) :]
