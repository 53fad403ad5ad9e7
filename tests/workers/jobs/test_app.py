"""The Celery application has the broker of the settings, whatever its command line does."""

from pathlib import Path

import pytest

from accountant.settings import Settings
from workers.jobs import app


def test_the_broker_is_that_of_the_settings_with_its_password_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("planted")
    url = f"rediss://broker:6379/0?password_file={tmp_path / 'password'}"
    monkeypatch.setenv("CELERY_BROKER_URL", url)  # as `celery` sets it from BROKER_URL
    monkeypatch.setattr(app.settings, "load", lambda: Settings(home=tmp_path, BROKER_URL=url))
    with app.make_app().connection_for_read() as connection:
        assert connection.password == "planted"
        assert connection.ssl["ssl_cert_reqs"].name == "CERT_REQUIRED"
