"""A mail server that is busy at times, and does not know everybody."""

from msgspec import Struct

from towpath_worker import Context, TerminalError, Worker

worker = Worker("newsletter")


class Letter(Struct):
    to: str
    text: str


@worker.task("newsletter.send")
async def send(letter: Letter, ctx: Context) -> str:
    if letter.to.endswith("@nowhere"):
        raise TerminalError(f"{letter.to} is unknown", type="Bounced")
    if ctx.attempt == 1 and letter.to.startswith("b"):
        raise ConnectionError("the mail server is busy")
    return letter.to
