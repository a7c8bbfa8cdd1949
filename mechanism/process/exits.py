"""Exit codes of a cold process. Codes from 128 on are not used: a signal is not an exit."""

RECORDED = 0  # one record was written
UNEXPECTED = 1  # a fault of ours: a traceback is on stderr
CELL = 3  # what was delivered is not what was asked for, or cannot be delivered
ENGINE = 4  # no such engine, or it cannot be loaded
FIXTURE = 5  # the fixture is not the one that was frozen
STORAGE = 6  # a file could not be read or written
REQUEST = 7  # started without a request that can be understood
