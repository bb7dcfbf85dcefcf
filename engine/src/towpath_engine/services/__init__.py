"""The shell around the core: one duty a file. `app.py` builds and starts them."""
