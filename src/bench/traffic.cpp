#include "bench/traffic.h"

#include <algorithm>

namespace sluice::bench {
namespace {

// A pair's share of a dispatch besides its row: which row, which expert, which weight.
constexpr size_t kRoutingBytes = 12;

struct Choice {
  int source;
  int token;
  int local_expert;
};

// The choices of one round that `rank` serves, in the order of sources and tokens.
std::vector<Choice> served(const Settings& settings, const exchange::Placement& placement,
                           const std::vector<Tokens>& all, int rank, int first, int count) {
  std::vector<Choice> choices;
  const int top_k = settings.shape.top_k;
  for (int source = 0; source < settings.shape.ranks; ++source) {
    for (int i = first * top_k; i < (first + count) * top_k; ++i) {
      const int expert = all[static_cast<size_t>(source)].experts[static_cast<size_t>(i)];
      if (placement.owner(expert) != rank) continue;
      choices.push_back({source, i / top_k, placement.local_index(expert)});
    }
  }
  return choices;
}

void group(RoundTraffic& round, const std::vector<Choice>& choices, size_t experts) {
  std::vector<int32_t> next(experts + 1);
  for (const Choice& choice : choices) ++next[static_cast<size_t>(choice.local_expert) + 1];
  for (size_t expert = 0; expert < experts; ++expert) next[expert + 1] += next[expert];
  int last_token = -1;
  int last_source = -1;
  for (const Choice& choice : choices) {
    auto& rows = round.received[static_cast<size_t>(choice.source)];
    if (choice.token != last_token || choice.source != last_source) rows.emplace_back();
    last_token = choice.token;
    last_source = choice.source;
    rows.back().push_back(next[static_cast<size_t>(choice.local_expert)]++);
  }
  round.pairs = static_cast<int64_t>(choices.size());
}

size_t count_pairs(const std::vector<RowPairs>& rows) {
  size_t pairs = 0;
  for (const RowPairs& row : rows) pairs += row.size();
  return pairs;
}

size_t dispatch_row_bytes(const Settings& settings) {
  return static_cast<size_t>(settings.shape.hidden) * dtype_bytes(settings.shape.wire);
}

size_t combine_row_bytes(const Settings& settings) {
  const DType type = settings.shape.exact ? DType::float32 : settings.shape.wire;
  return static_cast<size_t>(settings.shape.hidden) * dtype_bytes(type);
}

size_t answered_rows(const Settings& settings, const std::vector<RowPairs>& rows) {
  return settings.shape.exact ? count_pairs(rows) : rows.size();
}

}  // namespace

std::vector<RoundTraffic> make_traffic(const Settings& settings, const exchange::Placement& placement,
                                       int rank) {
  const exchange::Shape& shape = settings.shape;
  exchange::Shape thin = shape;  // the choices of a token do not depend on its row
  thin.hidden = 0;
  std::vector<Tokens> all;
  for (int source = 0; source < shape.ranks; ++source) {
    all.push_back(make_tokens(thin, source, settings.tokens, settings.load, settings.seed));
  }
  const Tokens& own = all[static_cast<size_t>(rank)];
  const auto ranks = static_cast<size_t>(shape.ranks);
  std::vector<RoundTraffic> rounds;
  for (int first = 0; first < settings.tokens; first += shape.max_tokens) {
    RoundTraffic round;
    round.first_token = first;
    round.tokens = std::min(shape.max_tokens, settings.tokens - first);
    round.sent.resize(ranks);
    round.received.resize(ranks);
    std::vector<size_t> pairs(ranks);
    for (int i = first * shape.top_k; i < (first + round.tokens) * shape.top_k; ++i) {
      const auto owner = static_cast<size_t>(placement.owner(own.experts[static_cast<size_t>(i)]));
      const int token = i / shape.top_k;
      if (round.sent[owner].empty() || round.sent[owner].back() != token) round.sent[owner].push_back(token);
      ++pairs[owner];
    }
    group(round, served(settings, placement, all, rank, first, round.tokens),
          placement.experts_of(rank).size());
    for (size_t peer = 0; peer < ranks; ++peer) {
      const bool self = peer == static_cast<size_t>(rank);
      round.dispatch_bytes.push_back(
          self ? 0 : round.sent[peer].size() * dispatch_row_bytes(settings) + pairs[peer] * kRoutingBytes);
      round.combine_bytes.push_back(
          self ? 0 : answered_rows(settings, round.received[peer]) * combine_row_bytes(settings));
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

RemoteBytes remote_bytes(const Settings& settings, const std::vector<RoundTraffic>& traffic, int rank) {
  RemoteBytes bytes;
  for (const RoundTraffic& round : traffic) {
    for (size_t peer = 0; peer < round.sent.size(); ++peer) {
      if (peer == static_cast<size_t>(rank)) continue;
      bytes.dispatch += round.sent[peer].size() * dispatch_row_bytes(settings);
      bytes.combine += answered_rows(settings, round.received[peer]) * combine_row_bytes(settings);
    }
  }
  return bytes;
}

}  // namespace sluice::bench
