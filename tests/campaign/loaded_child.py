"""The real child; its last line on stderr lists the modules of this project that it has loaded."""

import sys

from mechanism.process.child import main

code = main(sys.argv[1:])
names = [name for name in sorted(sys.modules) if name.partition(".")[0] in {"mechanism", "ledger"}]
sys.stderr.write("\n" + " ".join(names) + "\n")
sys.exit(code)
