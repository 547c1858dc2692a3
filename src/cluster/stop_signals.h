// The signals by which processes are told to stop, as a descriptor to poll instead of handlers. To be called
// before the process has more than one thread.
#pragma once

#include "base/unique_fd.h"

namespace sluice::cluster {

// For the supervisor: readable once SIGINT, SIGTERM or SIGHUP has come. Does not block.
UniqueFd stop_signals_of_supervisor();

// For its children: readable once SIGTERM has come. SIGINT and SIGHUP reach all processes of a terminal, but
// stopping them in order is the supervisor's part, so they are ignored; and so is SIGPIPE, because the log
// goes to the supervisor, which may be gone.
UniqueFd stop_signals_of_child();

}  // namespace sluice::cluster
