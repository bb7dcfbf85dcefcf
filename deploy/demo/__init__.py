"""The demo: an order workflow over a file of orders, checked against an independent computation."""
