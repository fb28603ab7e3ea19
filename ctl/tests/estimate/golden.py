"""The numbers that golden.rs expects, by another program: only the standard library, exact lists instead of
sketches. Run it by hand where the made-up fleet of made.rs changes: python3 ctl/tests/estimate/golden.py"""

import math
import statistics


def mixed(number):
    """As in made.rs: SplitMix64's finaliser."""
    mask = (1 << 64) - 1
    number = (number + 0x9E3779B97F4A7C15) & mask
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & mask
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & mask
    return number ^ (number >> 31)


def noise(node, gpu, step, what):
    return mixed(node * 1000003 + gpu * 10007 + step * 101 + what) % 1000 / 1000 - 0.5


def clock(node, gpu, step):
    """Whole MHz: its own level, a common wander, noise."""
    level = 1400 - 7 * gpu - (node % 7) * gpu * 2 - (80 if (node, gpu) == (3, 2) else 0)
    return round(level + 5 * math.sin(step / 20) + 6 * noise(node, gpu, step, 0))


def is_limited(node, step):
    return step % 10 < 5 + node % 5


def at_cap(node, gpu, steps):
    return [clock(node, gpu, step) for step in steps if is_limited(node, step)]


NODES, GPUS, STEPS = 50, 4, 120

for node in (0, 3, 6):
    medians = [statistics.median(at_cap(node, gpu, range(STEPS))) for gpu in range(GPUS)]
    pace = [1 / it for it in medians]
    share = (5 + node % 5) / 10
    spread = max(pace) / min(pace) - 1
    versus = max(pace) / statistics.median(pace) - 1
    mean = (sum(it**0.4 for it in pace) / GPUS) ** 2.5
    realloc = max(max(pace) / mean - 1, versus)
    print(node, [round(100 * it, 4) for it in (share, spread, versus, share * realloc, share * spread)])
