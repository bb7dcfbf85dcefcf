"""`P.api.<group>.<verb>`: one module per group of verbs, `router.py` in front of them."""
