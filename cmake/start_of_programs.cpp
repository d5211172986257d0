// Of every program: what it does before anything else, even before its own objects are made.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace {

// A program may be started with closed standard streams (`<&- >&- 2>&-`). The files that it opens
// would take their numbers, and what is printed would land in these. open() takes the lowest number
// that is free.
void open_standard_streams() {
  int file = 0;
  do file = open("/dev/null", O_RDWR);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file > STDERR_FILENO) close(file);
}

[[gnu::constructor(101)]] void start() {
  open_standard_streams();
  // A file that may not grow (ulimit -f, a quota) is then an error like a full disk: EFBIG.
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace
