"""What a server says about rights that are missing."""

import pytest

from towpath_worker.denials import Denial, DeniedAction, denial_in, in_words


@pytest.mark.parametrize(
    ("line", "action", "subject"),
    [
        (
            'Permissions Violation for Publish to "towpath.api.run.list"',
            DeniedAction.PUBLISH,
            "towpath.api.run.list",
        ),
        (
            'Permissions Violation for Subscription to "_INBOX.x.*" (sid "1")',
            DeniedAction.SUBSCRIBE,
            "_INBOX.x.*",
        ),
        (
            'permissions violation for subscription to "towpath.control.mail" using queue "q"',
            DeniedAction.SUBSCRIBE,
            "towpath.control.mail",
        ),
    ],
)
def test_a_refusal_is_read_from_the_line(line: str, action: DeniedAction, subject: str) -> None:
    assert denial_in(line) == Denial(action, subject)


@pytest.mark.parametrize("line", ["", "Authorization Violation", "Maximum Payload Violation"])
def test_another_line_is_no_refusal(line: str) -> None:
    assert denial_in(line) is None


@pytest.mark.parametrize(
    ("subject", "right"),
    [
        ("towpath.api.run.list", "towpath.api.run.list"),
        (
            "towpath.in.step-completed.mail.some-run.some-token",
            "towpath.in.step-completed.mail.*.*",
        ),
        ("$JS.ACK.TOWPATH_DISPATCH.mail_p2.1.7.7.5.0", "$JS.ACK.TOWPATH_DISPATCH.mail_p2.>"),
        ("_INBOX_mail.c0ffee.*", "_INBOX_mail.>"),
    ],
)
def test_the_right_is_named_as_the_lists_of_rights_have_it(subject: str, right: str) -> None:
    assert Denial(DeniedAction.PUBLISH, subject).right == right


def test_only_an_own_inbox_that_may_not_be_listened_to_makes_deaf() -> None:
    inbox = Denial(DeniedAction.SUBSCRIBE, "_INBOX.c0ffee.*")
    assert inbox.deafens("_INBOX")
    assert not inbox.deafens("_INBOX_mail")
    assert not Denial(DeniedAction.PUBLISH, "_INBOX.c0ffee.*").deafens("_INBOX")
    assert "TOWPATH_NATS_INBOX_PREFIX" in in_words(inbox, "_INBOX")
