#include "engine/scheduler.h"

#include <algorithm>

namespace sluice::engine {

std::vector<Part> Scheduler::plan(int budget) {
  std::vector<Part> parts;
  const size_t running_before = running_.size();
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    if (running_[i]->pending() != 1) continue;
    if (!reserve_decode(i)) break;  // it was the youngest, and is waiting now
    parts.push_back({running_[i].get(), 1, true});
    --budget;
  }
  // After a preemption the free blocks belong to those that run.
  if (running_.size() == running_before) admit();
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    RequestState& request = *running_[i];
    if (request.pending() == 1 && i < running_before) continue;
    const int64_t queries = std::min<int64_t>(request.pending(), budget);
    parts.push_back({&request, queries, queries == request.pending()});
    budget -= static_cast<int>(queries);
  }
  return parts;
}

// Blocks for the token that running_[index] is about to compute. False when it had to give its own up.
bool Scheduler::reserve_decode(size_t index) {
  while (!blocks_.extend(running_[index]->blocks, running_[index]->length())) {
    const bool itself = index + 1 == running_.size();
    preempt_youngest();
    if (itself) return false;
  }
  return true;
}

void Scheduler::preempt_youngest() {
  std::unique_ptr<RequestState> youngest = std::move(running_.back());
  running_.pop_back();
  blocks_.release(youngest->blocks);
  youngest->computed = 0;
  waiting_.push_front(std::move(youngest));
}

void Scheduler::admit() {
  while (!waiting_.empty() && running() < max_num_seqs_) {
    RequestState& next = *waiting_.front();
    // A block is kept back for each that runs already, so that what is admitted is not preempted at once.
    const int64_t needed = blocks_.blocks_for(next.length() + 1) + running();
    if (needed > blocks_.free() && !running_.empty()) return;
    if (!blocks_.extend(next.blocks, next.length())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::commit(const std::vector<Part>& parts) {
  for (const Part& part : parts) part.request->computed += part.queries;
}

std::unique_ptr<RequestState> Scheduler::remove(uint64_t id) {
  const auto take = [&](auto& from) -> std::unique_ptr<RequestState> {
    const auto found = std::find_if(from.begin(), from.end(), [&](const auto& r) { return r->id == id; });
    if (found == from.end()) return nullptr;
    std::unique_ptr<RequestState> request = std::move(*found);
    from.erase(found);
    blocks_.release(request->blocks);
    return request;
  };
  if (auto request = take(running_)) return request;
  return take(waiting_);
}

std::vector<std::unique_ptr<RequestState>> Scheduler::remove_all() {
  std::vector<std::unique_ptr<RequestState>> all;
  for (auto& request : running_) all.push_back(std::move(request));
  for (auto& request : waiting_) all.push_back(std::move(request));
  running_.clear();
  waiting_.clear();
  for (auto& request : all) blocks_.release(request->blocks);
  return all;
}

bool Scheduler::work_after(const std::vector<Part>& parts) const {
  if (!waiting_.empty()) return true;
  const auto ends = [](const Part& part) { return part.completes && part.request->ends_with_next(); };
  return static_cast<size_t>(std::count_if(parts.begin(), parts.end(), ends)) < running_.size();
}

}  // namespace sluice::engine
