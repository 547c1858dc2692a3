// One rank's connections for one epoch: one-sided puts into the peers' windows, and words that tell what has
// arrived.
//
// Every rank exposes one window. In it each source has a slab of its own per (kind, half), so no two ranks
// ever write the same byte. A put builds its bytes in outbox() (the peer's slab itself when the peer is
// local, a registered staging slab when it is on the network) and put() makes them visible. The receiver sees
// arrived(source, kind, seq) turn true, by an acquire load, only after every byte of the put is in place,
// whatever order the provider delivers fragments in. Nothing is inferred from order, and local completion is
// taken for what it is: the staging slab is free again, no more.
//
// A Fabric lives for one epoch. Addresses, keys and windows are never reused by the next one, so a rank that
// was paused and comes back writes into memory nobody reads.
//
// Threads: one caller thread (the engine's) uses outbox/put/wait/wake; end_epoch() and report() are safe from
// any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "fabric/bootstrap.h"
#include "fabric/report.h"

namespace sluice::fabric {

// What a put belongs to. Each kind has its own slabs.
enum class Kind : uint8_t { dispatch = 0, combine = 1 };
inline constexpr int kKinds = 2;
// Exchanges alternate between two halves (seq & 1). exchange.h holds the proof that two are enough.
inline constexpr int kHalves = 2;

// At the front of every slab; written by put(). Read by the receiver only once part 0 is complete.
struct alignas(64) SlabHeader {
  uint32_t magic;
  uint32_t source;
  uint64_t epoch;
  uint64_t seq;    // the exchange's ordinal within the epoch
  uint64_t bytes;  // of payload, after this header
  uint32_t parts;
  uint32_t reserved[5];
};
static_assert(sizeof(SlabHeader) == 64);

struct Options {
  std::string provider;  // "local", "tcp", "efa" or "efa-direct": exactly this one is used, or open() fails
  int rank = 0;
  int ranks = 1;
  uint64_t epoch = 0;  // its lowest 3 bits are the generation in every immediate
  // Payload bytes of one slab, by kind, without SlabHeader. Equal on all ranks (checked at open).
  std::array<size_t, kKinds> slab_bytes{};
  Nanos connect_timeout = seconds(30);
  // Moved to each network peer at open() to prove the transport by counters, in at most 32 puts; 0 leaves
  // the proof out (every pair is connected by one empty put all the same).
  size_t proof_bytes = 1u << 20;
  // The address of the interface at which peers reach this rank ("tcp").
  std::string address = "127.0.0.1";
  // Network puts longer than this travel in up to 16 fragments; 0: always in one.
  size_t stripe_bytes = 0;
  // An inaccessible page on both sides of every slab, so that a stray write faults (tests).
  bool guard_pages = false;
};

enum class Wait {
  ready,
  late,         // the deadline passed
  ended,        // end_epoch() was called
  peer_failed,  // the provider reported a peer gone: failed_peer() names it
};

class Fabric {
 public:
  // Collective: returns when all `ranks` have opened and every pair has been proven, or with an error that
  // names the rank that is missing or differs.
  static Result<std::unique_ptr<Fabric>> open(const Options& options, Bootstrap& bootstrap);
  virtual ~Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks; }
  uint64_t epoch() const { return options_.epoch; }

  // Where the payload of the next put to `peer` is built: slab_bytes[kind] bytes, uninitialised. May wait
  // until the provider has let go of the bytes of exchange seq-2; that wait ends by `deadline`.
  virtual Result<std::span<std::byte>> outbox(int peer, Kind kind, uint64_t seq, Deadline deadline) = 0;
  // Publishes the first `bytes` of that outbox as the peer's slab of exchange `seq`. Never blocks on the
  // peer.
  virtual Status put(int peer, Kind kind, uint64_t seq, size_t bytes) = 0;

  // True once all of `source`'s put of (kind, seq) is in inbox().
  virtual bool arrived(int source, Kind kind, uint64_t seq) const = 0;
  // The payload that `source` put; only after arrived(). Valid until one's own answer lets the source reuse
  // the half. Its length is checked against the slab; its content is the peer's word and must be checked by
  // the reader.
  virtual Result<std::span<const std::byte>> inbox(int source, Kind kind, uint64_t seq) const = 0;

  // Tells `peer` that this rank enters `step` (>= 1). The highest step of each source is kept and never
  // cleared.
  virtual Status wake(int peer, uint64_t step) = 0;
  virtual uint64_t woken(int source) const = 0;

  // Waits until ready() is true; ready() may call arrived() and woken(). Makes progress itself for a while or
  // spins briefly, then sleeps. One waiter at a time.
  template <class Ready>
  Wait wait(Ready&& ready, Deadline deadline) {
    Wait result = Wait::late;
    const auto look = [&] {
      if (ready()) {
        result = Wait::ready;
      } else if (ended_.load(std::memory_order_acquire)) {
        result = Wait::ended;
      } else if (failed_peer_.load(std::memory_order_acquire) >= 0) {
        result = Wait::peer_failed;
      } else {
        return false;
      }
      return true;
    };
    if (!look() && !drive(look, deadline)) doorbell().wait(look, deadline, spin());
    return result;
  }

  // Makes this and every later wait() return `ended`. Callable from any thread, more than once.
  void end_epoch();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Rings the bell of this rank's own waiter, so that it looks at its condition again (new work, shutdown).
  void nudge();
  std::optional<int> failed_peer() const;

  virtual Report report() const = 0;

 protected:
  explicit Fabric(Options options) : options_(std::move(options)) {}

  // The bell of this rank's window.
  virtual Doorbell& doorbell() = 0;
  // Where the caller's thread can do the receiving itself: does so until look() is true, for a short while.
  // False: whoever rings the doorbell is at work again.
  virtual bool drive(FunctionRef<bool()> /*look*/, Deadline /*deadline*/) { return false; }
  Nanos spin() const { return spin_; }
  void peer_failed(int peer);

  Options options_;
  Nanos spin_ = 2'000;

 private:
  std::atomic<bool> ended_{false};
  std::atomic<int> failed_peer_{-1};
};

// Call at the start of main(), before any thread. Sets what libfabric reads once and only from the
// environment, where the user has not set it, and takes back the signals that libraries of libfabric's have
// taken over. Without it everything works, but a "tcp" rank takes 68 MB more and opens slower, and a crash
// leaves a file in the working directory.
void prepare_process();

// The names open() accepts as provider.
std::span<const std::string_view> provider_names();

// Whether open() could use this provider on this host. Asked before anything is started: a network provider
// that is not here is refused with the list of those that are.
Status check_provider(const std::string& name);

}  // namespace sluice::fabric
