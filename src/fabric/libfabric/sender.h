// The sending half of the proxy: turns orders into counted writes, with credits per peer. Invariants: a write
// that the rail took is never posted again; a peer has at most kCredits writes under way; a refusal (EAGAIN)
// ends the peer's turn and nothing else; a peer that failed gets nothing more.
// One thread: the proxy's.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "fabric/immediate.h"
#include "fabric/libfabric/rail.h"
#include "fabric/libfabric/staging.h"
#include "fabric/order.h"

namespace sluice::fabric::ofi {

// Where this rank writes at a peer: its block in the peer's window.
struct Target {
  uint64_t peer = 0;  // fi_addr_t
  uint64_t key = 0;
  uint64_t base = 0;
};

class Sender {
 public:
  // Room for two puts in the most stripes.
  static constexpr uint32_t kCredits = 2 * kMostStripes;

  // `failed` is called once for each peer that fails, with libfabric's error.
  Sender(Rail& rail, const Options& options, Staging& staging, void* descriptor, std::vector<Target> targets,
         std::function<void(int peer, int error)> failed);

  void accept(const Order& order);
  // Tells `peer` that its wake `number` was read.
  void acknowledge_wake(int peer, uint32_t number);
  void wake_acknowledged(int peer, uint32_t number);

  // Posts what credits allow. Whether anything was posted.
  bool post();
  // The provider let go of a write's bytes, or failed to send them.
  void completed(void* context);
  void failed(void* context, int error);
  void fail_peer(int peer, int error);

  bool idle() const { return in_flight_ == 0 && ready_.empty(); }
  // Something could not be posted: the rail had no room.
  bool refused() const { return !ready_.empty(); }
  // Whether a staging slab was given back since the last call.
  bool take_released() { return std::exchange(released_, false); }

 private:
  // One write under way. The provider keeps its own notes in `context`.
  struct Operation {
    fi_context2 context;
    int peer;
    FragmentKind kind;
    int half;
  };
  struct Put {
    Kind kind;
    int half;
    uint64_t offset;
    uint64_t bytes;
    uint32_t part;
    uint32_t stripes;
    uint64_t stripe_bytes;
    uint32_t next;  // stripe
  };
  struct Peer {
    Target target;
    std::deque<Put> puts;
    uint32_t in_flight = 0;
    uint32_t parts[kKinds][kHalves] = {};        // the next part's running number
    uint32_t outstanding[kKinds][kHalves] = {};  // stripes whose bytes the provider still holds
    uint64_t wake_wanted = 0;
    uint64_t wake_sent = 0;
    uint32_t wake_number = 0;
    bool wake_unread = false;     // sent and not acknowledged
    bool wake_in_flight = false;  // its staging is the provider's
    std::optional<uint32_t> acknowledgement;
    bool queued = false;  // in ready_
    bool failed = false;
  };

  bool has_work(const Peer& peer) const;
  void enqueue(int peer);
  bool post_peer(int index);
  ssize_t post_next(int index);
  ssize_t post_stripe(int index, Put& put);
  ssize_t post_control(int index, uint32_t half, uint32_t number, size_t bytes);
  ssize_t write(int index, const Immediate& immediate, uint64_t source, uint64_t target, size_t bytes);
  Operation* take_operation();
  void give_back(Operation* operation);

  Rail& rail_;
  Staging& staging_;
  void* descriptor_;
  uint32_t rank_;
  uint32_t generation_;
  uint64_t stripe_bytes_;
  std::function<void(int, int)> on_failed_;
  std::vector<Peer> peers_;
  std::deque<int> ready_;  // peers that may be able to post
  std::deque<Operation> operations_;
  std::vector<Operation*> free_;
  uint64_t in_flight_ = 0;
  bool released_ = false;
};

}  // namespace sluice::fabric::ofi
