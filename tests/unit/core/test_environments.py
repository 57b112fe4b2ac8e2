"""Ids of environments, and the shelf that keeps them."""

from shoal.core.environments.events import (
    EnvironmentMade,
    EnvironmentsFound,
    KeptEnvironment,
)
from shoal.core.environments.shelf import COUNT_MAX, EnvironmentShelf, needed_by
from shoal.model.ids import (
    Attempt,
    EnvironmentId,
    GroupId,
    JobId,
    NodeId,
    OwnerId,
    TaskId,
)
from shoal.model.job import PythonNeed, Task, Work

ANN, BOB = OwnerId("ann"), OwnerId("bob")


def task(job: str = "j", **work: object) -> Task:
    return Task(
        id=TaskId(f"{job}.m.0"),
        job=JobId(job),
        group=GroupId(f"{job}.m"),
        work=Work(**work),  # type: ignore[arg-type]
    )


def ids(one: Task, *owners: OwnerId) -> tuple[EnvironmentId, ...]:
    return tuple(each.id for each in needed_by(one, owners))


def test_the_same_packages_of_another_owner_are_another_environment() -> None:
    one = task(python=PythonNeed(packages=("numpy",)))

    assert ids(one, ANN) == ids(task("k", python=one.work.python), ANN)
    assert not set(ids(one, ANN)) & set(ids(one, BOB))
    assert not set(ids(one, ANN)) & set(ids(one, ANN, BOB))
    assert not set(ids(one, OwnerId("annbob"))) & set(ids(one, ANN, BOB))


def test_other_content_is_another_environment() -> None:
    needs = (
        PythonNeed(packages=("a", "b")),
        PythonNeed(packages=("a",)),
        PythonNeed(packages=("a",), version="3.12"),
        PythonNeed(files="tree:x", digest="d"),
        PythonNeed(files="tree:x", digest="e"),
    )

    assert len({ids(task(python=need), ANN)[-1] for need in needs}) == len(needs)
    moved = PythonNeed(files="tree:y", digest="d")
    assert ids(task(python=moved), ANN) == ids(task(python=needs[3]), ANN)


def test_a_setup_is_of_one_job_and_of_all_that_it_could_read() -> None:
    one = task(setup=("make",))

    assert ids(one, ANN) == ids(task(setup=("make",), argv=("x",)), ANN)
    assert ids(one, ANN) != ids(task("k", setup=("make",)), ANN)
    assert ids(one, ANN) != ids(task(setup=("make",), env={"A": "1"}), ANN)
    assert ids(task(setup=("make",), image="i"), ANN) == ()


def test_a_scheduler_hears_of_the_environments_of_its_owner_alone() -> None:
    shelf = EnvironmentShelf(1 << 30)
    kept = tuple(
        KeptEnvironment(EnvironmentId(name), (OwnerId(name),), mark=f"of-{name}")
        for name in ("ann", "bob")
    )
    shelf.found(EnvironmentsFound(kept))

    assert shelf.marks_for(ANN) == ("of-ann",)
    assert shelf.marks_for(OwnerId("cleo")) == ()


def test_there_are_never_more_than_so_many() -> None:
    shelf = EnvironmentShelf(1 << 40)
    for number in range(COUNT_MAX + 10):
        attempt = Attempt(NodeId("n"), 1, number)
        need = needed_by(task(python=PythonNeed(packages=(f"p{number}",))), (ANN,))[-1]
        assert shelf.want(attempt, need, (ANN,)) == "make"
        shelf.made(EnvironmentMade(attempt, need.id, 1))
        shelf.leave(attempt)

    assert len(shelf.kept) == COUNT_MAX
