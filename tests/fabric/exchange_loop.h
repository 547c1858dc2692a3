// One exchange as the product does it, dispatch then combine, for tests with several processes.
#pragma once

#include "ranks.h"

namespace sluice::fabric {

inline Options loop_options(const std::string& provider, int rank, int ranks) {
  Options options;
  options.provider = provider;
  options.rank = rank;
  options.ranks = ranks;
  options.epoch = 1;
  options.slab_bytes = {4096, 4096};
  options.proof_bytes = 8192;
  options.guard_pages = true;
  options.connect_timeout = seconds(100);  // processes under a sanitizer on a busy machine start slowly
  return options;
}

// Every byte that comes is checked; wrong ones end the process's test.
inline Wait exchange_bytes(Fabric& fabric, uint64_t seq, Deadline deadline) {
  for (Kind kind : {Kind::dispatch, Kind::combine}) {
    for (int peer = 0; peer < fabric.ranks(); ++peer) {
      auto outbox = fabric.outbox(peer, kind, seq, deadline);
      const uint64_t key = put_key(fabric.rank(), peer, kind, seq);
      if (outbox.ok()) fill(outbox->first(key % 4096), key);
      if (!outbox.ok() || !fabric.put(peer, kind, seq, key % 4096).ok()) {
        return fabric.failed_peer() ? Wait::peer_failed : Wait::late;
      }
    }
    const Wait waited = fabric.wait(
        [&] {
          for (int source = 0; source < fabric.ranks(); ++source) {
            if (!fabric.arrived(source, kind, seq)) return false;
          }
          return true;
        },
        deadline);
    if (waited != Wait::ready) return waited;
    for (int source = 0; source < fabric.ranks(); ++source) {
      const uint64_t key = put_key(source, fabric.rank(), kind, seq);
      auto inbox = fabric.inbox(source, kind, seq);
      if (!inbox.ok() || inbox->size() != key % 4096 || first_wrong(*inbox, key) != -1) {
        ADD_FAILURE() << "wrong bytes from rank " << source << " in exchange " << seq;
        return Wait::ended;
      }
    }
  }
  return Wait::ready;
}

}  // namespace sluice::fabric
