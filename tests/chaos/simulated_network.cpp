#include "simulated_network.h"

#include <fmt/core.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "fabric/libfabric/network_link.h"
#include "fabric/local/local_link.h"

namespace sluice::fabric::chaos {

namespace {

constexpr uint64_t kStall = 2000;
constexpr uint64_t kLongestStorm = 60;

}  // namespace

Weather Weather::drawn(uint64_t seed) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u);
  // Each trouble is absent in every second seed, so that each is also seen alone.
  const auto some = [&](int most) {
    return random() % 2 == 0 ? 0 : 1 + static_cast<int>(random() % static_cast<uint64_t>(most));
  };
  Weather weather;
  weather.seed = seed;
  weather.longest_delay = uint64_t{1} << random() % 10;
  weather.pieces = 1 + static_cast<int>(random() % 5);
  weather.refused = some(500);
  weather.storms = some(30);
  weather.stalls = some(30);
  weather.duplicates = some(300);
  return weather;
}

std::string Weather::text() const {
  return fmt::format(
      "seed {}: delay {}, pieces {}, refused {}, storms {}, stalls {}, duplicates {}, lost {}, unreported {}, "
      "errors {}",
      seed, longest_delay, pieces, refused, storms, stalls, duplicates, lost, unreported, errors);
}

struct SimulatedNetwork::Flight {
  int source = 0;
  int target = 0;
  ofi::Write write;
  std::vector<std::byte> bytes;
  size_t pieces_left = 0;
  int announcements = 1;
  bool reported = true;
  bool fails = false;
};

// One rank's rail: its completion queue, and the way into the network.
class SimulatedNetwork::Rail final : public ofi::Rail {
 public:
  Rail(SimulatedNetwork& network, int rank) : network_(network), rank_(rank) {}

  ssize_t write(const ofi::Write& write) override {
    if (storm_ > 0 && --storm_ > 0) return -FI_EAGAIN;
    if (network_.chance(network_.weather_.storms)) storm_ = 1 + network_.random_() % kLongestStorm;
    if (storm_ > 0 || network_.chance(network_.weather_.refused)) return -FI_EAGAIN;
    return network_.accept(rank_, write);
  }

  ssize_t poll(std::span<fi_cq_data_entry> entries) override {
    if (!errors_.empty()) return -FI_EAVAIL;
    // Fewer than there are, at times.
    size_t count = std::min(entries.size(), completions_.size());
    if (count > 0) count = network_.random_() % (count + 1);
    for (size_t i = 0; i < count; ++i) {
      entries[i] = completions_.front();
      completions_.pop_front();
    }
    return static_cast<ssize_t>(count);
  }

  bool read_error(fi_cq_err_entry& entry) override {
    if (errors_.empty()) return false;
    entry = errors_.front();
    errors_.pop_front();
    return true;
  }

  void announce(uint32_t immediate) {
    fi_cq_data_entry entry{};
    entry.flags = FI_REMOTE_CQ_DATA;
    entry.data = immediate;
    completions_.push_back(entry);
  }
  void report(void* context) {
    fi_cq_data_entry entry{};
    entry.op_context = context;
    completions_.push_back(entry);
  }
  void report_error(void* context) {
    fi_cq_err_entry entry{};
    entry.op_context = context;
    entry.err = FI_EIO;
    errors_.push_back(entry);
  }
  bool empty() const { return completions_.empty() && errors_.empty(); }

 private:
  SimulatedNetwork& network_;
  int rank_;
  uint64_t storm_ = 0;
  std::deque<fi_cq_data_entry> completions_;
  std::deque<fi_cq_err_entry> errors_;
};

class SimulatedNetwork::Member final : public WindowFabric, public ofi::Outlet {
 public:
  Member(SimulatedNetwork& network, const Options& options, const std::shared_ptr<Window>& window,
         ofi::Staging staging)
      : WindowFabric(options, window, identity()),
        network_(network),
        window_memory_(window),
        staging_(std::move(staging)),
        progress_(options, *network.rails_[static_cast<size_t>(options.rank)], *window, staging_, nullptr,
                  targets(options), [this](int peer, int) { peer_failed(peer); }) {
    std::vector<std::unique_ptr<Link>> links;
    for (int peer = 0; peer < options.ranks; ++peer) {
      if (peer == options.rank) {
        links.push_back(std::make_unique<LocalLink>(window, options));
      } else {
        links.push_back(std::make_unique<ofi::NetworkLink>(*this, *this, peer));
      }
    }
    set_links(std::move(links));
  }
  ~Member() override {
    clear_links();
    network_.members_[static_cast<size_t>(rank())] = nullptr;
  }

  bool pass() { return progress_.pass(); }
  bool has_unposted() const { return !progress_.drained() || progress_.refused(); }
  std::byte* block(int source) { return window_memory_->data() + window_memory_->layout().block(source); }
  size_t block_bytes() const { return window_memory_->layout().block_bytes(); }

  Report report() const override {
    Report report = WindowFabric::report();
    report.stale_fragments = progress_.arrivals().stale();
    report.duplicate_fragments = progress_.arrivals().duplicates();
    report.malformed_fragments = progress_.arrivals().malformed();
    return report;
  }

 protected:
  // A waiting caller lets the network go on; the other callers stand still meanwhile.
  bool drive(FunctionRef<bool()> look, Deadline) override {
    while (!look()) {
      if (!network_.step()) return look();
    }
    return true;
  }

 private:
  static Report identity() {
    Report report;
    report.provider = "simulated";
    return report;
  }
  // The address of a write says where in the peer's block; the key whose block.
  static std::vector<ofi::Target> targets(const Options& options) {
    std::vector<ofi::Target> targets;
    for (int peer = 0; peer < options.ranks; ++peer) {
      targets.push_back({.peer = static_cast<uint64_t>(peer),
                         .key = static_cast<uint64_t>(options.rank),
                         .base = 0});
    }
    return targets;
  }

  void submit(const Order& order) override {
    while (!progress_.push(order)) progress_.send();
  }
  ofi::Staging& staging() override { return staging_; }
  void begin_wait() override { progress_.begin_wait(); }
  void end_wait() override { progress_.end_wait(); }

  SimulatedNetwork& network_;
  std::shared_ptr<Window> window_memory_;
  ofi::Staging staging_;
  ofi::Progress progress_;
};

SimulatedNetwork::SimulatedNetwork(const Options& shape, const Weather& weather)
    : shape_(shape), weather_(weather), random_(weather.seed) {
  const auto ranks = static_cast<size_t>(shape.ranks);
  for (int rank = 0; rank < shape.ranks; ++rank) rails_.push_back(std::make_unique<Rail>(*this, rank));
  members_.resize(ranks);
  paused_.resize(ranks);
  dead_.resize(ranks);
  revoked_.assign(ranks, std::vector<bool>(ranks));
  open_at_.assign(ranks, std::vector<uint64_t>(ranks));
}

SimulatedNetwork::~SimulatedNetwork() = default;

std::unique_ptr<Fabric> SimulatedNetwork::join(int rank) {
  Options options = shape_;
  options.rank = rank;
  const WindowLayout layout =
      WindowLayout::make(options.ranks, options.slab_bytes, options.guard_pages).value();
  auto member = std::make_unique<Member>(*this, options, Window::create(options, layout).value(),
                                         ofi::Staging::create(layout).value());
  members_[static_cast<size_t>(rank)] = member.get();
  return member;
}

void SimulatedNetwork::schedule(uint64_t at, Event::What what, Flight* flight, size_t begin, size_t end) {
  events_.push({at, random_(), what, flight, begin, end});
}

ssize_t SimulatedNetwork::accept(int source, const ofi::Write& write) {
  Flight* flight = &flights_.emplace_back();
  flight->source = source;
  flight->target = static_cast<int>(write.peer);
  flight->write = write;
  flight->fails = chance(weather_.errors);
  flight->reported = !chance(weather_.unreported);
  if (chance(weather_.duplicates)) flight->announcements = 2;
  if (chance(weather_.lost)) flight->announcements = 0;
  launch(flight);
  return 0;
}

void SimulatedNetwork::launch(Flight* flight) {
  uint64_t& open_at = open_at_[static_cast<size_t>(flight->source)][static_cast<size_t>(flight->target)];
  if (chance(weather_.stalls)) open_at = now_ + kStall;
  schedule(std::max(now_, open_at) + delay(), Event::capture, flight);
}

bool SimulatedNetwork::step() {
  const auto some = static_cast<size_t>(random_() % members_.size());
  if (random_() % 2 == 0 && members_[some] != nullptr && !paused_[some] && !dead_[some]) {
    members_[some]->pass();
    return true;
  }
  if (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.at);
    happen(event);
    return true;
  }
  bool more = false;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    Member* member = members_[rank];
    if (member == nullptr || paused_[rank] || dead_[rank]) continue;
    more = member->pass() || member->has_unposted() || !rails_[rank]->empty() || more;
  }
  return more || !events_.empty();
}

void SimulatedNetwork::settle() {
  while (step()) {
  }
}

void SimulatedNetwork::happen(const Event& event) {
  Flight& flight = *event.flight;
  switch (event.what) {
    case Event::capture: {
      flight.bytes.assign(flight.write.source, flight.write.source + flight.write.length);
      const size_t pieces = std::min<size_t>(1 + random_() % static_cast<uint64_t>(weather_.pieces),
                                             std::max<size_t>(flight.bytes.size(), 1));
      flight.pieces_left = pieces;
      for (size_t i = 0; i < pieces; ++i) {
        schedule(now_ + delay(), Event::place, &flight, flight.bytes.size() * i / pieces,
                 flight.bytes.size() * (i + 1) / pieces);
      }
      if (flight.reported) schedule(now_ + delay(), Event::report, &flight);
      break;
    }
    case Event::place:
      place(event);
      break;
    case Event::announce:
      if (!dead_[static_cast<size_t>(flight.target)]) {
        rails_[static_cast<size_t>(flight.target)]->announce(flight.write.immediate);
      }
      break;
    case Event::report: {
      Rail& rail = *rails_[static_cast<size_t>(flight.source)];
      flight.fails ? rail.report_error(flight.write.context) : rail.report(flight.write.context);
      break;
    }
  }
}

void SimulatedNetwork::place(const Event& event) {
  Flight& flight = *event.flight;
  const auto target = static_cast<size_t>(flight.target);
  const auto key = static_cast<size_t>(flight.write.key);
  if (flight.fails || dead_[target] || members_[target] == nullptr) return;
  if (revoked_[target][key]) {
    if (event.begin == 0) ++refused_writes_;
    return;
  }
  Member& member = *members_[target];
  if (flight.write.address + flight.write.length > member.block_bytes()) {
    std::fprintf(stderr, "a write outside its block: %zu bytes at %zu\n", flight.write.length,
                 static_cast<size_t>(flight.write.address));
    std::abort();
  }
  // A write of nothing has no bytes to place.
  if (event.end > event.begin) {
    std::memcpy(member.block(static_cast<int>(key)) + flight.write.address + event.begin,
                flight.bytes.data() + event.begin, event.end - event.begin);
  }
  if (--flight.pieces_left > 0) return;
  for (int i = 0; i < flight.announcements; ++i) schedule(now_ + delay(), Event::announce, &flight);
}

void SimulatedNetwork::kill(int rank) { dead_[static_cast<size_t>(rank)] = true; }
void SimulatedNetwork::pause(int rank) { paused_[static_cast<size_t>(rank)] = true; }
void SimulatedNetwork::resume(int rank) { paused_[static_cast<size_t>(rank)] = false; }
void SimulatedNetwork::announce(int target, uint32_t immediate) {
  rails_[static_cast<size_t>(target)]->announce(immediate);
}
void SimulatedNetwork::revoke(int owner, int source) {
  revoked_[static_cast<size_t>(owner)][static_cast<size_t>(source)] = true;
}

}  // namespace sluice::fabric::chaos
