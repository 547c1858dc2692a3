// A rank without a model: an engine that gives token prompt[0] + index a millisecond apart while it is in an
// epoch. Opening an epoch is one meeting of all ranks, as with a real fabric.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/rank.h"

namespace sluice::cluster {

class FakeEngine final : public engine::Engine {
 public:
  explicit FakeEngine(engine::Callbacks callbacks) : callbacks_(std::move(callbacks)) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Result<uint64_t> submit(engine::Request request, engine::Sink sink) override {
    if (request.prompt.empty()) return invalid_argument("prompt is empty: it needs at least one token");
    const std::lock_guard lock(mutex_);
    const uint64_t id = next_id_++;
    open_[id] = {std::move(request), std::move(sink), 0, false};
    changed_.notify_all();
    return id;
  }
  void cancel(uint64_t request) override {
    const std::lock_guard lock(mutex_);
    if (const auto found = open_.find(request); found != open_.end()) found->second.cancelled = true;
    changed_.notify_all();
  }

  void enter(uint64_t epoch) {
    const std::lock_guard lock(mutex_);
    epoch_ = epoch;
    announced_ = false;
    changed_.notify_all();
  }
  void enter_epoch(std::unique_ptr<exchange::Exchange> /*exchange*/) override { enter(opened_); }
  void leave_epoch() override {
    const std::lock_guard lock(mutex_);
    epoch_ = 0;
  }
  // As when a peer is late.
  void break_epoch(exchange::Blame blame) {
    uint64_t epoch = 0;
    {
      const std::lock_guard lock(mutex_);
      std::swap(epoch, epoch_);
    }
    callbacks_.on_broken(epoch, blame, Status(Code::deadline_exceeded, blame.reason));
  }

  engine::Stats stats() const override {
    const std::lock_guard lock(mutex_);
    engine::Stats stats;
    stats.epoch = epoch_;
    stats.running = static_cast<int>(open_.size());
    return stats;
  }
  fabric::Report report() const override {
    fabric::Report report;
    report.provider = "fake";
    report.peers.push_back(
        {.rank = 1, .local = true, .puts_sent = 3, .bytes_sent = 4, .puts_received = 5, .bytes_received = 6});
    return report;
  }

  void opened(uint64_t epoch) { opened_ = epoch; }

 private:
  struct Open {
    engine::Request request;
    engine::Sink sink;
    int index = 0;
    bool cancelled = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (epoch_ == 0 || (announced_ && open_.empty())) {
        changed_.wait_for(lock, std::chrono::milliseconds(20));
      }
      if (epoch_ != 0 && !announced_) {
        announced_ = true;
        const uint64_t epoch = epoch_;
        lock.unlock();
        callbacks_.on_ready(epoch);
        lock.lock();
      }
      step(lock);
    }
    for (auto& [id, open] : open_) open.cancelled = true;
    step(lock);
  }

  // One token for each open request; sinks are called without the lock.
  void step(std::unique_lock<std::mutex>& lock) {
    std::vector<std::pair<engine::Sink, engine::Output>> outputs;
    for (auto entry = open_.begin(); entry != open_.end();) {
      Open& open = entry->second;
      engine::Output output;
      output.request = entry->first;
      output.index = open.index;
      if (open.cancelled) {
        output.finish = engine::Finish::cancelled;
      } else if (epoch_ == 0) {
        ++entry;
        continue;
      } else {
        output.token = open.request.prompt[0] + open.index++;
        output.logprob = -0.5F;
        if (open.index >= open.request.max_tokens) output.finish = engine::Finish::length;
      }
      outputs.emplace_back(open.sink, output);
      entry = output.finish == engine::Finish::none ? std::next(entry) : open_.erase(entry);
    }
    if (outputs.empty()) return;
    lock.unlock();
    for (auto& [sink, output] : outputs) sink(output);
    outputs.clear();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }

  engine::Callbacks callbacks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Open> open_;
  uint64_t next_id_ = 1;
  uint64_t epoch_ = 0;   // 0: in none
  uint64_t opened_ = 0;  // by open_exchange, on the same thread as enter_epoch
  bool announced_ = true;
  bool stopping_ = false;
  std::thread thread_;
};

class FakeRank final : public engine::Rank {
 public:
  struct Options {
    std::string fingerprint = "fake";
    Nanos patience = seconds(10);
    Status open_fails;  // instead of opening an epoch
  };

  FakeRank(int rank, engine::Callbacks callbacks, Options options)
      : options_(std::move(options)), engine_(std::move(callbacks)) {
    settings_.rank = rank;
  }

  FakeEngine& engine() override { return engine_; }
  const checkpoint::ModelConfig& config() const override { return config_; }
  const checkpoint::GenerationConfig& generation_config() const override { return generation_config_; }
  const engine::RankSettings& settings() const override { return settings_; }
  std::string description() const override { return "a fake rank"; }
  std::string fingerprint() const override { return options_.fingerprint; }
  Result<std::unique_ptr<exchange::Exchange>> open_exchange(uint64_t epoch,
                                                            fabric::Bootstrap& bootstrap) override {
    SLUICE_RETURN_IF_ERROR(options_.open_fails);
    SLUICE_ASSIGN_OR_RETURN(const auto values,
                            bootstrap.all_gather("addresses", std::to_string(settings_.rank),
                                                 Deadline::after(options_.patience)));
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != std::to_string(i)) return internal_error("rank order is wrong");
    }
    engine_.opened(epoch);
    return std::unique_ptr<exchange::Exchange>();
  }

 private:
  Options options_;
  checkpoint::ModelConfig config_;
  checkpoint::GenerationConfig generation_config_;
  engine::RankSettings settings_;
  FakeEngine engine_;
};

}  // namespace sluice::cluster
