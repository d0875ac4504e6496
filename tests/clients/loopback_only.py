"""A network of its own for one test file: nothing but loopback, so that an agent reaches the server under test and
nobody else, whatever it tries.

    loopback_only.enter()         # before threads are started; where that is not allowed, the file is skipped
"""
import ctypes
import errno
import fcntl
import socket
import struct

from skipping import skip

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


def _flags(sock, name):
    request = struct.pack("16sH14x", name.encode(), 0)
    return struct.unpack("16sH14x", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]


def enter():
    libc = ctypes.CDLL(None, use_errno=True)
    # A user who is not root has the right within a user namespace alone.
    if libc.unshare(CLONE_NEWNET) != 0 and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        skip(f"a network namespace is not allowed here ({errno.errorcode[ctypes.get_errno()]})",
             "run it as root, or allow user namespaces")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _flags(sock, "lo") | IFF_UP))
        up = [name for _, name in socket.if_nameindex() if _flags(sock, name) & IFF_UP]
    if up != ["lo"]:
        skip(f"the network namespace has more than loopback: {up}", "run it where a namespace begins empty")
