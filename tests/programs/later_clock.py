"""A plugin of pytest under which it is months later, and Python's generator has another seed."""

import random
import time

now, now_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: now() + 1e7, lambda: now_ns() + 10**16
random.seed("another")
