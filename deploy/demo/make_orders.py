"""Write the orders that the demo ships with: 1,000 lines, always the same ones.

python deploy/demo/make_orders.py > deploy/demo/orders.jsonl
"""

import json
import random
import sys

SEED = 20_261
LINES = 1_000
REPEATS = 40
CUSTOMERS = (
    "Ada Lovelace", "Zoë Brückner", "Łukasz Żak", "Ngọc Trần", "José Ñandú", "Ægir Þórsson",
    "李小龙", "山田 花子", "Мария Соколова", "محمد علي", "Εὐκλείδης", "अनिता शर्मा", "🦆 Pond Ltd",
    'Robert "Bobby" \\ Tables', "${ input.total }", "<b>Fish & Chips</b>", "O'Brien", "null",
)  # fmt: skip
SKUS = ("LOCK-GATE", "ROPE-30", "LANTERN", "TILLER", "WINDLASS", "FENDER", "Schleusen-Öl", "舵")
HUGE_TOTALS = (10**17 + 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30 + 7)
GOOD_CARD, REFUSED_CARD = "4242424242424242", "4000000000000002"


def order_id(number: int) -> str:
    """Most ids are plain; some are not ASCII, since keys travel in headers, too."""
    match number % 25:
        case 7:
            return f"Bestellung-ß-{number:04d}"
        case 16:
            return f"注文 {number:04d}"
        case _:
            return f"order-{number:04d}"


def total(source: random.Random, number: int) -> int:
    """A third needs an approval; some are zero, a few do not fit a double or 64 bits."""
    if number % 40 == 13:
        return HUGE_TOTALS[number // 40 % len(HUGE_TOTALS)]
    roll = source.random()
    if roll < 0.05:
        return 0
    if roll < 0.08:
        return source.choice((999, 1_000, 1_001))
    return source.randint(1_001, 90_000) if roll < 0.3 else source.randint(1, 999)


def article(source: random.Random) -> dict[str, object]:
    """So many of one article, of which one in sixteen is sold out."""
    sku = source.choice(SKUS)
    gone = source.random() < 0.06
    return {"sku": f"SOLDOUT-{sku}" if gone else sku, "quantity": source.randint(1, 12)}


def one_order(source: random.Random, number: int) -> dict[str, object]:
    """The order with this number."""
    articles = [article(source) for _ in range(source.choice((1, 1, 2, 3, 4)))]
    order: dict[str, object] = {
        "order_id": order_id(number),
        "customer": source.choice(CUSTOMERS),
        **(articles[0] if len(articles) == 1 else {"articles": articles}),
        "total": total(source, number),
        "card": REFUSED_CARD if source.random() < 0.08 else GOOD_CARD,
    }
    if source.random() < 0.15:
        order["decision"] = "decline"
    return order


def main() -> None:
    """Print the lines: distinct orders, with identical repeats of some put in at random places."""
    source = random.Random(SEED)
    orders = [one_order(source, number) for number in range(1, LINES - REPEATS + 1)]
    for repeat in source.sample(orders, REPEATS):
        orders.insert(source.randrange(len(orders)), repeat)
    for order in orders:
        sys.stdout.write(json.dumps(order, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
