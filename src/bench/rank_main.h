// What a rank of `bench exchange` does: opens what the case needs, then obeys until it is told to end. The
// same in a process and on a thread.
#pragma once

#include <string>

namespace sluice::bench {

// 0, or 1 when the command that started it went away. Errors of opening travel to that command.
int run_exchange_rank(const std::string& socket, int rank);

}  // namespace sluice::bench
