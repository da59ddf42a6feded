"""Serving the pages with Streamlit, on this machine only unless told otherwise."""

from __future__ import annotations

import gc
import importlib
import logging
import socket
from pathlib import Path
from typing import Any, Final

from psplatform.dashboard import launcher
from psplatform.dashboard.priority import give_way, lead_session
from psplatform.dashboard.settings import Settings, install
from psplatform.errors import ConfigurationError

_NICENESS: Final = 10
"""Of what serves pages: training beside it on a busy machine goes first, and a visitor is answered all the same.

A niceness of 15 took training no less, but where all cores computed a long run's page took minutes to open."""

_YOUNG_OBJECTS: Final = 20_000
"""Made between two searches for garbage.  A log is read as hundreds of thousands of records, none of them garbage that
must be searched for: at Python's usual 700, searching takes a third of the time."""

_SCRIPT: Final = Path(__file__).parent / "pages" / "app.py"


def require_port(settings: Settings) -> None:
    """Refuse an address or port that cannot be listened on.

    Raises
    ------
    ConfigurationError
        Saying which, and the remedy.
    """
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.address, settings.port))
        except OSError as error:
            text = f"port {settings.port} of {settings.address} cannot be used ({error.strerror or error})"
            raise ConfigurationError(f"{text}; choose another with --port", field="port") from error
        except OverflowError as error:
            raise ConfigurationError(f"port {settings.port} is none; choose one up to 65535", field="port") from error


def serve(settings: Settings) -> None:
    """Serve the pages until the process is interrupted.

    Raises
    ------
    ConfigurationError
        If the port cannot be used.
    """
    require_port(settings)
    lead_session()  # before there are threads
    install(settings)
    launcher.begin()  # before this thread gives way to others: what it starts shall not
    # A scheduler that is away is told on the page; Dask's client would tell it in the terminal at every try.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    gc.set_threshold(_YOUNG_OBJECTS)
    from streamlit.web import bootstrap  # noqa: PLC0415  takes a second, and nothing is refused after it

    _load_pages()
    gc.collect()
    gc.freeze()  # what is loaded now stays: it need not be searched for garbage again and again
    options = _options(settings)
    bootstrap.load_config_options(flag_options=options)
    _ask_no_other_site()
    give_way(_NICENESS)  # only now: a visitor waits for all that, and beside training it would take a minute
    bootstrap.run(str(_SCRIPT), False, [], options)


def _ask_no_other_site() -> None:
    """Let Streamlit not ask a site on the Internet for this machine's address when a page of another origin calls."""
    from streamlit import net_util  # noqa: PLC0415  as above

    net_util._external_ip = ""  # noqa: SLF001  its answer, which it keeps: no origin has an empty name


def _load_pages() -> None:
    """Load what the pages are made of: else the first visitor waits for it."""
    for name in ("psplatform.dashboard.pages.app", "plotly.tools", "pyarrow.pandas_compat"):
        importlib.import_module(name)


def _options(settings: Settings) -> dict[str, Any]:
    hosts = ["localhost", "127.0.0.1", "[::1]", "::1"] if settings.is_local else []
    return {
        "server_address": settings.address,
        "server_port": settings.port,
        "server_headless": True,
        "server_fileWatcherType": "none",
        "server_runOnSave": False,
        # Said here, so that no configuration file of Streamlit's makes them weaker.
        "server_enableCORS": True,
        "server_enableXsrfProtection": True,
        "server_corsAllowedOrigins": [],
        "server_enableAgentApi": False,
        "server_enableStaticServing": False,
        # A page of another site, whose name was made to lead here, is not answered.
        "server_allowedHosts": hosts,
        "browser_serverAddress": "localhost" if settings.is_local else settings.address,
        "browser_gatherUsageStats": False,
        # Else a text that stands alone in the script would be shown as part of the page.
        "runner_magicEnabled": False,
        "client_toolbarMode": "minimal",
        "client_showErrorDetails": "none",
        "client_showErrorLinks": "false",
        "logger_level": "error",
        # For both: a theme of its own without a scheme would be a light one, whatever the browser asks for.
        "theme_light_primaryColor": "#0072B2",
        "theme_dark_primaryColor": "#56B4E9",
    }
