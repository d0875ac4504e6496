"""How a Python test says that it is skipped: by a line that the report at the end of a test run collects,
"SKIPPED: <reason>; to run it: <what>".

    skip("no chromium runs here", "tools/install_packages.sh test")       # the whole file
    @unittest.skipUnless(shutil.which("openssl"), because("there is no openssl", "install openssl"))
    skipping.main()                                                       # in place of unittest.main()
"""
import sys
import unittest

SKIPPED = 77  # what ctest shows as "Skipped"


def because(reason, what):
    return f"{reason}; to run it: {what}"


def skip(reason, what):
    """Ends the process."""
    print(f"SKIPPED: {because(reason, what)}", flush=True)
    sys.exit(SKIPPED)


def main():
    """Runs the file's tests; a line for each that was skipped."""
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print(f"SKIPPED: {reason}", flush=True)
    sys.exit(0 if result.wasSuccessful() else 1)
