import pytest

from shoal.blobs import trees
from shoal.blobs.trees import TreeEntry
from shoal.errors import ShoalError
from shoal.runtime.artifacts.output_fetch import _refuse_other_files

BLOB = f"{'0' * 64}-1"


def test_a_worker_that_returns_what_is_no_output_is_not_believed() -> None:
    kept = [TreeEntry("out/model", "file", BLOB), TreeEntry("out/empty", "folder")]
    foisted = [*kept, TreeEntry("train.py", "file", BLOB)]

    _refuse_other_files(trees.make(b"", kept), ("out/",))
    with pytest.raises(ShoalError, match=r"returns 'train\.py'"):
        _refuse_other_files(trees.make(b"", foisted), ("out/",))
