#!/usr/bin/env python3
"""Checks every #include of src/, apps/, tests/ and bench/ against the table in src/modules.txt.

    tools/check_deps.py [--root DIR]

A row names a folder below src/, at any depth, or apps/ or a folder below it; a file belongs to the deepest row that
holds it.

Fails on: a source of src/ or apps/ that no row holds, a row without a folder, a row that names a module below it (so
no cycles) or one that none of its files includes, an include that the including module's row does not list, an include
of a file that does not exist, a cycle between files, a module of src/ that includes one of apps/, and a third-party
header outside the module that owns it or the folders of that module.
"""
import argparse
import pathlib
import re
import sys

# Third-party header prefix -> where it may be included, the folders below included.
THIRD_PARTY = {
    "nlohmann/": {"base"},
    "spdlog/": {"base"},
    "CLI/": {"apps", "bench"},
    "yaml-cpp/": {"apps"},
    "boost/": {"http", "client", "tests"},
    "openssl/": {"http", "client", "jit", "nodes", "tests"},
    "ucp/": {"nodes"},
    "gtest/": {"tests"},
    "gmock/": {"tests"},
    "benchmark/": {"bench"},
    "cuda": {"cuda", "bench"},
    "cutlass/": {"bench"},
    "cupti": {"cuda/profile"},
    "cublasLt": {"cuda/gemm"},
    "nvtx3/": {"cuda/profile"},
    "vector_types": {"cuda"},
}
# System headers that are not the C++ standard library's: POSIX, Linux, and vector intrinsics.
SYSTEM = re.compile(
    r"^(sys/\w+|linux/\w+|netinet/\w+|arpa/inet|stdlib|fcntl|unistd|pthread|sched|signal|poll|netdb|ifaddrs|spawn|dirent|termios|dlfcn"
    r"|cxxabi|malloc|immintrin|x86intrin|cpuid|arm_neon|arm_sve)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
ALWAYS_ALLOWED = "base"
OUTSIDE_SRC = "apps"  # the modules that lie beside src/; only they, tests and benches include each other
ROW_NAME = r"[a-z_]+(?:/[a-z_]+)*"


def read_table(path):
    """({module: set of modules it may include}, [problems])."""
    table, problems = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        name, colon, deps = line.partition(":")
        name = name.strip()
        where = f"{path.name}:{number}"
        if not colon or not re.fullmatch(ROW_NAME, name):
            problems.append(f"{where}: expected 'module: dependencies', got '{line}'")
            continue
        if name in table:
            problems.append(f"{where}: module {name} is listed twice")
        if not (path.parent.parent / folder_of(name)).is_dir():
            problems.append(f"{where}: there is no folder {folder_of(name)}")
        for dep in deps.split():
            if dep not in table:
                problems.append(f"{where}: {name} names {dep}, which is not a row above it")
            elif is_within(dep, {OUTSIDE_SRC}) and not is_within(name, {OUTSIDE_SRC}):
                problems.append(f"{where}: {name} names {dep}, and src/ includes nothing of {OUTSIDE_SRC}/")
        table[name] = set(deps.split()) | {name, ALWAYS_ALLOWED}
    return table, problems


def folder_of(module):
    """Where a module lies below the root."""
    return module if is_within(module, {OUTSIDE_SRC}) else f"src/{module}"


def module_of(table, file):
    """The deepest row that holds a file (its path below the root), or None."""
    holding = {folder_of(row): row for row in table}
    folders = (folder.as_posix() for folder in pathlib.PurePosixPath(file).parents)
    return next((holding[folder] for folder in folders if folder in holding), None)


def is_within(module, owners):
    return any(module == owner or module.startswith(owner + "/") for owner in owners)


def includes_of(path):
    """[(line number, quoted include or None, angle include or None)]"""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match.group(1), match.group(2)))
    return found


class Tree:
    """The sources below one root and what is wrong with their includes."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.table, self.problems = read_table(self.root / "src" / "modules.txt")
        self.edges = {}
        self.used = {module: {module, ALWAYS_ALLOWED} for module in self.table}

    def files(self, folder):
        base = self.root / folder
        return sorted(p for p in base.rglob("*") if p.suffix in SOURCE_SUFFIXES) if base.is_dir() else []

    def report(self, path, number, message):
        self.problems.append(f"{path.relative_to(self.root)}:{number}: {message}")

    def check(self):
        for path in self.files("src") + self.files(OUTSIDE_SRC):
            module = module_of(self.table, path.relative_to(self.root).as_posix())
            if module is None:
                self.problems.append(f"{path.relative_to(self.root).as_posix()}: in no row of src/modules.txt")
            else:
                self.check_file(path, module, self.table[module])
        for module, allowed in self.table.items():
            for name in sorted(allowed - self.used[module]):
                self.problems.append(f"modules.txt: {module} lists {name} and includes nothing of it")
        for folder in ("tests", "bench"):
            for path in self.files(folder):
                self.check_file(path, folder, set(self.table))
        self.check_file_cycles()
        return self.problems

    def check_file(self, path, owner, allowed):
        for number, quoted, angled in includes_of(path):
            if angled is not None:
                self.check_angled(path, number, owner, angled)
            else:
                self.check_quoted(path, number, (owner, allowed), quoted)

    def check_angled(self, path, number, owner, header):
        for prefix, owners in THIRD_PARTY.items():
            if header.startswith(prefix):
                if not is_within(owner, owners):
                    self.report(path, number, f"<{header}> belongs to {', '.join(sorted(owners))} only")
                return
        if (self.root / "src" / header.split("/")[0]).is_dir():
            self.report(path, number, f"<{header}> is ours: include it with quotes")
        elif "." in header and not SYSTEM.match(header):
            self.report(path, number, f"<{header}> has no owner in tools/check_deps.py")

    def check_quoted(self, path, number, module, header):
        owner, allowed = module
        # apps, tests and bench include their own files, and tests those of apps, from the root. Benches take what tests
        # have to find their data.
        folders = {"tests": ("tests", OUTSIDE_SRC), "bench": ("bench", "tests")}.get(owner, (OUTSIDE_SRC,))
        is_from_root = header.split("/")[0] in folders
        target = (self.root if is_from_root else self.root / "src") / header
        if not target.is_file():
            self.report(path, number, f'"{header}" is no file below src/')
            return
        if is_from_root and not header.startswith(OUTSIDE_SRC + "/"):
            return
        included = module_of(self.table, target.relative_to(self.root).as_posix())
        self.used.get(owner, set()).add(included)
        if included not in allowed:
            self.report(path, number, f'{owner} may not include "{header}": its row of src/modules.txt '
                        f"lists {', '.join(sorted(allowed - {owner}))}")
        self.edges.setdefault(path, []).append(target)

    def check_file_cycles(self):
        done, active = set(), []

        def visit(path):
            if path in active:
                loop = active[active.index(path):] + [path]
                names = " -> ".join(str(p.relative_to(self.root)) for p in loop)
                self.problems.append(f"include cycle: {names}")
            elif path not in done:
                active.append(path)
                for target in self.edges.get(path, []):
                    visit(target)
                active.pop()
                done.add(path)

        for path in sorted(self.edges):
            visit(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    problems = Tree(parser.parse_args().root).check()
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
