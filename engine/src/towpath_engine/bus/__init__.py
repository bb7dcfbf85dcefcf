"""NATS and JetStream behind the seam `bus.interface`; nothing outside imports nats.

JetStream is a fast buffer that may vanish at any moment: nothing here is a durability point.
"""
