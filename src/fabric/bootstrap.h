// How the ranks of an epoch find each other before they have a fabric: every rank gives some bytes and gets
// everybody's. Small and slow is fine; it is on no hot path.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace sluice::fabric {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  // Collective; calls must come in the same order on all ranks. Returns the ranks' values in rank order.
  // `name` says what is gathered, for errors: "rank 2 is missing from 'addresses' after 30 s".
  virtual Result<std::vector<std::string>> all_gather(std::string_view name, std::string mine,
                                                      Deadline deadline) = 0;
  // The same for objects, where all ranks are threads of one process: they then share memory without mapping
  // it once a pair. Empty, without a meeting, where ranks may be processes.
  virtual Result<std::vector<std::shared_ptr<void>>> all_share(std::string_view name,
                                                               std::shared_ptr<void> mine, Deadline deadline);
};

// For ranks that are threads of one process (check, tests): one hub, one Bootstrap a rank.
class InProcessHub {
 public:
  explicit InProcessHub(int ranks);
  ~InProcessHub();
  // Thread-safe. The hub must outlive what it gives out.
  std::unique_ptr<Bootstrap> join(int rank);

 private:
  struct Meeting;
  class Member;
  std::unique_ptr<Meeting> meeting_;
};

}  // namespace sluice::fabric
