"""Reads packaging/Containerfile, as far as it goes: an instruction a line, no continuation."""
import dataclasses
import pathlib
import re

PATH = pathlib.Path(__file__).resolve().parent / "Containerfile"


@dataclasses.dataclass
class Stage:
    name: str
    base: str    # an image
    steps: list  # (instruction, the rest of its line), in order

    def words(self, instruction):
        return [rest for name, rest in self.steps if name == instruction]


def stages(path=PATH):
    """In their order; a build without --target makes the last one."""
    arguments, found = {}, []
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        instruction, _, rest = line.partition(" ")
        if instruction == "ARG":
            name, _, arguments[name] = rest.partition("=")
            continue
        rest = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match.group(1)], rest)
        if instruction == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
            found.append(Stage(name, base, []))
        else:
            found[-1].steps.append((instruction, rest))
    return found
