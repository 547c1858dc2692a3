#include "cluster/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

namespace sluice::cluster {
namespace {

// A message names this many ranks and counts the others.
constexpr int kRanksNamed = 8;

// The first line in which two fingerprints differ, of each.
std::pair<std::string_view, std::string_view> first_difference(std::string_view left,
                                                               std::string_view right) {
  while (true) {
    const std::string_view a = left.substr(0, left.find('\n'));
    const std::string_view b = right.substr(0, right.find('\n'));
    if (a != b || a.size() == left.size() || b.size() == right.size()) return {a, b};
    left.remove_prefix(a.size() + 1);
    right.remove_prefix(b.size() + 1);
  }
}

std::string describe(int rank, const Breakage& why) {
  std::string text = fmt::format("rank {} cannot go on: {}", rank, why.reason);
  if (why.blamed_rank >= 0) text += fmt::format(" (blames rank {}", why.blamed_rank);
  if (why.blamed_rank >= 0 && why.layer >= 0) text += fmt::format(", layer {}", why.layer);
  if (why.blamed_rank >= 0 && !why.phase.empty()) text += ", " + why.phase;
  if (why.blamed_rank >= 0) text += ")";
  return text;
}

}  // namespace

bool operator==(const EpochId& left, const EpochId& right) {
  return left.term == right.term && left.number == right.number;
}

bool operator<(const EpochId& left, const EpochId& right) {
  return std::tie(left.term, left.number) < std::tie(right.term, right.number);
}

std::string to_string(const EpochId& epoch) { return fmt::format("{}.{}", epoch.term, epoch.number); }

Membership::Membership(Options options)
    : options_(options), slots_(static_cast<size_t>(options.ranks)), epoch_{options.term, 0} {}

Membership::Slot* Membership::find(Session session) {
  if (session == 0) return nullptr;
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const Slot& candidate) { return candidate.session == session; });
  return slot == slots_.end() ? nullptr : &*slot;
}

Status Membership::check(const Introduction& who) const {
  if (who.rank < 0 || who.rank >= options_.ranks) {
    return invalid_argument(
        fmt::format("rank {} is refused: this cluster has ranks 0 to {}", who.rank, options_.ranks - 1));
  }
  const Slot& slot = slots_[static_cast<size_t>(who.rank)];
  if (slot.session != 0 && slot.pid != who.pid) {
    return invalid_argument(fmt::format("rank {} of process {} is refused: process {} already is rank {}",
                                        who.rank, who.pid, slot.pid, who.rank));
  }
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const Slot& other = slots_[static_cast<size_t>(rank)];
    if (rank == who.rank || other.session == 0 || other.who.fingerprint == who.fingerprint) continue;
    const auto [mine, theirs] = first_difference(who.fingerprint, other.who.fingerprint);
    return invalid_argument(
        fmt::format("rank {} is refused, because it differs from rank {}: it has '{}', rank {} has '{}'; all "
                    "ranks must run the same program, model and options",
                    who.rank, rank, mine, rank, theirs));
  }
  return {};
}

Status Membership::hello(Session session, const Introduction& who, Nanos time) {
  if (Status status = check(who); !status.ok()) {
    const bool known = who.rank >= 0 && who.rank < options_.ranks;
    if (known && slots_[static_cast<size_t>(who.rank)].session == 0) {
      slots_[static_cast<size_t>(who.rank)].state = "refused: " + status.message();
    }
    return status;
  }
  Slot& slot = slots_[static_cast<size_t>(who.rank)];
  if (slot.session != 0) drop(slot, "joined", fmt::format("rank {} joined again", who.rank), time);
  slot =
      Slot{.session = session, .who = who, .pid = who.pid, .state = "joined", .ready = false, .fabric = {}};
  highest_seen_ = std::max(highest_seen_, who.highest_epoch);
  begin_if_complete(time);
  return {};
}

void Membership::leave(Session session, const std::string& reason, Nanos time) {
  Slot* slot = find(session);
  if (slot == nullptr) return;
  drop(*slot, "dead: " + reason, fmt::format("rank {} was lost: {}", slot->who.rank, reason), time);
}

void Membership::ready(Session session, EpochId epoch, fabric::Report report) {
  Slot* slot = find(session);
  if (slot == nullptr || !running_ || !(epoch == epoch_)) return;
  slot->ready = true;
  slot->state = "ready";
  slot->fabric = std::move(report);
  if (ready()) {
    ever_ready_ = was_ready_ = true;
  }
}

void Membership::broken(Session session, EpochId epoch, const Breakage& why, Nanos time) {
  Slot* slot = find(session);
  if (slot == nullptr || !running_ || !(epoch == epoch_)) return;
  end_epoch(End::broken, describe(slot->who.rank, why), time);
  begin_if_complete(time);
}

void Membership::process_started(int rank, int pid) {
  Slot& slot = slots_[static_cast<size_t>(rank)];
  if (slot.session != 0) return;  // it has joined faster than the supervisor could say so
  slot.pid = pid;
  slot.state = "loading";
}

void Membership::process_exited(int rank, int pid, const std::string& reason, Nanos time) {
  Slot& slot = slots_[static_cast<size_t>(rank)];
  if (slot.pid != pid) return;
  drop(slot, "dead: " + reason, fmt::format("rank {} (pid {}) was lost: {}", rank, pid, reason), time);
}

void Membership::drop(Slot& slot, const std::string& state, const std::string& reason, Nanos time) {
  const bool member = slot.session != 0;
  slot.session = 0;
  slot.ready = false;
  slot.state = state;
  if (member && running_) end_epoch(End::lost, reason, time);
}

void Membership::end_epoch(End end, const std::string& reason, Nanos time) {
  running_ = false;
  last_end_ = reason;
  for (Slot& slot : slots_) {
    slot.ready = false;
    if (slot.session == 0) continue;
    slot.state = "joined";
    directives_.push_back({.session = slot.session,
                           .kind = Directive::Kind::end,
                           .epoch = epoch_,
                           .members = {},
                           .reason = reason});
  }
  not_before_ = time;
  if (was_ready_ && (end == End::lost || time - begun_at_ >= options_.settled_after)) broken_in_a_row_ = 0;
  if (was_ready_ && broken_in_a_row_ == 0) {
    if (end == End::broken) broken_in_a_row_ = 1;
    return;
  }
  Nanos delay = options_.first_retry;
  for (int i = was_ready_ ? 1 : 0; i < broken_in_a_row_ && delay < options_.longest_retry; ++i) delay *= 2;
  not_before_ += std::min(delay, options_.longest_retry);
  ++broken_in_a_row_;
}

bool Membership::complete() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.session != 0; });
}

void Membership::begin_if_complete(Nanos time) {
  if (running_ || !complete() || time < not_before_) return;
  // A rank that knows a higher term has served another leader: this one must be above it.
  if (highest_seen_.term > epoch_.term) epoch_.term = highest_seen_.term + 1;
  epoch_.number = std::max(epoch_.number, highest_seen_.number) + 1;
  running_ = true;
  was_ready_ = false;
  begun_at_ = time;
  std::vector<int> members(slots_.size());
  for (size_t rank = 0; rank < members.size(); ++rank) members[rank] = static_cast<int>(rank);
  for (Slot& slot : slots_) {
    slot.ready = false;
    slot.state = "joining";
    directives_.push_back({.session = slot.session,
                           .kind = Directive::Kind::begin,
                           .epoch = epoch_,
                           .members = members,
                           .reason = {}});
  }
}

void Membership::tick(Nanos time) { begin_if_complete(time); }

std::optional<Nanos> Membership::next_tick() const {
  if (running_ || !complete()) return std::nullopt;
  return not_before_;
}

std::vector<Directive> Membership::take_directives() { return std::exchange(directives_, {}); }

bool Membership::ready() const {
  return running_ && std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.ready; });
}

Status Membership::hopeless() const {
  if (ever_ready_ || broken_in_a_row_ < options_.first_attempts) return {};
  return unavailable(
      fmt::format("the first {} epochs all broke, the last because {}", broken_in_a_row_, last_end_));
}

std::string Membership::message() const {
  if (ready()) {
    return fmt::format("ready: {} of {} ranks in epoch {}", slots_.size(), slots_.size(), to_string(epoch_));
  }
  std::string text;
  int missing = 0;
  for (size_t rank = 0; rank < slots_.size(); ++rank) {
    if (slots_[rank].ready) continue;
    if (++missing > kRanksNamed) continue;
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, slots_[rank].state);
  }
  if (missing > kRanksNamed) text += fmt::format("; and {} more ranks", missing - kRanksNamed);
  if (!running_ && complete()) text += fmt::format(" (epoch {} ended: {})", to_string(epoch_), last_end_);
  return text;
}

ClusterView Membership::view() const {
  ClusterView view;
  view.health.ready = ready();
  view.health.message = message();
  view.health.epoch = epoch_;
  for (size_t rank = 0; rank < slots_.size(); ++rank) {
    const Slot& slot = slots_[rank];
    view.health.ranks.push_back({.rank = static_cast<int>(rank),
                                 .pid = slot.pid,
                                 .state = slot.state,
                                 .ready = slot.ready,
                                 .fabric = slot.fabric});
    view.addresses.push_back(slot.session == 0 ? std::string() : slot.who.address);
  }
  return view;
}

}  // namespace sluice::cluster
