// Bootstrap among threads: the n-th call of every rank is the n-th meeting, kept until all have read it.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "fabric/bootstrap.h"

namespace sluice::fabric {

namespace {

struct Gift {
  std::string text;
  std::shared_ptr<void> object;
};

struct Round {
  std::string name;
  int first_rank = 0;  // who named it
  std::vector<bool> present;
  std::vector<Gift> gifts;
  int given = 0;
  int read = 0;
};

}  // namespace

Result<std::vector<std::shared_ptr<void>>> Bootstrap::all_share(std::string_view, std::shared_ptr<void>,
                                                                Deadline) {
  return std::vector<std::shared_ptr<void>>{};
}

struct InProcessHub::Meeting {
  int ranks = 0;
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<uint64_t, Round> rounds;
  std::vector<uint64_t> next;  // the round that a rank's next call belongs to
  Status out_of_step;          // once it is an error, the answer to every call

  Result<std::vector<Gift>> meet(int rank, std::string_view name, Gift mine, Deadline deadline);
  Status enter(Round& round, int rank, std::string_view name, Gift mine);
  Status missing(const Round& round, Nanos waited) const;
};

Status InProcessHub::Meeting::enter(Round& round, int rank, std::string_view name, Gift mine) {
  if (round.given == 0) {
    round.name = name;
    round.first_rank = rank;
    round.present.assign(static_cast<size_t>(ranks), false);
    round.gifts.resize(static_cast<size_t>(ranks));
  } else if (round.name != name) {
    out_of_step = invalid_argument(fmt::format(
        "rank {} gathers '{}' while rank {} gathers '{}': the ranks' calls must come in the same order", rank,
        name, round.first_rank, round.name));
    arrived.notify_all();
    return out_of_step;
  }
  round.gifts[static_cast<size_t>(rank)] = std::move(mine);
  round.present[static_cast<size_t>(rank)] = true;
  ++round.given;
  return {};
}

Status InProcessHub::Meeting::missing(const Round& round, Nanos waited) const {
  std::vector<int> absent;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!round.present[static_cast<size_t>(rank)]) absent.push_back(rank);
  }
  return {Code::deadline_exceeded,
          fmt::format("rank{} {} {} missing from '{}' after {} ms", absent.size() == 1 ? "" : "s",
                      fmt::join(absent, ", "), absent.size() == 1 ? "is" : "are", round.name,
                      waited / milliseconds(1))};
}

Result<std::vector<Gift>> InProcessHub::Meeting::meet(int rank, std::string_view name, Gift mine,
                                                      Deadline deadline) {
  const Nanos begin = now();
  std::unique_lock lock(mutex);
  SLUICE_RETURN_IF_ERROR(out_of_step);
  const uint64_t number = next[static_cast<size_t>(rank)]++;
  Round& round = rounds[number];
  SLUICE_RETURN_IF_ERROR(enter(round, rank, name, std::move(mine)));
  if (round.given == ranks) arrived.notify_all();
  const auto until = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.when()));
  if (!arrived.wait_until(lock, until, [&] { return round.given == ranks || !out_of_step.ok(); })) {
    return missing(round, now() - begin);
  }
  if (round.given != ranks) return out_of_step;
  std::vector<Gift> gifts = round.gifts;
  if (++round.read == ranks) rounds.erase(number);
  return gifts;
}

class InProcessHub::Member final : public Bootstrap {
 public:
  Member(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

  Result<std::vector<std::string>> all_gather(std::string_view name, std::string mine,
                                              Deadline deadline) override {
    SLUICE_ASSIGN_OR_RETURN(auto gifts, meeting_.meet(rank_, name, {std::move(mine), nullptr}, deadline));
    std::vector<std::string> texts;
    texts.reserve(gifts.size());
    for (Gift& gift : gifts) texts.push_back(std::move(gift.text));
    return texts;
  }

  Result<std::vector<std::shared_ptr<void>>> all_share(std::string_view name, std::shared_ptr<void> mine,
                                                       Deadline deadline) override {
    SLUICE_ASSIGN_OR_RETURN(auto gifts, meeting_.meet(rank_, name, {{}, std::move(mine)}, deadline));
    std::vector<std::shared_ptr<void>> objects;
    objects.reserve(gifts.size());
    for (Gift& gift : gifts) objects.push_back(std::move(gift.object));
    return objects;
  }

 private:
  Meeting& meeting_;
  int rank_;
};

InProcessHub::InProcessHub(int ranks) : meeting_(std::make_unique<Meeting>()) {
  meeting_->ranks = ranks;
  meeting_->next.assign(static_cast<size_t>(ranks), 0);
}

InProcessHub::~InProcessHub() = default;

std::unique_ptr<Bootstrap> InProcessHub::join(int rank) { return std::make_unique<Member>(*meeting_, rank); }

}  // namespace sluice::fabric
