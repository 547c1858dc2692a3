#include "cli/check_run.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "engine/sampler.h"

namespace sluice::cli {

// Follows one case's continuation. Used by one engine's thread, then read by run()'s.
class CheckRun::Recorder {
 public:
  explicit Recorder(Observed& observed) : observed_(observed), hash_(XXH3_createState()) {
    XXH3_64bits_reset(hash_.get());
  }

  void record(const engine::Output& output) {
    if (output.token < 0) return;
    XXH3_64bits_update(hash_.get(), output.logits.data(), output.logits.size() * sizeof(float));
    observed_.logits_hash = XXH3_64bits_digest(hash_.get());
    observed_.tokens.push_back(output.token);
    observed_.margins.push_back(margin_of(output.logits));
    observed_.largest.push_back(largest_of(output.logits));
    if (output.index == 0) observed_.first_logits = output.logits;
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  Observed& observed_;
  std::unique_ptr<XXH3_state_t, Free> hash_;
};

CheckRun::CheckRun(const std::vector<ReferenceCase>& cases) : cases_(cases), observed_(cases.size()) {
  for (Observed& observed : observed_) recorders_.push_back(std::make_unique<Recorder>(observed));
}
CheckRun::~CheckRun() = default;

Status CheckRun::run(engine::RankSettings settings) {
  ranks_ = settings.ranks;
  size_t requests = cases_.size();
  for (const ReferenceCase& reference : cases_) requests += reference.prompt_logprobs.size();
  settings.engine.max_queued = std::max(settings.engine.max_queued, static_cast<int>(requests));
  SLUICE_ASSIGN_OR_RETURN(const auto ranks, engine::LocalRanks::load(settings));
  ranks->on_broken([this](const Status& why) {
    const std::lock_guard lock(mutex_);
    broken_ = why;
    changed_.notify_all();
  });
  {
    const std::lock_guard lock(mutex_);
    loading_ = false;
  }
  description_ = ranks->rank(0).description();
  SLUICE_RETURN_IF_ERROR(ranks->enter_epoch(1));
  SLUICE_RETURN_IF_ERROR(submit_all(*ranks));
  SLUICE_RETURN_IF_ERROR(wait());
  for (int rank = 0; rank < ranks_; ++rank) reports_.push_back(ranks->engine(rank).report());
  return {};
}

bool CheckRun::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  changed_.notify_all();
  return loading_;
}

Status CheckRun::submit_all(engine::LocalRanks& ranks) {
  for (size_t i = 0; i < cases_.size(); ++i) {
    engine::Engine& engine = ranks.engine(rank_of(i));
    const auto sink = [this, i](const engine::Output& output) {
      recorders_[i]->record(output);
      if (output.finish != engine::Finish::none) finish_one(output.error, i);
    };
    SLUICE_RETURN_IF_ERROR(submit(engine, cases_[i].prompt, static_cast<int>(cases_[i].greedy.size()), sink)
                               .with_context("case " + std::to_string(i + 1)));
    SLUICE_RETURN_IF_ERROR(submit_prefixes(engine, i));
  }
  return {};
}

// The log-probability of each prompt token is what a request with the tokens before it computes.
Status CheckRun::submit_prefixes(engine::Engine& engine, size_t index) {
  const ReferenceCase& reference = cases_[index];
  observed_[index].prompt_logprobs.resize(reference.prompt_logprobs.size());
  for (size_t i = 0; i < reference.prompt_logprobs.size(); ++i) {
    const auto end = reference.prompt.begin() + static_cast<std::ptrdiff_t>(i + 1);
    const auto sink = [this, index, i](const engine::Output& output) {
      if (output.token >= 0) {
        observed_[index].prompt_logprobs[i] =
            engine::log_probability(output.logits, cases_[index].prompt[i + 1]);
      }
      if (output.finish != engine::Finish::none) finish_one(output.error, index);
    };
    SLUICE_RETURN_IF_ERROR(submit(engine, {reference.prompt.begin(), end}, 1, sink));
  }
  return {};
}

Status CheckRun::submit(engine::Engine& engine, std::vector<int32_t> prompt, int max_tokens,
                        engine::Sink sink) {
  engine::Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.want_logits = true;
  {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  const auto id = engine.submit(std::move(request), std::move(sink));
  return id.status();
}

void CheckRun::finish_one(const Status& status, size_t index) {
  const std::lock_guard lock(mutex_);
  --open_;
  if (!status.ok()) observed_[index].status = status;
  changed_.notify_all();
}

Status CheckRun::wait() {
  std::unique_lock lock(mutex_);
  // Bounded by the engines' step deadline, at which the epoch breaks.
  changed_.wait(lock, [this] { return open_ == 0 || interrupted_ || !broken_.ok(); });
  if (interrupted_) return {Code::cancelled, "interrupted"};
  return broken_;
}

}  // namespace sluice::cli
