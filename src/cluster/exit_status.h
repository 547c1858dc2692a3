// What the exit status of the program's processes means to the one that started them.
#pragma once

namespace sluice::cluster {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // may go away: the process is started again
inline constexpr int kExitConfiguration = 2;  // will stay: options or files must change first
inline constexpr int kExitOrphaned = 3;       // there is no supervisor to see it

}  // namespace sluice::cluster
