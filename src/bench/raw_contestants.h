// What the exchange is held against on its own fabric: plain counted puts of the same bytes ("raw"), and the
// copies that no exchange can avoid ("copies"): rows packed for each peer, experts' rows reduced, answers
// summed.
//
// On a network the floor is the sum of both. Where peers are local a put is a store, so "copies" packs and
// reduces straight into the peers' slabs and signals, and is the floor; "raw" copies the bytes there with
// memcpy.
#pragma once

#include <memory>
#include <vector>

#include "bench/contestant.h"
#include "bench/settings.h"
#include "bench/traffic.h"
#include "fabric/bootstrap.h"
#include "fabric/fabric.h"

namespace sluice::bench {

// A fabric for plain puts: each round sends to every peer, waits for every peer, and so may send again.
class RawFabric {
 public:
  // Collective.
  static Result<std::unique_ptr<RawFabric>> open(const Settings& settings, int rank,
                                                 fabric::Bootstrap& bootstrap);

  bool local() const { return settings_.fabric == "local"; }
  int rank() const { return fabric_->rank(); }
  int ranks() const { return fabric_->ranks(); }
  // In the order in which to send: each rank starts behind itself.
  int peer(int i) const { return (rank() + i) % ranks(); }

  // A dispatch and a combine of nothing.
  Status barrier();
  Result<std::span<std::byte>> outbox(int peer, fabric::Kind kind);
  Status put(int peer, fabric::Kind kind, size_t bytes);
  Status await_all(fabric::Kind kind);
  Result<std::span<const std::byte>> inbox(int source, fabric::Kind kind);
  // After both kinds have been sent and awaited.
  void next() { ++seq_; }

 private:
  RawFabric(const Settings& settings, std::unique_ptr<fabric::Fabric> fabric)
      : settings_(settings), fabric_(std::move(fabric)) {}
  Deadline deadline() const { return Deadline::after(settings_.deadline); }

  const Settings settings_;
  std::unique_ptr<fabric::Fabric> fabric_;
  uint64_t seq_ = 0;
};

class RawContestant final : public Contestant {
 public:
  RawContestant(RawFabric& fabric, const std::vector<RoundTraffic>& traffic);
  Status verify() override;
  Result<Sample> run() override;

 private:
  Status send(fabric::Kind kind, const std::vector<size_t>& bytes);

  RawFabric& fabric_;
  const std::vector<RoundTraffic>& traffic_;
  std::vector<std::byte> source_;  // what memcpy copies where peers are local
};

class CopiesContestant final : public Contestant {
 public:
  CopiesContestant(const Settings& settings, RawFabric& fabric, const std::vector<RoundTraffic>& traffic);
  Status verify() override;
  Result<Sample> run() override;

 private:
  struct Answer {  // a row that comes back for a token
    int32_t peer;
    int32_t row;
  };

  void list_answers();
  Status dispatch(const RoundTraffic& round);
  Status reduce(const RoundTraffic& round);
  void pack(const RoundTraffic& round, int peer, std::byte* to) const;
  void reduce_for(const RoundTraffic& round, int source, std::byte* to) const;
  Status sum(const RoundTraffic& round, const std::vector<std::vector<Answer>>& answers);
  size_t answer_bytes() const;
  DType answer_type() const { return settings_.shape.exact ? DType::float32 : settings_.shape.wire; }

  const Settings settings_;
  RawFabric& fabric_;
  const std::vector<RoundTraffic>& traffic_;
  Tokens tokens_;
  std::vector<std::vector<std::vector<Answer>>> answers_;  // by round, by token
  std::vector<float> pair_rows_;
  std::vector<std::vector<std::byte>> packed_;    // by peer, where a network would take it from
  std::vector<std::vector<std::byte>> returned_;  // by peer, where a network would put it
  std::vector<float> out_;
};

}  // namespace sluice::bench
