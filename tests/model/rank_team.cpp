#include "rank_team.h"

#include "cluster.h"
#include "single_rank.h"

namespace sluice::test {

namespace {

// Fewer than most prompts have, so that they take several rounds.
constexpr int kRoundTokens = 7;

}  // namespace

RankTeam::RankTeam(const std::string& directory, int ranks, const compute::Options& options,
                   const BackendMaker& make_backend) {
  const auto checkpoint = value_or_throw(checkpoint::Checkpoint::open(directory));
  const auto config = value_or_throw(checkpoint::read_model_config(directory));
  const auto placement = value_or_throw(exchange::Placement::contiguous(config.experts, ranks));
  shape_ = {.ranks = ranks,
            .experts = config.experts,
            .top_k = config.top_k,
            .hidden = config.hidden_size,
            .max_tokens = kRoundTokens,
            .wire = options.activations,
            .exact = options.deterministic};
  for (int rank = 0; rank < ranks; ++rank) {
    Member member{.backend = make_backend(options), .model = nullptr};
    const model::Placed placed{
        .placement = placement, .rank = rank, .max_tokens = kMaxTokens, .round_tokens = kRoundTokens};
    member.model = value_or_throw(model::Model::load(checkpoint, config, placed, *member.backend));
    members_.push_back(std::move(member));
  }
}

std::vector<RankTeam::Result> RankTeam::step(const std::vector<Work>& work) {
  std::vector<Result> results(members_.size());
  exchange::test::Cluster cluster(shape_);
  cluster.run([&](int rank, exchange::Exchange& exchange) {
    const auto index = static_cast<size_t>(rank);
    results[index] = forward(members_[index], work[index], exchange);
  });
  return results;
}

RankTeam::Result RankTeam::forward(Member& member, const Work& work, exchange::Exchange& exchange) {
  constexpr int kBlockSize = 16;
  const int64_t vocab = member.model->config().vocab_size;
  std::vector<int32_t> tokens;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<compute::Sequence> sequences;
  std::vector<int64_t> last_rows;
  int32_t next_block = 0;
  for (const auto& prompt : work.prompts) {
    std::vector<int32_t> own((prompt.size() + kBlockSize - 1) / kBlockSize);
    for (int32_t& block : own) block = next_block++;
    blocks.push_back(std::move(own));
    sequences.push_back({.first_row = static_cast<int64_t>(tokens.size()),
                         .queries = static_cast<int64_t>(prompt.size()),
                         .start = 0,
                         .blocks = blocks.back()});
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    last_rows.push_back(static_cast<int64_t>(tokens.size()) - 1);
  }
  std::vector<float> logits(work.prompts.size() * static_cast<size_t>(vocab));
  const Matrix out{.data = logits.data(),
                   .dtype = DType::float32,
                   .rows = static_cast<int64_t>(work.prompts.size()),
                   .cols = vocab,
                   .stride = vocab};
  auto cache =
      value_or_throw(member.backend->make_kv_cache(member.model->kv_shape(next_block + 1, kBlockSize)));
  const model::Batch batch{
      .tokens = tokens, .sequences = sequences, .logit_rows = last_rows, .flags = work.flags};
  const auto outcome = member.model->forward(batch, *cache, exchange, out, Deadline::after(seconds(60)));
  Result result;
  if (!outcome.ok()) {
    result.status = outcome.status();
    return result;
  }
  result.any = outcome->any;
  for (int64_t row = 0; row < out.rows; ++row)
    result.logits.emplace_back(out.row<float>(row), out.row<float>(row) + vocab);
  return result;
}

}  // namespace sluice::test
