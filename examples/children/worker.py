"""The tasks of all three workflows."""

from msgspec import Struct

from towpath_worker import Context, TerminalError, Worker

worker = Worker("onboarding")


class Customer(Struct):
    customer: str
    country: str


class Account(Struct):
    customer: str
    limit: int


class Letter(Struct):
    to: str
    text: str


@worker.task("onboarding.ask_bureau")
async def ask_bureau(who: Customer, ctx: Context) -> int:
    if who.country == "Atlantis":
        raise TerminalError(f"nobody knows {who.customer}", type="Unknown")
    if ctx.attempt == 1:
        raise ConnectionError("the bureau is busy")
    return 50


@worker.task("onboarding.open")
async def open_account(account: Account) -> str:
    return f"{account.customer} may spend {account.limit}"


@worker.task("onboarding.write")
async def write(letter: Letter) -> str:
    return f"{letter.text}, {letter.to}"
