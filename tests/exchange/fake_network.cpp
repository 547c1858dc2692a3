#include "fake_network.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace sluice::exchange::test {

using fabric::Kind;

struct FakeNetwork::Put {
  int source = 0;
  int target = 0;
  Kind kind = Kind::dispatch;
  uint64_t seq = 0;
  std::vector<std::byte> bytes;
  size_t fragments_left = 0;  // under the network's mutex
};

class FakeNetwork::Member final : public fabric::Fabric {
 public:
  Member(FakeNetwork& network, fabric::Options options) : Fabric(std::move(options)), network_(network) {
    const auto ranks = static_cast<size_t>(options_.ranks);
    slabs_ = std::vector<Slab>(ranks * fabric::kKinds * fabric::kHalves);
    woken_ = std::vector<std::atomic<uint64_t>>(ranks);
    for (size_t i = 0; i < slabs_.size(); ++i) {
      slabs_[i].staging.resize(options_.slab_bytes[i / fabric::kHalves % fabric::kKinds] / 64 + 1);
      std::memset(slabs_[i].staging.data(), std::to_integer<int>(network_.options_.unwritten),
                  slabs_[i].staging.size() * sizeof(Line));
      slabs_[i].memory.resize(slabs_[i].staging.size());
    }
  }

  ~Member() override {
    const std::lock_guard lock(network_.mutex_);
    network_.members_[static_cast<size_t>(rank())] = nullptr;
  }

  Result<std::span<std::byte>> outbox(int peer, Kind kind, uint64_t seq, Deadline) override {
    Slab& slab = at(peer, kind, seq);
    return std::span(slab.staging.front().bytes, options_.slab_bytes[static_cast<size_t>(kind)]);
  }

  Status put(int peer, Kind kind, uint64_t seq, size_t bytes) override {
    auto put = std::make_shared<Put>();
    put->source = rank();
    put->target = peer;
    put->kind = kind;
    put->seq = seq;
    const std::byte* from = at(peer, kind, seq).staging.front().bytes;
    put->bytes.assign(from, from + bytes);
    network_.send(std::move(put));
    return {};
  }

  bool arrived(int source, Kind kind, uint64_t seq) const override {
    return at(source, kind, seq).arrived.load(std::memory_order_acquire) == seq + 1;
  }

  Result<std::span<const std::byte>> inbox(int source, Kind kind, uint64_t seq) const override {
    const Slab& slab = at(source, kind, seq);
    return std::span<const std::byte>(slab.memory.front().bytes, slab.bytes);
  }

  Status wake(int peer, uint64_t step) override {
    const std::lock_guard lock(network_.mutex_);
    Member* member = network_.members_[static_cast<size_t>(peer)];
    if (member == nullptr) return {};
    auto& word = member->woken_[static_cast<size_t>(rank())];
    word.store(std::max(word.load(), step), std::memory_order_release);
    member->bell_.ring();
    return {};
  }
  uint64_t woken(int source) const override {
    return woken_[static_cast<size_t>(source)].load(std::memory_order_acquire);
  }

  fabric::Report report() const override {
    fabric::Report report;
    report.provider = "fake";
    return report;
  }

  // Called by the network under its mutex.
  void place(const Put& put, size_t begin, size_t end) {
    std::memcpy(at(put.source, put.kind, put.seq).memory.front().bytes + begin, put.bytes.data() + begin,
                end - begin);
  }
  void publish(const Put& put) {
    Slab& slab = at(put.source, put.kind, put.seq);
    slab.bytes = put.bytes.size();
    slab.arrived.store(put.seq + 1, std::memory_order_release);
    bell_.ring();
  }
  void lose(int peer) { peer_failed(peer); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Slab {
    std::vector<Line> staging;  // for what this rank sends
    std::vector<Line> memory;   // for what this rank receives
    size_t bytes = 0;
    std::atomic<uint64_t> arrived{0};
  };

  size_t index(int peer, Kind kind, uint64_t seq) const {
    return (static_cast<size_t>(peer) * fabric::kKinds + static_cast<size_t>(kind)) * fabric::kHalves +
           (seq & 1);
  }
  Slab& at(int peer, Kind kind, uint64_t seq) { return slabs_[index(peer, kind, seq)]; }
  const Slab& at(int peer, Kind kind, uint64_t seq) const { return slabs_[index(peer, kind, seq)]; }

  Doorbell& doorbell() override { return bell_; }

  FakeNetwork& network_;
  std::vector<Slab> slabs_;
  std::vector<std::atomic<uint64_t>> woken_;
  Doorbell bell_;
};

FakeNetwork::FakeNetwork(FakeOptions options)
    : options_(options),
      members_(static_cast<size_t>(options.ranks)),
      silent_(static_cast<size_t>(options.ranks)),
      random_(options.seed),
      thread_([this] { deliver(); }) {}

FakeNetwork::~FakeNetwork() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  pending_.notify_all();
  thread_.join();
}

std::unique_ptr<fabric::Fabric> FakeNetwork::join(int rank) {
  fabric::Options options;
  options.provider = "fake";
  options.rank = rank;
  options.ranks = options_.ranks;
  options.epoch = options_.epoch;
  options.slab_bytes = options_.slab_bytes;
  auto member = std::make_unique<Member>(*this, options);
  const std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(rank)] = member.get();
  return member;
}

void FakeNetwork::silence(int rank) { silent_[static_cast<size_t>(rank)].store(true); }

void FakeNetwork::kill(int rank) {
  silence(rank);
  const std::lock_guard lock(mutex_);
  for (Member* member : members_) {
    if (member != nullptr && member->rank() != rank) member->lose(rank);
  }
}

void FakeNetwork::send(std::shared_ptr<Put> put) {
  if (silent_[static_cast<size_t>(put->source)].load()) return;
  if (tamper_) tamper_(put->source, put->target, put->kind, put->seq, put->bytes);
  {
    const std::lock_guard lock(mutex_);
    const size_t count = 1 + random_() % static_cast<size_t>(options_.fragments);
    const size_t step = put->bytes.size() / count + 1;
    for (size_t begin = 0; begin == 0 || begin < put->bytes.size(); begin += step) {
      fragments_.push_back({put, begin, std::min(begin + step, put->bytes.size())});
      ++put->fragments_left;
    }
  }
  pending_.notify_one();
}

void FakeNetwork::deliver() {
  std::unique_lock lock(mutex_);
  while (true) {
    pending_.wait(lock, [&] { return stop_ || !fragments_.empty(); });
    if (stop_) return;
    if (random_() % 100 < static_cast<uint64_t>(options_.delay_percent)) {
      const auto pause = std::chrono::microseconds(random_() % 50);
      lock.unlock();
      std::this_thread::sleep_for(pause);
      lock.lock();
    }
    const size_t chosen = random_() % fragments_.size();
    const Fragment fragment = fragments_[chosen];
    fragments_[chosen] = fragments_.back();
    fragments_.pop_back();
    Member* target = members_[static_cast<size_t>(fragment.put->target)];
    if (target == nullptr) continue;
    target->place(*fragment.put, fragment.begin, fragment.end);
    if (--fragment.put->fragments_left == 0) target->publish(*fragment.put);
  }
}

}  // namespace sluice::exchange::test
