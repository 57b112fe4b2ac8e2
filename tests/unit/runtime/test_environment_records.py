"""Environments on disk: only what was finished is ever used."""

from pathlib import Path

from shoal.model.ids import EnvironmentId, OwnerId
from shoal.runtime.environments.records import EnvironmentRecord, EnvironmentRecords

ID = EnvironmentId("0" * 32)
OTHER = EnvironmentId("1" * 32)


def finished(records: EnvironmentRecords, id_: EnvironmentId, place: str) -> Path:
    folder = records.begin(id_)
    (folder / "file").write_text("x")
    record = EnvironmentRecord(
        folder=folder.name, kind="python", owners=(OwnerId("ann"),), place=place
    )
    records.finish(id_, record)
    return folder


def test_what_a_crash_left_half_made_is_removed_and_never_told(tmp_path: Path) -> None:
    records = EnvironmentRecords(tmp_path)
    whole = finished(records, ID, "/env")
    half = records.begin(OTHER)
    (half / "python").mkdir()
    (tmp_path / f"{OTHER}.new").write_text("{")  # a record that was not written whole

    again = EnvironmentRecords(tmp_path)
    kept = again.load("/env")

    assert [each.id for each in kept] == [ID]
    assert again.folder(ID) == whole
    assert not half.exists()


def test_a_record_without_its_folder_or_for_another_place_is_forgotten(
    tmp_path: Path,
) -> None:
    records = EnvironmentRecords(tmp_path)
    finished(records, ID, "/somewhere")
    gone = finished(records, OTHER, "/env")
    (gone / "file").unlink()
    gone.rmdir()

    assert EnvironmentRecords(tmp_path).load("/env") == ()
    assert list(tmp_path.glob("*.json")) == []


def test_a_record_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    root, victim = tmp_path / "root", tmp_path / "victim"
    root.mkdir()
    victim.mkdir()
    text = '{"folder":"../victim","kind":"python","owners":["ann"],"place":"/env"}'
    (root / f"{ID}.json").write_text(text)

    records = EnvironmentRecords(root)

    assert records.load("/env") == ()
    assert victim.exists()


def test_each_making_has_a_folder_of_its_own(tmp_path: Path) -> None:
    records = EnvironmentRecords(tmp_path)

    assert records.begin(ID) != records.begin(ID)
