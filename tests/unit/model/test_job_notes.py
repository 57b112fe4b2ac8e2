"""What a submitter is told about a job that is valid, and may surprise."""

from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job_notes import notes
from shoal.model.spec.submission import load_spec


def said(spec: str) -> list[str]:
    return notes(derive(load_spec(spec, "yaml"), JobId("j"), OwnerId("ann")))


def test_a_gang_of_own_programs_without_a_network_is_told_so() -> None:
    [note] = said("command: torchrun train.py\nnodes: 2\n")

    assert "network: true" in note
    assert "2 tasks" in note
    assert said("command: torchrun train.py\nnodes: 2\nnetwork: true\n") == []
    assert said("command: python train.py\narray: 0-7\n") == []
    assert said("recipe: ddp\nnodes: 2\n") == []
