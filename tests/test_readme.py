"""The README's promises: its commands are those of continuous integration, its code runs."""

import re

from documents import ROOT, blocks, comparable, run_command, run_python

README = ROOT / "README.md"


def shell_lines():
    return [block.text.strip() for block in blocks(README) if block.language == "sh"]


def commands_of_ci():
    """The commands of `.ci/run`, with its environment written as the README writes one."""
    text = (ROOT / ".ci" / "run").read_text()
    text = text.replace('"$environment/venv"', ".venv")
    text = re.sub(r'"\$environment/venv/bin/(\w+)"', r".venv/bin/\1", text)
    return [line.strip() for line in text.splitlines() if line and not line.startswith("#")]


def test_two_copied_lines():
    assert len(shell_lines()) == 2
    for line in shell_lines():
        assert "\n" not in line and line.startswith("python3 -m venv .venv && ")


def test_the_first_line_checks_the_examples():
    install, check = shell_lines()[0].split(" && ")[1:]
    assert install == ".venv/bin/pip install --quiet '.[examples]'"
    assert check == ".venv/bin/alloccheck check examples/"


def test_ci_runs_the_test_line():
    steps = shell_lines()[1].split(" && ")
    ci = commands_of_ci()
    positions = [ci.index(step) for step in steps]
    assert positions == sorted(positions)
    for more in ("ruff check .", "ruff format --check .", "mypy --strict src"):
        assert f".venv/bin/{more}" in ci


def test_the_tour_prints_what_the_readme_says(tmp_path):
    tour = [block for block in blocks(README) if block.language == "python"]
    shown = [block.output for block in tour]
    assert all(shown)
    assert len(tour[0].text.splitlines()) <= 27
    printed = run_python([block.text for block in tour], tmp_path)
    assert comparable(printed) == comparable("\n".join(shown))


def test_the_commands_print_what_the_readme_says():
    consoles = [block for block in blocks(README) if block.language == "console"]
    assert consoles
    for block in consoles:
        command, *shown = block.text.splitlines()
        printed = run_command(command.removeprefix("$ "))
        assert comparable(printed) == comparable("\n".join(shown))


def test_links_lead_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text())
    assert len(targets) > 5
    for target in targets:
        assert (ROOT / target).exists(), target


def test_every_document_is_linked():
    text = README.read_text()
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        if document != README:
            assert f"({document.relative_to(ROOT)})" in text, document.name


def test_error_rates_are_those_of_the_documents():
    readme = README.read_text()
    rates = (ROOT / "docs" / "error-rates.md").read_text()
    corpus = (ROOT / "benchmarks" / "corpus" / "README.md").read_text()
    measured, proofs, quiet = re.search(
        r"\| nonallocating \| ([\d,]+) \| [\d,]+ \| (\d+) \| [\d,]+ \| \d+ \(([\d.]+ %)\)", rates
    ).groups()
    assert f"| {proofs} of {measured} |" in readme
    assert f"(at most so many false alarms) | {quiet} |" in readme
    row = re.search(r"\*\*total\*\* \| (\d+) \| (\d+) \| \d+ \| (\d+) \|.* (\d+) \|\n", corpus)
    functions, proved, undecided, refuted = row.groups()
    assert f"| {proved} of {functions}, {refuted}, {undecided} |" in readme
    ratio = re.search(r"\*\*total\*\* \| \d+\.\d \| \d+\.\d \| ([\d.]+) \|", corpus)[1]
    assert f"against the plain runs | {ratio} " in readme
