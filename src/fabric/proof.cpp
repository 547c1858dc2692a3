#include "fabric/proof.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "fabric/handshake.h"
#include "fabric/slab.h"
#include "fabric/wire.h"

namespace sluice::fabric {

namespace {

constexpr uint64_t kMostRounds = 32;

// The bytes of one put, eight at a time, different for every pair, round and place.
uint64_t proof_word(int source, int target, uint64_t round, size_t index) {
  uint64_t x =
      static_cast<uint64_t>(source) << 52 ^ static_cast<uint64_t>(target) << 40 ^ round << 32 ^ index;
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15;
  return x ^ x >> 29;
}

struct Plan {
  Kind kind = Kind::dispatch;
  uint64_t rounds = 1;
  size_t bytes = 0;  // of payload a put, whole words
};

Plan make_plan(const Options& options) {
  Plan plan;
  plan.kind = options.slab_bytes[1] > options.slab_bytes[0] ? Kind::combine : Kind::dispatch;
  if (options.proof_bytes == 0) return plan;
  const size_t most = options.slab_bytes[static_cast<size_t>(plan.kind)];
  plan.bytes = std::min(most, options.proof_bytes) / 8 * 8;
  const size_t put = plan.bytes + sizeof(SlabHeader);
  plan.rounds = std::min<uint64_t>(kMostRounds, (options.proof_bytes + put - 1) / put);
  return plan;
}

Status send_round(Fabric& fabric, const Plan& plan, uint64_t round, Deadline deadline) {
  for (int i = 1; i < fabric.ranks(); ++i) {
    const int peer = (fabric.rank() + i) % fabric.ranks();
    SLUICE_ASSIGN_OR_RETURN(auto outbox, fabric.outbox(peer, plan.kind, kProofSeq + round, deadline));
    for (size_t at = 0; at < plan.bytes; at += 8) {
      const uint64_t word = proof_word(fabric.rank(), peer, round, at);
      std::memcpy(outbox.data() + at, &word, 8);
    }
    SLUICE_RETURN_IF_ERROR(fabric.put(peer, plan.kind, kProofSeq + round, plan.bytes));
  }
  return {};
}

Status await_round(Fabric& fabric, const Plan& plan, uint64_t round, Deadline deadline) {
  std::vector<int> missing;
  const auto look = [&] {
    missing.clear();
    for (int source = 0; source < fabric.ranks(); ++source) {
      if (source != fabric.rank() && !fabric.arrived(source, plan.kind, kProofSeq + round)) {
        missing.push_back(source);
      }
    }
    return missing.empty();
  };
  switch (fabric.wait(look, deadline)) {
    case Wait::ready:
      return {};
    case Wait::peer_failed:
      return unavailable(fmt::format("the connection to rank {} failed", fabric.failed_peer().value_or(-1)));
    case Wait::ended:
      return aborted("the epoch ended while the fabric was opened");
    case Wait::late:
      break;
  }
  return {Code::deadline_exceeded,
          fmt::format("nothing came over the fabric from rank{} {} (put {} of {})",
                      missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), round + 1, plan.rounds)};
}

Status check_round(Fabric& fabric, const Plan& plan, uint64_t round) {
  for (int source = 0; source < fabric.ranks(); ++source) {
    if (source == fabric.rank()) continue;
    SLUICE_ASSIGN_OR_RETURN(auto inbox, fabric.inbox(source, plan.kind, kProofSeq + round));
    if (inbox.size() != plan.bytes) {
      return data_loss(fmt::format("put {} of rank {} has {} bytes, expected {}", round, source, inbox.size(),
                                   plan.bytes));
    }
    for (size_t at = 0; at < plan.bytes; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, inbox.data() + at, 8);
      const uint64_t expected = proof_word(source, fabric.rank(), round, at);
      if (word != expected) {
        return data_loss(fmt::format("byte {} of put {} of rank {}: {:016x} instead of {:016x}", at, round,
                                     source, word, expected));
      }
    }
  }
  return {};
}

// Two halves and lockstep, as in an exchange: nobody sends round n + 2 before all have finished with n.
Status move_bytes(Fabric& fabric, const Plan& plan, Deadline deadline) {
  for (uint64_t round = 0; round < plan.rounds; ++round) {
    SLUICE_RETURN_IF_ERROR(send_round(fabric, plan, round, deadline));
    SLUICE_RETURN_IF_ERROR(await_round(fabric, plan, round, deadline));
    SLUICE_RETURN_IF_ERROR(check_round(fabric, plan, round));
  }
  return {};
}

// Two counters a peer: puts and bytes that this rank has sent it.
std::string sent_counters(const Report& report) {
  std::vector<uint64_t> counters;
  for (const PeerTraffic& peer : report.peers) {
    counters.push_back(peer.puts_sent);
    counters.push_back(peer.bytes_sent);
  }
  return {reinterpret_cast<const char*>(counters.data()), counters.size() * sizeof(uint64_t)};
}

Status compare_counters(const Report& report, int rank, const std::vector<std::string>& sent) {
  for (const PeerTraffic& peer : report.peers) {
    if (peer.rank == rank) continue;
    const std::string& theirs = sent[static_cast<size_t>(peer.rank)];
    if (theirs.size() != report.peers.size() * 2 * sizeof(uint64_t)) {
      return data_loss(fmt::format("rank {} sent {} bytes of counters, expected {}", peer.rank, theirs.size(),
                                   report.peers.size() * 2 * sizeof(uint64_t)));
    }
    std::array<uint64_t, 2> counters{};
    std::memcpy(counters.data(), theirs.data() + static_cast<size_t>(rank) * sizeof(counters),
                sizeof(counters));
    if (counters[0] != peer.puts_received || counters[1] != peer.bytes_received) {
      return data_loss(fmt::format(
          "rank {} counts {} puts and {} bytes sent to rank {}, which counts {} puts and {} bytes received",
          peer.rank, counters[0], counters[1], rank, peer.puts_received, peer.bytes_received));
    }
  }
  return {};
}

}  // namespace

Status prove_transport(Fabric& fabric, const Options& options, Bootstrap& bootstrap, Deadline deadline) {
  const Status moved = move_bytes(fabric, make_plan(options), deadline);
  // A rank that failed says so even when the time is up, so that the others need not find out by waiting.
  const Deadline last = Deadline::at(deadline.when() + seconds(2));
  SLUICE_RETURN_IF_ERROR(all_agree(bootstrap, "fabric proof", moved, options.rank, last));
  const Report report = fabric.report();
  SLUICE_ASSIGN_OR_RETURN(auto sent,
                          bootstrap.all_gather("fabric counters", sent_counters(report), deadline));
  const Status compared = compare_counters(report, options.rank, sent);
  return all_agree(bootstrap, "fabric ready", compared, options.rank, deadline);
}

}  // namespace sluice::fabric
