#include "cluster/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "cluster/membership.h"

namespace sluice::cluster {

void Rendezvous::open(EpochId epoch, std::vector<int> members) {
  close(fmt::format("epoch {} has begun", to_string(epoch)));
  open_ = true;
  epoch_ = epoch;
  members_ = std::move(members);
}

void Rendezvous::close(const std::string& reason) {
  open_ = false;
  closed_because_ = reason;
  for (auto& [number, round] : std::exchange(rounds_, {})) {
    fail(std::move(round), aborted(fmt::format("epoch {} was given up: {}", to_string(epoch_), reason)));
  }
}

void Rendezvous::fail(Round round, const Status& why) {
  for (auto& [rank, guest] : round) guest.done(why);
}

Status Rendezvous::refusal(const Visit& visit) const {
  if (!open_ || !(visit.epoch == epoch_)) {
    return aborted(
        fmt::format("epoch {} is over: {}", to_string(visit.epoch),
                    open_ ? fmt::format("epoch {} has begun", to_string(epoch_)) : closed_because_));
  }
  if (std::find(members_.begin(), members_.end(), visit.rank) == members_.end()) {
    return invalid_argument(
        fmt::format("rank {} is not a member of epoch {}", visit.rank, to_string(visit.epoch)));
  }
  const auto round = rounds_.find(visit.round);
  if (round == rounds_.end()) return {};
  if (round->second.count(visit.rank) != 0) {
    return invalid_argument(fmt::format("rank {} came twice to round {} of epoch {}", visit.rank, visit.round,
                                        to_string(visit.epoch)));
  }
  const Guest& first = round->second.begin()->second;
  if (first.visit.name != visit.name) {
    return invalid_argument(fmt::format(
        "round {} of epoch {} is '{}' for rank {} and '{}' for rank {}: all ranks must gather in the same "
        "order",
        visit.round, to_string(visit.epoch), first.visit.name, first.visit.rank, visit.name, visit.rank));
  }
  return {};
}

void Rendezvous::visit(Visit visit, Done done) {
  if (Status status = refusal(visit); !status.ok()) return done(std::move(status));
  const uint64_t number = visit.round;
  Round& round = rounds_[number];
  const int rank = visit.rank;
  round.emplace(rank, Guest{std::move(visit), std::move(done)});
  if (round.size() < members_.size()) return;
  Round full = std::move(round);
  rounds_.erase(number);
  std::vector<std::string> values;
  for (int member : members_) values.push_back(std::move(full.at(member).visit.value));
  for (auto& [member, guest] : full) guest.done(values);
}

void Rendezvous::expire(Nanos time) {
  for (auto entry = rounds_.begin(); entry != rounds_.end();) {
    Round& round = entry->second;
    const auto late = std::find_if(round.begin(), round.end(),
                                   [&](const auto& guest) { return guest.second.visit.deadline <= time; });
    if (late == round.end()) {
      ++entry;
      continue;
    }
    std::vector<int> missing;
    for (int member : members_) {
      if (round.count(member) == 0) missing.push_back(member);
    }
    const Visit& visit = late->second.visit;
    Status why{Code::deadline_exceeded,
               fmt::format("rank{} {} {} missing from '{}' of epoch {} after {:.3g} s",
                           missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                           missing.size() == 1 ? "is" : "are", visit.name, to_string(epoch_),
                           static_cast<double>(visit.patience) / 1e9)};
    Round failed = std::move(round);
    entry = rounds_.erase(entry);
    fail(std::move(failed), why);
  }
}

std::optional<Nanos> Rendezvous::next_deadline() const {
  std::optional<Nanos> first;
  for (const auto& [number, round] : rounds_) {
    for (const auto& [rank, guest] : round) {
      if (!first || guest.visit.deadline < *first) first = guest.visit.deadline;
    }
  }
  return first;
}

}  // namespace sluice::cluster
