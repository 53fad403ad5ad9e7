"""Delivery of notices: bounded in time, and never to an internal address.

A thread of the relay, so that a slow receiver delays no job; two relays share the work. A
receiver's name is resolved once, every address it has is checked, and the connection goes to one of
those very addresses: a name that resolves differently the second time gains nothing. Redirects are
not followed, proxies not used, and only the status of an answer is kept.
"""

import http.client
import smtplib
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any
from uuid import UUID

import structlog

from accountant import settings
from accountant.catalogue import notices as addressed
from accountant.catalogue.notices import Delivery, Outcome, Retries
from accountant.core import notices, webhook_rules
from accountant.core.errors import InvalidRequest, LogUnusable
from accountant.core.webhook_rules import Network, Target
from accountant.database import UNAVAILABLE, Engine
from accountant.transactions.ledger_log import ensure_all
from workers.addresses import addresses

log = structlog.get_logger()

THREADS = 16
POLL_SECONDS = 0.5
CONNECT_SECONDS = 5.0
MOST_ADDRESSES = 3
#: One attempt in all, from the first byte to the status; well below the claim's CLAIM_SECONDS.
ATTEMPT_SECONDS = 15.0

# --- one message --------------------------------------------------------------------------------


class _Connection(http.client.HTTPConnection):
    """A connection to a checked address; the name is used for TLS and the Host header only."""

    def __init__(self, target: Target, found: Sequence[str]) -> None:
        super().__init__(target.host, target.port, timeout=CONNECT_SECONDS)
        self._target, self._found = target, found

    def connect(self) -> None:
        self.sock = self._reach()
        if self._target.scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(
                self.sock, server_hostname=self._target.host, do_handshake_on_connect=False
            )
        # A receiver that sends a byte now and then never meets a timeout of its own. Cut is the
        # socket as TLS has wrapped it: the one before holds no connection any more.
        self.watch = threading.Timer(ATTEMPT_SECONDS, _cut, [self.sock])
        self.watch.daemon = True
        self.watch.start()
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()

    def _reach(self) -> socket.socket:
        """Return a connection to the first address that takes one."""
        *others, last = self._found[:MOST_ADDRESSES]
        for address in others:
            with suppress(OSError):
                return socket.create_connection((address, self._target.port), CONNECT_SECONDS)
        return socket.create_connection((last, self._target.port), CONNECT_SECONDS)

    def close(self) -> None:
        watch = getattr(self, "watch", None)
        if watch is not None:
            watch.cancel()
        super().close()


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        # of TLS too: its own would read on in the clear
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def post(url: str, content: bytes, allowed: Sequence[Network]) -> Outcome:
    """Make one delivery attempt. Problems are in our own words; no answer's text is kept."""
    try:
        target = webhook_rules.read_url(url, allowed)
        reachable = addresses(target, allowed)
    except InvalidRequest as error:
        return Outcome(None, error.problems[0].problem)
    except (OSError, UnicodeError):
        return Outcome(None, "its name does not resolve")
    connection = _Connection(target, reachable)
    try:
        connection.putrequest("POST", target.path, skip_host=True, skip_accept_encoding=True)
        headers = {
            "Host": target.host_header,
            "Content-Type": "application/json",
            "User-Agent": "Exchequer/1",
        }
        headers |= {"Content-Length": str(len(content)), "Connection": "close"}
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(content)
        status = connection.getresponse().status
    except TimeoutError:
        return Outcome(None, "did not answer in time")
    except ssl.SSLError as error:
        return Outcome(None, f"TLS failed: {error.reason or type(error).__name__}")
    except (OSError, http.client.HTTPException) as error:
        return Outcome(None, f"could not be reached: {type(error).__name__}")
    finally:
        connection.close()
    return Outcome(status, None if 200 <= status < 300 else webhook_rules.problem_of(status))


# --- by mail: a letter over SMTP, to the server that the settings name --------------------------

#: Of each step of the conversation; all of them together stay below the claim's CLAIM_SECONDS.
MAIL_STEP_SECONDS = 5.0
#: As an answer of 2xx: the server took it.
MAIL_TAKEN = 250


def send_mail(delivery: Delivery, configured: settings.Settings) -> Outcome:
    """Make one attempt. Problems are put in our own words; nothing that a server says is kept."""
    try:
        address = notices.read_mail(delivery.url, configured.mail_domain_list)
    except InvalidRequest as error:
        return Outcome(None, error.problems[0].problem)
    subject, text = notices.letter(delivery.event, delivery.facts, configured.public_url)
    letter = EmailMessage()
    letter["From"], letter["To"], letter["Subject"] = configured.mail_from, address, subject
    letter["Date"] = formatdate()
    letter["Message-ID"] = f"<{delivery.message_id}@exchequer.invalid>"  # the same at every attempt
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(text)
    try:
        _post(letter, configured)
    except smtplib.SMTPResponseException as error:
        return Outcome(error.smtp_code, f"the mail server answered {error.smtp_code}")
    except smtplib.SMTPRecipientsRefused:
        return Outcome(None, "the mail server refused the address")
    except (OSError, smtplib.SMTPException) as error:
        return Outcome(None, f"the mail server could not be reached: {type(error).__name__}")
    return Outcome(MAIL_TAKEN)


def _post(letter: EmailMessage, configured: settings.Settings) -> None:
    host, port = configured.smtp_host or "", configured.smtp_port
    context = ssl.create_default_context()
    if configured.smtp_security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            host, port, timeout=MAIL_STEP_SECONDS, context=context
        )
    else:
        server = smtplib.SMTP(host, port, timeout=MAIL_STEP_SECONDS)
    with server:
        if configured.smtp_security == "starttls":
            server.starttls(context=context)
        if configured.smtp_user is not None and configured.smtp_password is not None:
            server.login(configured.smtp_user, configured.smtp_password.get_secret_value())
        server.send_message(letter)


# --- one message -------------------------------------------------------------------------------


def send(delivery: Delivery, allowed: Sequence[Network], configured: settings.Settings) -> Outcome:
    """Send a message by mail, or as JSON to a chat, to Teams or to a program."""
    if delivery.kind == "mail":
        return send_mail(delivery, configured)
    message = (
        delivery.kind,
        delivery.event,
        delivery.facts,
        configured.public_url,
        delivery.message_id,
    )
    return post(delivery.url, notices.body(*message), allowed)


# --- the loop -----------------------------------------------------------------------------------


class Sender:
    """Keeps up to THREADS messages under way, and waits for none of them to look for more."""

    def __init__(self, engine: Engine, configured: settings.Settings) -> None:
        self._engine, self._configured = engine, configured
        self._allowed = webhook_rules.networks(configured.notice_networks)
        self._retries = Retries(configured.notice_first_seconds, configured.notice_hours)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="notices")
        self._under_way: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    def step(self) -> int:
        """Take what is due and start to send it; returns how many were taken.

        What a message says stands in the log outside the database before it leaves. One of a ledger
        that is behind its log, or another one, is not sent: its claim runs out, and it is taken
        again. Raises LogUnusable.
        """
        with self._lock:
            busy = {hook for hook, count in self._under_way.items() if count >= addressed.AT_ONCE}
            free = THREADS - self._under_way.total()
        taken = addressed.take(self._engine, free, busy)
        held = ensure_all(self._engine) if taken else frozenset()
        for delivery in taken:
            if delivery.facts.get("dataset") in held:
                log.error("a notice waits for its ledger's recovery", message=delivery.message_id)
                continue
            with self._lock:
                self._under_way[delivery.hook_id] += 1
            self._pool.submit(self._attempt, delivery).add_done_callback(self._ended)
        return len(taken)

    def _attempt(self, delivery: Delivery) -> None:
        try:
            outcome = send(delivery, self._allowed, self._configured)
            state = addressed.settle(self._engine, delivery, outcome, self._retries)
            told = {
                "message": delivery.message_id,
                "address": str(delivery.hook_id),
                "state": state,
            }
            level = log.warning if state == "given up" else log.info
            level("notice", **told, status=outcome.status, problem=outcome.problem)
        finally:
            with self._lock:
                self._under_way[delivery.hook_id] -= 1
                self._under_way += Counter()  # drops the zeros

    def _ended(self, future: "Future[Any]") -> None:
        error = future.exception()
        if error is not None:  # its claim runs out, and it is sent again
            log.warning("a notice's outcome is not written", error=type(error).__name__)

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def run(stop: threading.Event, engine: Engine, configured: settings.Settings) -> None:
    """Send until `stop` is set; an outage of the database is waited out."""
    sender = Sender(engine, configured)
    while not stop.is_set():
        try:
            if sender.step():
                continue
        except (*UNAVAILABLE, OSError) as error:
            log.warning("notices wait for the database", error=type(error).__name__)
            stop.wait(1.0)
        except LogUnusable as error:
            log.error("notices wait for the log outside the database", problem=error.problem)
            stop.wait(5.0)
        except Exception as error:
            log.error("notices", error=type(error).__name__)
            stop.wait(5.0)
        stop.wait(POLL_SECONDS)
    sender.close()


def start(stop: threading.Event, engine: Engine, configured: settings.Settings) -> threading.Thread:
    """Run in a thread of its own."""
    thread = threading.Thread(
        target=run, args=(stop, engine, configured), name="notices", daemon=True
    )
    thread.start()
    return thread
