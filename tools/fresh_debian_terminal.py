#!/usr/bin/env python3
"""Runs a command in a terminal of its own and writes what it says, each line with the seconds since the start.

    fresh_debian_terminal.py LOG PASSWORD COMMAND [ARGUMENT...]

Answers sudo's question with the password. SIGINT presses Ctrl-C in that terminal. The exit status is the
command's.
"""
import os
import pty
import signal
import sys
import time


def main():
    log_path, password, *command = sys.argv[1:]
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job starts with it ignored
        os.execvp(command[0], command)
    signal.signal(signal.SIGINT, lambda *_: os.write(terminal, b"\x03"))
    start = time.monotonic()
    line = b""
    with open(log_path, "w", encoding="utf-8") as log:
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the last process has closed the terminal
                piece = b""
            line += piece
            *whole, line = line.split(b"\n")
            if not piece and line:
                whole.append(line)
            for text in whole:
                shown = text.decode(errors="replace").rstrip("\r")
                log.write(f"{time.monotonic() - start:7.1f}  {shown}\n")
            log.flush()
            if not piece:
                break
            if line.startswith(b"[sudo] password for"):
                os.write(terminal, password.encode() + b"\n")
                log.write(f"{time.monotonic() - start:7.1f}  {line.decode(errors='replace')}(typed)\n")
                line = b""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code  # what a shell shows for a signal


if __name__ == "__main__":
    sys.exit(main())
