#include "harness.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "exchange/placement.h"
#include "fabric/bootstrap.h"
#include "fabric/fabric.h"

namespace sluice::engine {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

Result<std::unique_ptr<exchange::Exchange>> open_toy_exchange(int rank, int ranks, uint64_t epoch,
                                                              int max_tokens, fabric::Bootstrap& bootstrap) {
  const exchange::Shape shape = toy_shape(ranks, max_tokens);
  SLUICE_ASSIGN_OR_RETURN(const auto placement, exchange::Placement::contiguous(kToyExperts, ranks));
  if (ranks == 1) return exchange::Exchange::open(shape, placement, rank, epoch, nullptr);
  SLUICE_ASSIGN_OR_RETURN(const auto plan, exchange::plan(shape, placement));
  fabric::Options options;
  options.provider = "local";
  options.rank = rank;
  options.ranks = ranks;
  options.epoch = epoch;
  options.slab_bytes = {plan.dispatch_slab_bytes, plan.combine_slab_bytes};
  SLUICE_ASSIGN_OR_RETURN(auto fabric, fabric::Fabric::open(options, bootstrap));
  return exchange::Exchange::open(shape, placement, rank, epoch, std::move(fabric));
}

}  // namespace

Sink Listener::sink() {
  return [state = state_](const Output& output) {
    const std::lock_guard lock(state->mutex);
    EXPECT_FALSE(state->done()) << "an output after the last one";
    state->outputs.push_back(output);
    state->changed.notify_all();
  };
}

std::vector<Output> Listener::wait() {
  std::unique_lock lock(state_->mutex);
  EXPECT_TRUE(state_->changed.wait_for(lock, kPatience, [this] { return state_->done(); }));
  return state_->outputs;
}

void Listener::wait_for(size_t count) {
  std::unique_lock lock(state_->mutex);
  EXPECT_TRUE(state_->changed.wait_for(lock, kPatience,
                                       [&] { return state_->done() || state_->outputs.size() >= count; }));
}

std::vector<Output> Listener::so_far() const {
  const std::lock_guard lock(state_->mutex);
  return state_->outputs;
}

std::vector<int32_t> text_of(const std::vector<Output>& outputs, int first_index) {
  std::vector<int32_t> text;
  for (const Output& output : outputs) {
    EXPECT_EQ(output.index, first_index++);
    if (output.token >= 0) text.push_back(output.token);
  }
  return text;
}

Options toy_options() {
  Options options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 16;
  options.block_size = 4;
  options.kv_blocks = 256;
  options.step_deadline = seconds(60);
  return options;
}

Request greedy_request(std::vector<int32_t> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

std::vector<int32_t> toy_prompt(uint64_t seed, int length) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    prompt.push_back(static_cast<int32_t>((seed >> 33) % kToyVocab));
  }
  return prompt;
}

ToyCluster::ToyCluster(int ranks, Options options, Wiring wiring)
    : hub_(ranks), options_(options), wiring_(wiring) {
  for (int rank = 0; rank < ranks; ++rank) {
    nodes_.push_back(std::make_unique<Node>(rank, ranks));
    Node& node = *nodes_.back();
    options.rank_name = "rank " + std::to_string(rank);
    Callbacks callbacks;
    callbacks.on_ready = [this, &node](uint64_t epoch) {
      const std::lock_guard lock(mutex_);
      node.ready_epoch = epoch;
      changed_.notify_all();
    };
    callbacks.on_broken = [this, &node](uint64_t epoch, const exchange::Blame& blame, const Status&) {
      const std::lock_guard lock(mutex_);
      node.broken_epoch = epoch;
      node.blame = blame;
      changed_.notify_all();
    };
    auto engine = Engine::start(node.model, *node.backend, options, std::move(callbacks));
    if (!engine.ok()) throw std::runtime_error(engine.status().message());
    node.engine = std::move(engine).value();
  }
}

// Ends all epochs at once: one after the other, the first to go would break the epoch of the rest.
ToyCluster::~ToyCluster() {
  leave();
  for (auto& node : nodes_) node->engine.reset();
}

void ToyCluster::enter(uint64_t epoch) {
  auto exchanges = open(epoch);
  for (int rank = 0; rank < ranks(); ++rank) {
    engine(rank).enter_epoch(std::move(exchanges[static_cast<size_t>(rank)]));
  }
}

std::vector<std::unique_ptr<exchange::Exchange>> ToyCluster::open(uint64_t epoch) {
  std::vector<std::unique_ptr<exchange::Exchange>> exchanges(nodes_.size());
  if (wiring_ == Wiring::fake) {
    for (int rank = 0; rank < ranks(); ++rank) exchanges[static_cast<size_t>(rank)] = hub_.open(rank, epoch);
    return exchanges;
  }
  fabric::InProcessHub rendezvous(ranks());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto bootstrap = rendezvous.join(rank);
      auto opened = open_toy_exchange(rank, ranks(), epoch, options_.max_num_batched_tokens, *bootstrap);
      EXPECT_TRUE(opened.ok()) << opened.status().message();
      if (opened.ok()) exchanges[static_cast<size_t>(rank)] = std::move(opened).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return exchanges;
}

void ToyCluster::leave() {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks(); ++rank)
    threads.emplace_back([this, rank] { engine(rank).leave_epoch(); });
  for (std::thread& thread : threads) thread.join();
}

void ToyCluster::wait_ready(uint64_t epoch) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] {
    for (const auto& node : nodes_) {
      if (node->ready_epoch != epoch) return false;
    }
    return true;
  }));
}

void ToyCluster::wait_broken(uint64_t epoch) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] {
    for (const auto& node : nodes_) {
      if (node->broken_epoch != epoch) return false;
    }
    return true;
  }));
}

std::vector<exchange::Blame> ToyCluster::blames() const {
  const std::lock_guard lock(mutex_);
  std::vector<exchange::Blame> blames;
  for (const auto& node : nodes_) blames.push_back(node->blame);
  return blames;
}

std::vector<Output> ToyCluster::run(Request request, int rank) {
  Listener listener;
  const auto id = engine(rank).submit(std::move(request), listener.sink());
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? listener.wait() : std::vector<Output>{};
}

}  // namespace sluice::engine
