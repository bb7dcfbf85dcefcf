"""Pictures of workflows and runs: a definition, and what a run made of it, as Mermaid or SVG text.

Pure and deterministic: the same definition and rows give the same text. `picture` says what there
is to draw, `seen` what a run adds, `mermaid` and `svg` write it; `layout` finds the places.
"""
