"""``psplatform dashboard``: what is shown, what may be started, and what is refused before anything is served."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

from psplatform.cli import page
from psplatform.cli.commands.dashboard import announce, settings_for
from psplatform.cli.page import Page
from psplatform.client.clusters import ports
from psplatform.dashboard import server
from psplatform.dashboard.settings import PORT, Settings
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.store import create_run
from psplatform.telemetry.log.writer import EventLog

Command = Callable[..., Result]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Let no page be served; return what would be."""
    found: list[Settings] = []
    monkeypatch.setattr(server, "serve", found.append)
    return found


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_a_port_that_is_none_is_refused(psplatform: Command, served: list[Settings], port: str) -> None:
    result = psplatform("dashboard", "--port", port)
    assert result.exit_code == 2
    assert "--port" in result.output
    assert "Traceback" not in result.output
    assert served == []


def test_a_port_in_use_is_named_with_the_remedy(
    refused: Callable[..., str], served: list[Settings], taken_port: int
) -> None:
    said = refused("dashboard", "--port", str(taken_port))
    assert f"port {taken_port} of 127.0.0.1 cannot be used" in said
    assert "choose another with --port" in said
    assert served == []


def test_an_address_that_is_not_of_this_machine_is_refused(
    refused: Callable[..., str], served: list[Settings], free_port: int
) -> None:
    said = refused("dashboard", "--address", "203.0.113.1", "--port", str(free_port))
    assert "203.0.113.1 cannot be used" in said
    assert served == []


@pytest.mark.parametrize("address", ["nowhere.invalid", "not an address", "1.2.3.4.5", "::zz"])
def test_an_address_that_is_none_is_refused(
    refused: Callable[..., str], served: list[Settings], free_port: int, address: str
) -> None:
    assert "cannot be used" in refused("dashboard", "--address", address, "--port", str(free_port))
    assert served == []


def test_a_job_file_that_is_not_there_is_refused(refused: Callable[..., str], served: list[Settings]) -> None:
    assert refused("dashboard", "--job", "nowhere.yaml") == "there is no job file nowhere.yaml; check the path"
    assert served == []


def test_two_job_files_of_the_same_name_are_refused(
    refused: Callable[..., str], served: list[Settings], tmp_path: Path
) -> None:
    files = [tmp_path / name / "job.yaml" for name in ("a", "b")]
    for one in files:
        one.parent.mkdir()
        one.write_text("workload: digits")
    said = refused("dashboard", "--job", str(files[0]), "--job", str(files[1]))
    assert said == "two job files are called job.yaml; rename one of them"
    assert served == []


def test_job_files_are_known_by_name_wherever_the_page_is_served_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("workload: digits")
    monkeypatch.chdir(tmp_path)
    assert settings_for(None, jobs=("mine.yaml",)).jobs == (("mine.yaml", str(tmp_path / "mine.yaml")),)


def test_a_store_is_told_from_a_folder_of_stores(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    store = folder / "digits.zarr"
    create_run(str(store), {"run": "digits-bsp-1a2b3c"})
    of_store, of_folder = settings_for(str(store)), settings_for(str(folder))
    assert (of_store.folder, of_store.store) == (str(folder), str(store))
    assert (of_folder.folder, of_folder.store) == (str(folder), None)
    assert settings_for(f"{store}/").store == str(store)
    assert of_store.records == of_folder.records, "what was started for a folder is found again either way"


def test_a_store_that_lost_its_description_is_still_one(tmp_path: Path) -> None:
    store = tmp_path / "digits.zarr"
    create_run(str(store), {"run": "digits-bsp-1a2b3c"})
    with EventLog(str(store), 1) as log:
        log.append({"kind": "note", "at": 0.0, "text": "a sign of life"})
    (store / "zarr.json").unlink()
    assert settings_for(str(store)).store == str(store)


def test_a_folder_that_is_not_there_yet_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_for("later").store is None
    assert settings_for("later").folder == str(tmp_path / "later")
    assert settings_for(None).folder == str(tmp_path / "runs")


def test_a_url_is_a_store(tmp_path: Path) -> None:
    found = settings_for("s3://bucket/runs/digits.zarr")
    assert (found.folder, found.store) == ("s3://bucket/runs", "s3://bucket/runs/digits.zarr")


def test_records_are_this_users_own_and_one_folders_are_not_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PSPLATFORM_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one, other = (settings_for(str(tmp_path / name)).record_folder for name in ("a", "b"))
    assert one.parent == other.parent == tmp_path / "state" / "psplatform"
    assert one != other


def test_whoever_listens_for_others_is_warned_loudly(
    psplatform: Command, served: list[Settings], free_port: int
) -> None:
    result = psplatform("dashboard", "--address", "0.0.0.0", "--port", str(free_port))  # noqa: S104
    assert result.exit_code == 0, result.output
    assert "WARNING: it listens on 0.0.0.0" in result.stderr
    assert "can start, stop and recover runs" in result.stderr
    assert "SSH tunnel" in result.stderr
    assert [one.is_local for one in served] == [False]


def test_whoever_may_kill_is_warned_of_that(capsys: pytest.CaptureFixture[str]) -> None:
    announce(Settings(address="0.0.0.0", allow_chaos=True))  # noqa: S104
    assert "start, stop, kill and recover" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_on_this_machine_alone_there_is_no_warning(
    psplatform: Command, served: list[Settings], free_port: int, address: str, tmp_path: Path
) -> None:
    result = psplatform("dashboard", str(tmp_path), "--address", address, "--port", str(free_port))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    who = "open to every user of this machine"
    assert result.stdout == f"dashboard of {tmp_path}: http://localhost:{free_port} ({who}; Ctrl-C ends it)\n"
    assert [one.folder for one in served] == [str(tmp_path)]


def test_help_names_what_it_does(psplatform: Command) -> None:
    result = psplatform("dashboard", "--help")
    assert result.exit_code == 0
    for word in ("STORE|FOLDER", "--scheduler", "--job", "--allow-chaos", "--port", "--address", str(PORT)):
        assert word in result.output
    assert "this machine only" in result.output


def test_pages_are_served_for_this_machine_only_unless_told_otherwise() -> None:
    local = server._options(Settings())
    assert (local["server_address"], local["server_port"]) == ("127.0.0.1", PORT)
    assert "localhost" in local["server_allowedHosts"]
    assert local["browser_gatherUsageStats"] is False
    assert local["client_showErrorDetails"] == "none"


def test_a_page_needs_the_command() -> None:
    from psplatform.dashboard import settings
    from psplatform.errors import InvariantViolation

    before, settings._Installed.settings = settings._Installed.settings, None
    try:
        with pytest.raises(InvariantViolation, match="psplatform dashboard"):
            settings.current()
    finally:
        settings._Installed.settings = before


def test_threads_of_pages_give_way_and_programs_do_not() -> None:
    """In a process of its own: a priority that was given up cannot be taken back."""
    import subprocess
    import sys

    program = (
        "import os; from psplatform.dashboard import launcher, priority; launcher.begin(); priority.give_way(15);"
        "own = lambda: os.getpriority(os.PRIO_PROCESS, __import__('threading').get_native_id());"
        "print(own(), launcher.launch(own))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=180)
    own, launched = map(int, done.stdout.split())
    assert own == 15
    assert launched == os.getpriority(os.PRIO_PROCESS, 0)


def test_configuration_errors_name_their_field(taken_port: int) -> None:
    with pytest.raises(ConfigurationError) as caught:
        server.require_port(Settings(port=taken_port))
    assert caught.value.field == "port"


@pytest.mark.parametrize("command", [["demo"], ["train", "digits"]])
def test_buttons_that_kill_are_asked_for_together_with_a_page(refused: Callable[..., str], command: list[str]) -> None:
    said = refused(*command, "--allow-chaos")
    assert "--allow-chaos adds buttons to the page that --dashboard opens; give both, or neither" in said


def test_a_page_beside_a_run_has_the_usual_port_or_another_where_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, free_port: int, taken_port: int
) -> None:
    monkeypatch.setattr(page, "PORT", free_port)
    assert page.port_of_page() == free_port
    monkeypatch.setattr(page, "PORT", taken_port)
    assert page.port_of_page() not in {0, taken_port}


@pytest.mark.parametrize("allowed", [False, True])
def test_a_page_beside_a_run_offers_to_kill_only_where_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, *, allowed: bool
) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr("psplatform.cli.page.subprocess.Popen", lambda command, **_: begun.append(command))
    monkeypatch.setattr("psplatform.cli.page._announce", lambda *_: None)
    page = Page(wanted=True, allow_chaos=allowed)
    page.open(SimpleNamespace(store="runs/a.zarr", run="a", client=None), embedded=True)  # type: ignore[arg-type]
    assert ("--allow-chaos" in begun[0]) is allowed


def test_the_pages_of_commands_take_what_they_were_told(monkeypatch: pytest.MonkeyPatch, psplatform: Command) -> None:
    """No button that kills is there unasked, not even in the demonstration."""
    made: list[bool] = []

    class Told(Exception):
        pass

    def page(*, wanted: bool, allow_chaos: bool = False, stays: bool = True) -> Page:
        made.append(allow_chaos)
        raise Told

    for module in ("demo", "train"):
        monkeypatch.setattr(f"psplatform.cli.commands.{module}.Page", page)
    for command in (["demo"], ["train", "digits"]):
        for chaos in ([], ["--allow-chaos"]):
            psplatform(*command, "--dashboard", *chaos)
    assert made == [False, True] * 2
