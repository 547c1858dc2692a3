#include "engine/step_loop.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "engine/sampler.h"

namespace sluice::engine {
namespace {

// How long an idle rank sleeps before it looks around. Nothing depends on it: arrivals and peers wake it.
constexpr Nanos kIdleSleep = seconds(60);

// More running requests than a step has tokens for would starve the youngest.
int most_running(const Options& options) {
  return std::min(options.max_num_seqs, options.max_num_batched_tokens);
}

Output next_output(const RequestState& request, Finish finish) {
  Output output;
  output.request = request.id;
  output.index = request.output_count();
  output.finish = finish;
  return output;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::string_view finish_name(Finish finish) {
  switch (finish) {
    case Finish::none:
      return "none";
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::cancelled:
      return "cancelled";
    case Finish::error:
      return "error";
  }
  return "unknown";
}

Result<std::unique_ptr<Engine>> Engine::start(model::Model& model, compute::Backend& backend, Options options,
                                              Callbacks callbacks) {
  const checkpoint::ModelConfig& config = model.config();
  SLUICE_RETURN_IF_ERROR(check_options(options, config.vocab_size));
  if (options.max_model_len == 0) options.max_model_len = config.max_position_embeddings;
  const RequestLimits limits{.vocab_size = config.vocab_size,
                             .max_model_len = options.max_model_len,
                             .kv_positions = int64_t{options.kv_blocks} * options.block_size};
  const compute::KvShape shape = model.kv_shape(options.kv_blocks + 1, options.block_size);
  auto cache = backend.make_kv_cache(shape);
  if (!cache.ok()) return cache.status().with_context("KV cache");
  return std::unique_ptr<Engine>(std::make_unique<StepLoop>(
      model, std::move(cache).value(), std::move(options), std::move(callbacks), limits));
}

StepLoop::StepLoop(model::Model& model, std::unique_ptr<compute::KvCache> cache, Options options,
                   Callbacks callbacks, const RequestLimits& limits)
    : model_(model),
      cache_(std::move(cache)),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      limits_(limits),
      blocks_(options_.kv_blocks, options_.block_size),
      scheduler_(most_running(options_), blocks_),
      logits_(static_cast<size_t>(most_running(options_) + 1) * static_cast<size_t>(limits.vocab_size)) {
  publish_counts();
  thread_ = std::thread([this] { run(); });
}

StepLoop::~StepLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (exchange_) exchange_->end_epoch();
  }
  changed_.notify_all();
  thread_.join();
}

Result<uint64_t> StepLoop::submit(Request request, Sink sink) {
  SLUICE_RETURN_IF_ERROR(check_request(request, limits_));
  auto state = std::make_unique<RequestState>();
  state->tokens.reserve(request.prompt.size() + static_cast<size_t>(request.max_tokens));
  state->tokens = request.prompt;
  state->tokens.insert(state->tokens.end(), request.resumed.begin(), request.resumed.end());
  state->request = std::move(request);
  state->sink = std::move(sink);

  const std::lock_guard lock(mutex_);
  if (stopping_) return unavailable(fmt::format("{} is stopping", options_.rank_name));
  if (stats_.waiting >= options_.max_queued) {
    return Status(Code::resource_exhausted,
                  fmt::format("the queue of {} is full: {} requests wait, the limit is {}",
                              options_.rank_name, stats_.waiting, options_.max_queued));
  }
  const uint64_t id = next_id_++;
  state->id = id;
  arrivals_.push_back(std::move(state));
  ++stats_.waiting;
  if (sleeping_) exchange_->nudge();
  changed_.notify_all();
  return id;
}

void StepLoop::cancel(uint64_t request) {
  const std::lock_guard lock(mutex_);
  cancellations_.push_back(request);
  if (sleeping_) exchange_->nudge();
  changed_.notify_all();
}

void StepLoop::enter_epoch(std::unique_ptr<exchange::Exchange> exchange) {
  leave_epoch();
  const std::lock_guard lock(mutex_);
  stats_.epoch = exchange->epoch();
  stats_.ready = false;
  exchange_ = std::move(exchange);
  changed_.notify_all();
}

void StepLoop::leave_epoch() {
  std::unique_lock lock(mutex_);
  if (exchange_) {
    leaving_ = true;
    exchange_->end_epoch();
  }
  changed_.wait(lock, [this] { return !leaving_ && !closing_; });
}

Stats StepLoop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

fabric::Report StepLoop::report() const {
  const std::lock_guard lock(mutex_);
  return exchange_ ? exchange_->report() : fabric::Report{};
}

void StepLoop::run() {
  while (exchange::Exchange* exchange = await_epoch()) finish_epoch(run_epoch(*exchange));
  absorb();
  for (auto& request : scheduler_.remove_all()) request->sink(next_output(*request, Finish::cancelled));
}

// Null when the engine is to stop.
exchange::Exchange* StepLoop::await_epoch() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || exchange_ || !cancellations_.empty(); });
      if (exchange_) return exchange_.get();
      if (stopping_) return nullptr;
    }
    absorb();
  }
}

Status StepLoop::run_epoch(exchange::Exchange& exchange) {
  for (uint64_t step = 1;; ++step) {
    absorb();
    SLUICE_ASSIGN_OR_RETURN(const bool more, run_step(exchange, step));
    if (more) continue;
    SLUICE_RETURN_IF_ERROR(await_step(exchange, step + 1));
  }
}

void StepLoop::finish_epoch(const Status& why) {
  std::unique_ptr<exchange::Exchange> ended;
  uint64_t epoch = 0;
  bool asked = false;
  {
    const std::lock_guard lock(mutex_);
    ended = std::move(exchange_);
    epoch = ended->epoch();
    asked = leaving_ || stopping_;
    closing_ = true;
    stats_.ready = false;
  }
  exchange::Blame blame = ended->blame().value_or(exchange::Blame{.reason = why.message()});
  ended.reset();
  {
    const std::lock_guard lock(mutex_);
    leaving_ = false;
    closing_ = false;
  }
  changed_.notify_all();
  if (asked) return;
  log::warning("{}: epoch {} is broken: {}", options_.rank_name, epoch, why.message());
  if (callbacks_.on_broken) callbacks_.on_broken(epoch, std::move(blame), why);
}

Status StepLoop::await_step(exchange::Exchange& exchange, uint64_t step) {
  while (true) {
    absorb();
    if (!scheduler_.empty()) return exchange.wake(step);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || leaving_) return aborted("the epoch was left");
      if (!arrivals_.empty() || !cancellations_.empty()) continue;
      sleeping_ = true;
    }
    const Result<bool> woken = exchange.wait_for_step(step, Deadline::after(kIdleSleep));
    {
      const std::lock_guard lock(mutex_);
      sleeping_ = false;
    }
    if (!woken.ok()) return woken.status();
    if (*woken) return {};
  }
}

Result<bool> StepLoop::run_step(exchange::Exchange& exchange, uint64_t step) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || leaving_) return aborted("the epoch was left");
  }
  std::optional<Canary> canary;
  if (step == 1) canary = {options_.canary_token, blocks_.canary_block()};
  const std::vector<Part> parts = scheduler_.plan(options_.max_num_batched_tokens - (canary ? 1 : 0));
  const StepBatch batch(parts, canary);
  const exchange::StepFlags flags{.has_work = scheduler_.work_after(parts)};
  const Matrix logits{logits_.data(), DType::float32, batch.logit_count(), limits_.vocab_size,
                      limits_.vocab_size};

  SLUICE_ASSIGN_OR_RETURN(
      const model::Outcome outcome,
      model_.forward(batch.view(flags), *cache_, exchange, logits, Deadline::after(options_.step_deadline)));
  if (canary) {
    const Status finite = check_finite(logits_row(0));
    if (!finite.ok()) return finite.with_context("the epoch's first token");
  }
  const std::vector<Delivery> deliveries = commit(parts, canary ? 1 : 0);
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    stats_.ready = true;
  }
  publish_counts();
  for (const Delivery& delivery : deliveries) delivery.request->sink(delivery.output);
  if (canary && callbacks_.on_ready) callbacks_.on_ready(exchange.epoch());
  return outcome.any.has_work;
}

std::vector<StepLoop::Delivery> StepLoop::commit(const std::vector<Part>& parts, int64_t first_logit_row) {
  Scheduler::commit(parts);
  std::vector<Delivery> deliveries;
  uint64_t tokens = 0;
  uint64_t prompt_tokens = 0;
  uint64_t finished = 0;
  int64_t row = first_logit_row;
  for (const Part& part : parts) {
    if (!part.completes) continue;
    RequestState& request = *part.request;
    if (!std::exchange(request.counted, true)) prompt_tokens += request.request.prompt.size();
    Delivery delivery{
        .request = &request, .ended = nullptr, .output = take_token(request, logits_row(row++))};
    if (delivery.output.token >= 0) ++tokens;
    if (delivery.output.finish != Finish::none) {
      ++finished;
      delivery.ended = scheduler_.remove(request.id);
    }
    deliveries.push_back(std::move(delivery));
  }
  const std::lock_guard lock(mutex_);
  stats_.tokens_generated += tokens;
  stats_.prompt_tokens += prompt_tokens;
  stats_.requests_finished += finished;
  return deliveries;
}

// The request's next token, appended to it; or the request's end where there can be none.
Output StepLoop::take_token(RequestState& request, std::span<const float> logits) {
  Output output = next_output(request, Finish::none);
  if (const Status finite = check_finite(logits); !finite.ok()) {
    output.finish = Finish::error;
    output.error = finite.with_context(fmt::format("request {}, position {}", request.id, request.length()));
    return output;
  }
  output.token = sample(logits, request.request.sampling, request.length());
  output.logprob = log_probability(logits, output.token);
  if (request.request.want_logits) output.logits.assign(logits.begin(), logits.end());
  const bool last = request.ends_with_next();
  request.tokens.push_back(output.token);
  const bool end_of_text = !request.request.ignore_eos && contains(options_.eos_token_ids, output.token);
  if (end_of_text || contains(request.request.stop_token_ids, output.token)) {
    output.finish = Finish::stop;
    output.stop_token = output.token;
  } else if (last) {
    output.finish = Finish::length;
  }
  return output;
}

void StepLoop::absorb() {
  std::deque<std::unique_ptr<RequestState>> arrivals;
  std::vector<uint64_t> cancellations;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
    cancellations.swap(cancellations_);
  }
  if (arrivals.empty() && cancellations.empty()) return;
  for (auto& request : arrivals) scheduler_.add(std::move(request));
  std::vector<std::unique_ptr<RequestState>> cancelled;
  for (const uint64_t id : cancellations) {
    if (auto request = scheduler_.remove(id)) cancelled.push_back(std::move(request));
  }
  {
    const std::lock_guard lock(mutex_);
    stats_.requests_finished += cancelled.size();
  }
  publish_counts();
  for (const auto& request : cancelled) request->sink(next_output(*request, Finish::cancelled));
}

void StepLoop::publish_counts() {
  const std::lock_guard lock(mutex_);
  stats_.running = scheduler_.running();
  stats_.waiting = scheduler_.waiting() + static_cast<int>(arrivals_.size());
  stats_.kv_blocks_total = blocks_.total();
  stats_.kv_blocks_free = blocks_.free();
}

std::span<const float> StepLoop::logits_row(int64_t row) const {
  const auto vocab = static_cast<size_t>(limits_.vocab_size);
  return std::span(logits_).subspan(static_cast<size_t>(row) * vocab, vocab);
}

}  // namespace sluice::engine
