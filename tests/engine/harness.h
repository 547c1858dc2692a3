// One toy engine or several, and what their requests have said so far.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"
#include "fake_exchange.h"
#include "toy_model.h"

namespace sluice::engine {

// Collects the outputs of one request.
class Listener {
 public:
  Sink sink();
  // All outputs up to the last one. Fails the test after 60 s.
  std::vector<Output> wait();
  // Until `count` outputs have come, or the last one.
  void wait_for(size_t count);
  std::vector<Output> so_far() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Output> outputs;
    bool done() const { return !outputs.empty() && outputs.back().finish != Finish::none; }
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// The tokens of the outputs. Checks that their indices go on without a gap from `first_index`.
std::vector<int32_t> text_of(const std::vector<Output>& outputs, int first_index = 0);

Options toy_options();
Request greedy_request(std::vector<int32_t> prompt, int max_tokens);
// A prompt that differs with `seed`.
std::vector<int32_t> toy_prompt(uint64_t seed, int length);

enum class Wiring {
  fake,   // a FakeHub
  local,  // real exchanges over mapped memory
};

// The engines of a group of ranks.
class ToyCluster {
 public:
  explicit ToyCluster(int ranks, Options options = toy_options(), Wiring wiring = Wiring::fake);
  ~ToyCluster();

  void enter(uint64_t epoch);
  void leave();
  // Until all ranks have committed the first step of `epoch`.
  void wait_ready(uint64_t epoch);
  // Until all have reported `epoch` broken.
  void wait_broken(uint64_t epoch);
  std::vector<exchange::Blame> blames() const;

  Engine& engine(int rank = 0) { return *nodes_[static_cast<size_t>(rank)]->engine; }
  ToyModel& model(int rank = 0) { return nodes_[static_cast<size_t>(rank)]->model; }
  FakeHub& hub() { return hub_; }
  int ranks() const { return static_cast<int>(nodes_.size()); }

  std::vector<Output> run(Request request, int rank = 0);

 private:
  struct Node {
    Node(int rank, int ranks) : model(rank, ranks), backend(make_toy_backend()) {}
    ToyModel model;
    std::unique_ptr<compute::Backend> backend;
    std::unique_ptr<Engine> engine;
    uint64_t ready_epoch = 0;
    uint64_t broken_epoch = 0;
    exchange::Blame blame;
  };

  std::vector<std::unique_ptr<exchange::Exchange>> open(uint64_t epoch);

  FakeHub hub_;
  const Options options_;
  const Wiring wiring_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace sluice::engine
