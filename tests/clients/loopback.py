"""Continues a test in a network namespace of its own that has nothing but a loopback: what the test starts reaches the
server that it starts, and nothing else.

    import loopback
    loopback.enter()     # after venv_python.enter(), which may need the network; where it cannot, the file is skipped
"""
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys

from skipping import skip

GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
ENTERED = "FATHOM_ON_LOOPBACK"


def _raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.unpack_from("H", fcntl.ioctl(control, GET_FLAGS, struct.pack("16sH14x", b"lo", 0)), 16)[0]
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14x", b"lo", flags | IS_UP))


def enter():
    if os.environ.get(ENTERED):
        return _raise_loopback()
    command = ["unshare", "--net", "--map-root-user"]
    if not shutil.which(command[0]) or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        skip("no network namespace can be made here", "a kernel and a user that may (unshare --net --map-root-user)")
    os.execvpe(command[0], [*command, sys.executable, *sys.argv], {**os.environ, ENTERED: "1"})
