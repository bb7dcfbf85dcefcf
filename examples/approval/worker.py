"""Letters to the approver, and the payment."""

from collections import Counter

from msgspec import Struct

from towpath_worker import Context, Worker

worker = Worker("approval")

letters: Counter[str] = Counter()
"""How many letters went out, by run: an illustration, a mail server keeps no such count."""


class Request(Struct):
    to: str
    cents: int
    reminder: bool


class Asked(Struct):
    letters: int


class Payment(Struct):
    cents: int


@worker.task("approval.ask")
async def ask(request: Request, ctx: Context) -> Asked:
    words = "still waiting for" if request.reminder else "asking for"
    ctx.logger.info("dear %s, we are %s your decision on %d", request.to, words, request.cents)
    letters[ctx.run_id] += 1
    return Asked(letters[ctx.run_id])


@worker.task("approval.pay")
async def pay(payment: Payment) -> str:
    return f"paid {payment.cents}"
