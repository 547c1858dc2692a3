// The rival of `sluice bench exchange --against mpi`: the same tokens, routing, experts and sums, carried by
// MPI_Alltoall (counts) and MPI_Alltoallv (one message of rows and routing for each rank, deduplicated per
// rank, and the reduced rows back). Packing and summing use the exchange's own kernels, so that the ratio is
// about the exchange and not about them. Started by mpirun; obeys the benchmark's orders.
#include <fmt/core.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstring>

#include "base/sockets.h"
#include "bench/contestant.h"
#include "bench/settings.h"
#include "exchange/rows.h"

namespace sluice::bench {
namespace {

// Follows the rows of a message.
struct PackedPair {
  int32_t row;  // of the message
  int32_t local_expert;
  float weight;
};

struct Pair {
  int32_t local_expert;
  int32_t position;  // among all pairs of the round, grouped by expert
  float weight;
};

void check_mpi(int code, const char* what) {
  if (code != MPI_SUCCESS) throw std::runtime_error(fmt::format("{} failed with {}", what, code));
}

class MpiExchange final : public Contestant {
 public:
  MpiExchange(const Settings& settings, exchange::Placement placement, int rank)
      : settings_(settings),
        shape_(settings.shape),
        placement_(std::move(placement)),
        rank_(rank),
        ranks_(static_cast<size_t>(shape_.ranks)),
        hidden_(static_cast<size_t>(shape_.hidden)),
        row_bytes_(hidden_ * dtype_bytes(shape_.wire)),
        experts_(placement_.experts_of(rank).begin(), placement_.experts_of(rank).end()),
        tokens_(make_tokens(shape_, rank, settings.tokens, settings.load, settings.seed)),
        out_(static_cast<size_t>(settings.tokens) * hidden_) {}

  Status verify() override {
    std::fill(out_.begin(), out_.end(), 0.0F);
    verifying_ = true;
    const Result<Sample> sample = run();
    verifying_ = false;
    SLUICE_RETURN_IF_ERROR(sample.status());
    return check_combined(shape_, placement_, tokens_, out_.data());
  }

  Result<Sample> run() override {
    check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    Sample sample;
    sample.begin = now();
    for (int first = 0; first < settings_.tokens; first += shape_.max_tokens) {
      const int count = std::min(shape_.max_tokens, settings_.tokens - first);
      const Nanos begin = now();
      dispatch(first, count);
      sample.dispatch += now() - begin;
      if (verifying_) compute();
      const Nanos answered = now();
      combine(first, count);
      sample.combine += now() - answered;
    }
    sample.end = now();
    return sample;
  }

 private:
  void dispatch(int first, int count) {
    route(first, count);
    std::vector<int> mine(2 * ranks_);
    std::vector<int> theirs(2 * ranks_);
    for (size_t peer = 0; peer < ranks_; ++peer) {
      mine[2 * peer] = static_cast<int>(sent_rows_[peer].size());
      mine[2 * peer + 1] = static_cast<int>(sent_pairs_[peer].size());
    }
    check_mpi(MPI_Alltoall(mine.data(), 2, MPI_INT, theirs.data(), 2, MPI_INT, MPI_COMM_WORLD),
              "MPI_Alltoall");
    pack(first);
    // A rank's message to itself stays where it was packed.
    std::vector<int> send_counts = message_bytes(mine);
    std::vector<int> receive_counts = message_bytes(theirs);
    const size_t own = static_cast<size_t>(rank_);
    own_.assign(send_.begin() + offsets_of(send_counts)[own],
                send_.begin() + offsets_of(send_counts)[own] + send_counts[own]);
    const std::vector<int> send_offsets = offsets_of(send_counts);
    const std::vector<int> receive_offsets = offsets_of(receive_counts);
    receive_.resize(
        std::max(receive_.size(), static_cast<size_t>(receive_offsets.back() + receive_counts.back())));
    send_counts[own] = receive_counts[own] = 0;
    check_mpi(MPI_Alltoallv(send_.data(), send_counts.data(), send_offsets.data(), MPI_BYTE, receive_.data(),
                            receive_counts.data(), receive_offsets.data(), MPI_BYTE, MPI_COMM_WORLD),
              "MPI_Alltoallv");
    unpack(theirs, receive_offsets);
  }

  // Which rows and pairs go where, in token order.
  void route(int first, int count) {
    sent_rows_.assign(ranks_, {});
    sent_pairs_.assign(ranks_, {});
    for (int token = first; token < first + count; ++token) {
      for (int k = 0; k < shape_.top_k; ++k) {
        const auto choice = static_cast<size_t>(token * shape_.top_k + k);
        const int expert = tokens_.experts[choice];
        const auto owner = static_cast<size_t>(placement_.owner(expert));
        auto& rows = sent_rows_[owner];
        if (rows.empty() || rows.back() != token) rows.push_back(token);
        sent_pairs_[owner].push_back(
            {static_cast<int32_t>(rows.size()) - 1, placement_.local_index(expert), tokens_.weights[choice]});
      }
    }
  }

  std::vector<int> message_bytes(const std::vector<int>& counts) const {
    std::vector<int> bytes;
    for (size_t peer = 0; peer < ranks_; ++peer) {
      bytes.push_back(counts[2 * peer] * static_cast<int>(row_bytes_) +
                      counts[2 * peer + 1] * static_cast<int>(sizeof(PackedPair)));
    }
    return bytes;
  }

  static std::vector<int> offsets_of(const std::vector<int>& bytes) {
    std::vector<int> offsets{0};
    for (size_t i = 0; i + 1 < bytes.size(); ++i) offsets.push_back(offsets.back() + bytes[i]);
    return offsets;
  }

  void pack(int) {
    size_t total = 0;
    for (size_t peer = 0; peer < ranks_; ++peer) {
      total += sent_rows_[peer].size() * row_bytes_ + sent_pairs_[peer].size() * sizeof(PackedPair);
    }
    send_.resize(std::max(send_.size(), total));
    std::byte* to = send_.data();
    const ConstMatrix x = tokens_.matrix();
    for (size_t peer = 0; peer < ranks_; ++peer) {
      for (const int32_t token : sent_rows_[peer]) {
        exchange::convert_row(to, shape_.wire, x.row_bytes(token), x.dtype, shape_.hidden);
        to += row_bytes_;
      }
      const auto& pairs = sent_pairs_[peer];
      if (!pairs.empty()) std::memcpy(to, pairs.data(), pairs.size() * sizeof(PackedPair));
      to += pairs.size() * sizeof(PackedPair);
    }
  }

  void unpack(const std::vector<int>& counts, const std::vector<int>& offsets) {
    std::vector<int32_t> next(experts_.size() + 1);
    rows_.assign(ranks_, {});
    pairs_.assign(ranks_, {});
    for (size_t source = 0; source < ranks_; ++source) {
      const bool own = source == static_cast<size_t>(rank_);
      const std::byte* const message = own ? own_.data() : receive_.data() + offsets[source];
      const auto rows = static_cast<size_t>(counts[2 * source]);
      const auto pairs = static_cast<size_t>(counts[2 * source + 1]);
      rows_[source] = {message, rows};
      for (size_t i = 0; i < pairs; ++i) {
        PackedPair packed;
        std::memcpy(&packed, message + rows * row_bytes_ + i * sizeof(packed), sizeof(packed));
        pairs_[source].emplace_back(packed.row, Pair{packed.local_expert, 0, packed.weight});
        ++next[static_cast<size_t>(packed.local_expert) + 1];
      }
    }
    for (size_t expert = 0; expert < experts_.size(); ++expert) next[expert + 1] += next[expert];
    grouped_.resize(static_cast<size_t>(next.back()));
    for (size_t source = 0; source < ranks_; ++source) {
      for (auto& [row, pair] : pairs_[source]) {
        pair.position = next[static_cast<size_t>(pair.local_expert)]++;
        grouped_[static_cast<size_t>(pair.position)] = {
            rows_[source].first + static_cast<size_t>(row) * row_bytes_, pair.local_expert};
      }
    }
  }

  // The experts' results, which timing only reads.
  void compute() {
    pair_rows_.resize(std::max(pair_rows_.size(), grouped_.size() * hidden_));
    for (size_t i = 0; i < grouped_.size(); ++i) {
      const float scale = expert_scale(experts_[static_cast<size_t>(grouped_[i].second)]);
      float* const y = pair_rows_.data() + i * hidden_;
      exchange::convert_row(y, DType::float32, grouped_[i].first, shape_.wire, shape_.hidden);
      for (size_t j = 0; j < hidden_; ++j) y[j] *= scale;
    }
  }

  // Sums what this rank's experts add to each row, and sends the sums back.
  void combine(int first, int count) {
    std::vector<int> send_counts;
    std::vector<int> receive_counts;
    for (size_t peer = 0; peer < ranks_; ++peer) {
      send_counts.push_back(static_cast<int>(rows_[peer].second * row_bytes_));
      receive_counts.push_back(static_cast<int>(sent_rows_[peer].size() * row_bytes_));
    }
    const std::vector<int> send_offsets = offsets_of(send_counts);
    const std::vector<int> receive_offsets = offsets_of(receive_counts);
    send_.resize(std::max(send_.size(), static_cast<size_t>(send_offsets.back() + send_counts.back())));
    receive_back_.resize(
        std::max(receive_back_.size(), static_cast<size_t>(receive_offsets.back() + receive_counts.back())));
    for (size_t peer = 0; peer < ranks_; ++peer) reduce(peer, send_.data() + send_offsets[peer]);
    const auto own = static_cast<size_t>(rank_);
    const std::byte* const own_sums = send_.data() + send_offsets[own];
    send_counts[own] = receive_counts[own] = 0;
    check_mpi(
        MPI_Alltoallv(send_.data(), send_counts.data(), send_offsets.data(), MPI_BYTE, receive_back_.data(),
                      receive_counts.data(), receive_offsets.data(), MPI_BYTE, MPI_COMM_WORLD),
        "MPI_Alltoallv");
    sum(first, count, receive_offsets, own_sums);
  }

  void reduce(size_t peer, std::byte* to) const {
    std::array<exchange::WeightedRow, 64> rows;
    const auto& pairs = pairs_[peer];
    for (size_t i = 0; i < pairs.size();) {
      size_t count = 0;
      const int32_t row = pairs[i].first;
      for (; i < pairs.size() && pairs[i].first == row; ++i) {
        const Pair& pair = pairs[i].second;
        rows[count++] = {pair_rows_.data() + static_cast<size_t>(pair.position) * hidden_, pair.weight,
                         DType::float32};
      }
      exchange::sum_rows(std::span(rows).first(count), to, shape_.wire, shape_.hidden);
      to += row_bytes_;
    }
  }

  void sum(int first, int count, const std::vector<int>& offsets, const std::byte* own_sums) {
    std::vector<size_t> next(ranks_);
    std::array<exchange::WeightedRow, 64> rows;
    for (int token = first; token < first + count; ++token) {
      size_t found = 0;
      for (size_t peer = 0; peer < ranks_; ++peer) {
        const auto& sent = sent_rows_[peer];
        if (next[peer] == sent.size() || sent[next[peer]] != token) continue;
        const std::byte* const base =
            peer == static_cast<size_t>(rank_) ? own_sums : receive_back_.data() + offsets[peer];
        rows[found++] = {base + next[peer]++ * row_bytes_, 1.0F, shape_.wire};
      }
      exchange::sum_rows(std::span(rows).first(found), out_.data() + static_cast<size_t>(token) * hidden_,
                         DType::float32, shape_.hidden);
    }
  }

  const Settings settings_;
  const exchange::Shape shape_;
  const exchange::Placement placement_;
  const int rank_;
  const size_t ranks_;
  const size_t hidden_;
  const size_t row_bytes_;
  const std::vector<int> experts_;
  const Tokens tokens_;
  std::vector<float> out_;
  bool verifying_ = false;

  std::vector<std::vector<int32_t>> sent_rows_;      // by peer: tokens
  std::vector<std::vector<PackedPair>> sent_pairs_;  // by peer
  std::vector<std::byte> send_;
  std::vector<std::byte> own_;
  std::vector<std::byte> receive_;
  std::vector<std::byte> receive_back_;
  std::vector<std::pair<const std::byte*, size_t>> rows_;      // by source: its rows and how many
  std::vector<std::vector<std::pair<int32_t, Pair>>> pairs_;   // by source: (row, pair), by row
  std::vector<std::pair<const std::byte*, int32_t>> grouped_;  // by position: row and local expert
  std::vector<float> pair_rows_;
};

Status run(const std::string& socket) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  SLUICE_ASSIGN_OR_RETURN(const auto introduction, introduce(socket, "mpi", rank));
  SLUICE_ASSIGN_OR_RETURN(const Settings settings, settings_from_json(introduction.settings));
  SLUICE_ASSIGN_OR_RETURN(auto placement,
                          exchange::Placement::contiguous(settings.shape.experts, settings.shape.ranks));
  SLUICE_RETURN_IF_ERROR(send_frame(introduction.control.get(), "{}", Deadline::after(seconds(60))));
  if (settings.shape.exact) return unimplemented("the exact combine");
  MpiExchange exchange(settings, std::move(placement), rank);
  return obey(introduction.control.get(), {{"mpi", &exchange}}, [] { return nlohmann::json::object(); });
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::string control;
  CLI::App program("One rank of MPI's side of `sluice bench exchange --against mpi`", "sluice-mpi-exchange");
  program.add_option("--control", control)->required();
  CLI11_PARSE(program, argc, argv);
  const sluice::Status status = sluice::bench::run(control);
  if (!status.ok()) fmt::print(stderr, "MPI's side: {}\n", status.message());
  MPI_Finalize();
  return status.ok() ? 0 : 1;
}
