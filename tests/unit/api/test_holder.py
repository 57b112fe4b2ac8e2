"""A job that is not here is found at another node of its owner."""

from shoal.api import shoal_pb2 as pb
from shoal.api.service.forward import holder_of
from shoal.errors import MovedError, NotFoundError, UnreachableError
from shoal.model.ids import NodeId

HAS, KEEPS, LACKS = NodeId("has"), NodeId("keeps"), NodeId("lacks")
NAMED = MovedError("job 'j' is on another node", HAS)
NOT_FOUND = NotFoundError("no job 'j'")


def job(id_: str) -> bytes:
    return pb.Job(id=id_).SerializeToString()


def test_who_has_a_job_is_believed_before_who_names_another() -> None:
    old = MovedError("job 'j' is on another node", LACKS)

    assert holder_of("j", [(KEEPS, old), (HAS, job("j"))]) == HAS


def test_a_keeper_names_who_has_a_job_that_does_not_answer_itself() -> None:
    silent = UnreachableError("has cannot be reached")

    assert holder_of("j", [(HAS, silent), (KEEPS, NAMED), (LACKS, NOT_FOUND)]) == HAS


def test_a_job_whose_id_only_begins_so_is_another() -> None:
    assert holder_of("j", [(HAS, job("j2")), (LACKS, NOT_FOUND)]) is None


def test_nonsense_and_nodes_of_others_are_passed_over() -> None:
    assert holder_of("j", [(HAS, b"\xff\xff"), (KEEPS, None)]) is None
