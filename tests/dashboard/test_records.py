"""Files of this user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from psplatform.dashboard import records
from psplatform.dashboard.records import write_private
from psplatform.dashboard.settings import Settings, install
from psplatform.errors import ConfigurationError


@pytest.fixture(autouse=True)
def settings(tmp_path: Path) -> Settings:
    found = Settings(records=str(tmp_path / "state" / "records"))
    install(found)
    return found


def test_no_other_user_may_read_them(settings: Settings) -> None:
    path = Path(write_private("jobs", "a.yaml", "x: 1\n"))
    assert path.read_text() == "x: 1\n"
    assert [one.stat().st_mode & 0o777 for one in (path, path.parent, settings.record_folder)] == [0o600, 0o700, 0o700]


def test_a_file_is_replaced_in_one_piece_and_leaves_nothing_beside_it() -> None:
    paths = {write_private("traces", "a.csv", text) for text in ("old", "new")}
    (path,) = map(Path, paths)
    assert path.read_text() == "new"
    assert [one.name for one in path.parent.iterdir()] == ["a.csv"]


def test_the_oldest_of_many_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_KEPT", 3)
    paths = [Path(write_private("jobs", f"{number}.yaml", "")) for number in range(5)]
    assert sum(path.exists() for path in paths) == 3
    assert paths[-1].exists()


def test_what_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    install(Settings(records=str(tmp_path / "file")))
    with pytest.raises(ConfigurationError, match="cannot write .* free some space"):
        write_private("jobs", "a.yaml", "")
