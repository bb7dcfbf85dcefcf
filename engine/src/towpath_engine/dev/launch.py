"""Becomes another program that dies with the process that started it. Run as a script:

    python -I -S launch.py PARENT_PID SIGNAL USER_ID GROUP_ID PROGRAM [ARGUMENT…]

A parent that is killed -9 can stop nothing any more, so the kernel does it: `prctl` asks for
SIGNAL when the parent dies, and the request survives `exec`. It must be made after the change of
user, which revokes it; `-` as USER_ID keeps the user. That is why this is a program and not a
`preexec_fn`, which may deadlock in a process with threads. It imports nothing but the standard
library and costs about 20 ms.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Replace this process. Never returns; exits with status 1 when the parent is already gone."""
    parent, death_signal, user, group, *command = arguments
    if user != "-":
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)  # it died before we asked
    os.execv(command[0], command)  # noqa: S606 - no shell on purpose


if __name__ == "__main__":
    main(sys.argv[1:])
