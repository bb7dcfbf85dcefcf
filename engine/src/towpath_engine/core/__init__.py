"""The pure core: every rule of the machine, and nothing else.

Laws of this package:

1. Functions from values to values. No await, no clock, no randomness, no I/O, no logging, no
   settings (an import contract holds this). Time is the argument `now`; chance is the seed that
   every event carries.
2. `decide(run, event, now)` is the one entry point. It returns the new run, the transitions that
   led there and the effects that the shell must carry out, and it never half-applies an event.
3. A legal change of status is a row of `transitions.py`; nothing else changes a status.
4. Values that users own (inputs, outputs, payloads) are JSON text as bytes. They are decoded only
   when an expression needs them, so what went in comes out unchanged.
5. Structs are frozen. A new state is `msgspec.structs.replace(old, ...)`.
"""
