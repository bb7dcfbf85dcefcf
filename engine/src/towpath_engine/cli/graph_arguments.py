"""The arguments of `towpath graph`."""

from pathlib import Path

from towpath_engine.cli.parser import Verbs, add_client_verb, count


def add_graph_arguments(verbs: Verbs) -> None:
    """graph."""
    graph = add_client_verb(verbs, "graph", "draw a workflow, or what a run made of it")
    graph.add_argument(
        "drawn",
        metavar="FILE|WORKFLOW|RUN",
        help="a definition (YAML or JSON, - is standard input; needs no server), a deployed "
        "workflow, or a run by its id or as WORKFLOW/KEY",
    )
    graph.add_argument(
        "--version", type=count, metavar="N", help="of a WORKFLOW; default: the newest"
    )
    graph.add_argument(
        "--format",
        dest="picture_format",
        choices=("mermaid", "svg"),
        help="default: as --output ends, else mermaid",
    )
    graph.add_argument(
        "--output",
        dest="picture_file",
        type=Path,
        metavar="FILE",
        help="write it there: .svg, or .mmd or .mermaid",
    )
