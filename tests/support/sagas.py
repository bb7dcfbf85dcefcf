"""Runs whose completed steps are undone."""

from tests.support.scenario import Story, given_yaml

TWO = """
- {name: a, task: a, compensate: {task: undo_a}}
- {name: b, task: b, compensate: {task: undo_b}}
- {name: c, task: c}
"""


def failed(text: str = TWO) -> Story:
    """A run of two undoable steps whose third has failed."""
    story = given_yaml(text)
    story.completes("a", "A")
    story.completes("b", "B")
    story.fails("c", "Boom", message="no luck")
    return story


def undone(story: Story) -> list[tuple[str, int]]:
    """What was undone so far: path and visit, in order."""
    return [
        (transition.step or "", transition.visit or 0)
        for transition in story.history
        if transition.what == "step-compensated"
    ]


def undo_all(story: Story) -> Story:
    """Every undo that is dispatched succeeds."""
    while story.status() == "compensating":
        (path,) = story.open_paths()
        story.completes(path)
        story.goes_on()
    return story


def in_a_flow(steps: str) -> str:
    """Steps of one line each as they stand in a flow list."""
    return ", ".join(line.removeprefix("- ") for line in steps.strip().splitlines())
