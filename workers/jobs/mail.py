"""Notices by mail: one letter over SMTP, to the server that the settings name."""

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate

from accountant import settings
from accountant.catalogue.notices import Delivery, Outcome
from accountant.core import notices
from accountant.core.errors import InvalidRequest

#: Of each step of the conversation; all of them together stay below the claim's CLAIM_SECONDS.
STEP_SECONDS = 5.0
#: As an answer of 2xx: the server took it.
TAKEN = 250


def send(delivery: Delivery, configured: settings.Settings) -> Outcome:
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
    return Outcome(TAKEN)


def _post(letter: EmailMessage, configured: settings.Settings) -> None:
    host, port = configured.smtp_host or "", configured.smtp_port
    context = ssl.create_default_context()
    if configured.smtp_security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=STEP_SECONDS, context=context)
    else:
        server = smtplib.SMTP(host, port, timeout=STEP_SECONDS)
    with server:
        if configured.smtp_security == "starttls":
            server.starttls(context=context)
        if configured.smtp_user is not None and configured.smtp_password is not None:
            server.login(configured.smtp_user, configured.smtp_password.get_secret_value())
        server.send_message(letter)
