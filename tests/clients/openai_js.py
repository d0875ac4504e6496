"""OpenAI's JavaScript client as one file, made from a checkout of its repository that FATHOM_OPENAI_NODE names.

    openai_js.bundle(path)      # Node or a browser imports it; without what that takes, the file of tests is skipped

Not from the npm registry: nothing is fetched, and what is bundled is the checkout's own source. Beside the package's
exports it has those of its helpers for a Standard Schema, which need no package of others, as those for zod do.
"""
import os
import pathlib
import shutil
import subprocess

from skipping import skip

ENTRY = """
export * from './src/index';
export { default } from './src/index';
export { VERSION } from './src/version';
export * from './src/helpers/standard-schema';
"""


def needed(program):
    return shutil.which(program) or skip(f"there is no {program}", "install Debian's nodejs (20 or later) and esbuild")


def checkout():
    what = "FATHOM_OPENAI_NODE=DIR ctest --preset release -R openai_js; DIR: a checkout of openai/openai-node"
    folder = os.environ.get("FATHOM_OPENAI_NODE")
    if not folder:
        skip("FATHOM_OPENAI_NODE names no checkout of OpenAI's JavaScript client", what)
    # A folder that was named and is none is a mistake, not a reason to skip.
    if not (pathlib.Path(folder) / "src" / "index.ts").is_file():
        raise RuntimeError(f"FATHOM_OPENAI_NODE={folder} has no src/index.ts; to run it: {what}")
    return folder


def bundle(path):
    # Neutral: what the client itself decides by where it runs stays decided there.
    done = subprocess.run([needed("esbuild"), "--bundle", "--format=esm", "--platform=neutral", "--target=es2022",
                           "--loader=ts", f"--outfile={path}"],
                          cwd=checkout(), input=ENTRY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("esbuild could not bundle the client:\n" + done.stderr)
