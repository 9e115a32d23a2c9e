"""Every attack on every backend, for so many tries as one can wait for; `make fuzz` goes on."""

from typing import Final

import pytest

from fuzz.attack import Attack, Budget
from fuzz.attacks import ATTACKS

TRIES: Final = {
    ("crash", "sqlite"): 20,
    ("crash", "jsonl"): 20,
    ("crash", "lmdb"): 20,
    ("power", "sqlite"): 600,
    ("power", "jsonl"): 1_050,
    ("power", "lmdb"): 450,
    ("torn", "sqlite"): 300,
    ("torn", "jsonl"): 400,
    ("torn", "lmdb"): 240,
    ("flip", "sqlite"): 540,
    ("flip", "jsonl"): 3_000,
    ("flip", "lmdb"): 540,
    ("full", "sqlite"): 10,
    ("full", "jsonl"): 10,
    ("full", "lmdb"): 10,
    ("errors", "sqlite"): 100,
    ("errors", "jsonl"): 100,
    ("errors", "lmdb"): 6,
    ("lines", "memory"): 400,
    ("lines", "sqlite"): 400,
    ("lines", "jsonl"): 400,
    ("lines", "lmdb"): 400,
    ("bytes", "jsonl"): 800,
    ("bytes", "wire"): 1_200,
    ("bytes", "import"): 1_200,
}
SEED: Final = 5_000


@pytest.mark.parametrize(
    ("attack", "backend"),
    [(attack, backend) for attack in ATTACKS for backend in attack.backends],
    ids=lambda part: part.name if isinstance(part, Attack) else part,
)
def test_an_attack_breaks_no_promise(attack: Attack, backend: str) -> None:
    tries = TRIES[attack.name, backend]

    outcome = attack.run(backend, SEED, Budget(tries=tries))

    if outcome.missing:
        pytest.skip(outcome.missing)
    assert outcome.faults == []
    assert outcome.tries >= tries
