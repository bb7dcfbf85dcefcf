"""The command `towpath`. Each verb is a thin shell over one function of the engine or the SDK."""
