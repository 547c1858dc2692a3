#include "support/reference_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>

#include "support/reference_kernels.h"

namespace sluice::test {
namespace {

using compute::AttentionShape;
using compute::KvShape;
using compute::Sequence;

class HostBuffer final : public compute::Buffer {
 public:
  explicit HostBuffer(size_t bytes) : storage_((bytes + sizeof(Line) - 1) / sizeof(Line)), bytes_(bytes) {}
  void* data() override { return storage_.data(); }
  size_t bytes() const override { return bytes_; }
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(storage_.data()), bytes_ / sizeof(float)};
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> storage_;
  size_t bytes_;
};

class ReferenceWeight final : public compute::Weight {
 public:
  explicit ReferenceWeight(DenseMatrix matrix) : matrix_(std::move(matrix)) {}
  int64_t out() const override { return matrix_.out; }
  int64_t in() const override { return matrix_.in; }
  size_t bytes() const override { return matrix_.values.size() * sizeof(float); }
  const DenseMatrix& matrix() const { return matrix_; }

 private:
  DenseMatrix matrix_;
};

struct Expert {
  DenseMatrix gate, up, down;
};

class ReferenceExperts final : public compute::Experts {
 public:
  explicit ReferenceExperts(std::vector<Expert> experts) : experts_(std::move(experts)) {}
  int count() const override { return static_cast<int>(experts_.size()); }
  size_t bytes() const override {
    size_t floats = 0;
    for (const Expert& e : experts_)
      floats += e.gate.values.size() + e.up.values.size() + e.down.values.size();
    return floats * sizeof(float);
  }
  const Expert& operator[](size_t index) const { return experts_[index]; }

 private:
  std::vector<Expert> experts_;
};

// A key or value head of one position lies at (layer, block, offset in the block, head).
class ReferenceKvCache final : public compute::KvCache {
 public:
  explicit ReferenceKvCache(const KvShape& shape) : shape_(shape) {
    const auto heads =
        size_t(shape.layers) * size_t(shape.blocks) * size_t(shape.block_size) * size_t(shape.kv_heads);
    keys_.resize(heads * size_t(shape.head_dim), std::nanf(""));
    values_.resize(keys_.size(), std::nanf(""));
  }
  const KvShape& shape() const override { return shape_; }
  size_t bytes() const override { return 2 * keys_.size() * sizeof(float); }

  std::span<const float> key(int layer, const Sequence& s, int64_t position, int head) const {
    return std::span(keys_).subspan(offset(layer, s, position, head), size_t(shape_.head_dim));
  }
  std::span<const float> value(int layer, const Sequence& s, int64_t position, int head) const {
    return std::span(values_).subspan(offset(layer, s, position, head), size_t(shape_.head_dim));
  }
  void store(int layer, const Sequence& s, int64_t position, int head, std::span<const float> key,
             std::span<const float> value) {
    const size_t at = offset(layer, s, position, head);
    for (size_t i = 0; i < key.size(); ++i) {
      keys_[at + i] = rounded(key[i], shape_.dtype);
      values_[at + i] = rounded(value[i], shape_.dtype);
    }
  }

 private:
  size_t offset(int layer, const Sequence& s, int64_t position, int head) const {
    const int64_t block = s.blocks[size_t(position / shape_.block_size)];
    const int64_t slot =
        (layer * int64_t{shape_.blocks} + block) * shape_.block_size + position % shape_.block_size;
    return size_t((slot * shape_.kv_heads + head) * shape_.head_dim);
  }

  KvShape shape_;
  std::vector<float> keys_;
  std::vector<float> values_;
};

class ReferenceBackend final : public compute::Backend {
 public:
  explicit ReferenceBackend(const compute::Options& options) : options_(options) {}

  std::string description() const override { return "reference loops, 1 thread"; }
  const compute::Options& options() const override { return options_; }

  Result<std::unique_ptr<compute::Buffer>> allocate(size_t bytes) override {
    return std::unique_ptr<compute::Buffer>(std::make_unique<HostBuffer>(bytes));
  }
  Result<std::unique_ptr<compute::KvCache>> make_kv_cache(const KvShape& shape) override {
    return std::unique_ptr<compute::KvCache>(std::make_unique<ReferenceKvCache>(shape));
  }
  Result<std::unique_ptr<compute::Weight>> prepare(const compute::WeightSource& source) override {
    return std::unique_ptr<compute::Weight>(std::make_unique<ReferenceWeight>(unpack(source)));
  }
  Result<std::unique_ptr<compute::Experts>> prepare_experts(
      std::span<const compute::ExpertSource> sources) override {
    std::vector<Expert> experts;
    for (const auto& source : sources) {
      experts.push_back({unpack(source.gate), unpack(source.up), unpack(source.down)});
    }
    return std::unique_ptr<compute::Experts>(std::make_unique<ReferenceExperts>(std::move(experts)));
  }
  Result<std::unique_ptr<compute::Buffer>> prepare_vector(const void* data, DType dtype,
                                                          int64_t length) override {
    auto buffer = std::make_unique<HostBuffer>(size_t(length) * sizeof(float));
    const auto values = read_elements(static_cast<const std::byte*>(data), dtype, length);
    std::copy(values.begin(), values.end(), static_cast<float*>(buffer->data()));
    return std::unique_ptr<compute::Buffer>(std::move(buffer));
  }

  void embed(std::span<const int32_t> tokens, const compute::Weight& table, Matrix out) override {
    for (size_t i = 0; i < tokens.size(); ++i) write_row(out, int64_t(i), matrix_of(table).row(tokens[i]));
  }
  void rms_norm(ConstMatrix x, const compute::Buffer& weight, float eps, Matrix out) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      std::vector<float> row = read_row(x, r);
      normalise(row, floats_of(weight), eps);
      write_row(out, r, row);
    }
  }
  void product(ConstMatrix x, const compute::Weight& w, Matrix out) override {
    for (int64_t r = 0; r < x.rows; ++r) write_row(out, r, times(matrix_of(w), read_row(x, r)));
  }
  void add(Matrix x, ConstMatrix y) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) x.row<float>(r)[c] += y.row<float>(r)[c];
    }
  }
  void silu_mul(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    for (int64_t r = 0; r < gate.rows; ++r) {
      std::vector<float> row = read_row(gate, r);
      const std::vector<float> factor = read_row(up, r);
      for (size_t c = 0; c < row.size(); ++c) row[c] = silu(row[c]) * factor[c];
      write_row(out, r, row);
    }
  }

  void rope_and_store(const AttentionShape& shape, const compute::RopeParameters& rope,
                      const compute::Buffer* q_norm, const compute::Buffer* k_norm, float eps, Matrix q,
                      Matrix k, ConstMatrix v, std::span<const Sequence> sequences, int layer,
                      compute::KvCache& cache) override {
    const auto turn = [&](std::span<float> head, const compute::Buffer* norm, int64_t position) {
      if (norm != nullptr) normalise(head, floats_of(*norm), eps);
      rotate(head, position, rope.theta);
    };
    for (const Sequence& s : sequences) {
      for (int64_t i = 0; i < s.queries; ++i) {
        const int64_t row = s.first_row + i;
        const int64_t position = s.start + i;
        for (int h = 0; h < shape.query_heads; ++h) turn(head_of(q, row, h, shape), q_norm, position);
        for (int h = 0; h < shape.kv_heads; ++h) {
          const std::span<float> key = head_of(k, row, h, shape);
          const std::span<const float> value(v.row<float>(row) + h * shape.head_dim, size_t(shape.head_dim));
          turn(key, k_norm, position);
          static_cast<ReferenceKvCache&>(cache).store(layer, s, position, h, key, value);
        }
      }
    }
  }

  void attention(const AttentionShape& shape, ConstMatrix q, std::span<const Sequence> sequences, int layer,
                 const compute::KvCache& cache, Matrix out) override {
    const auto& paged = static_cast<const ReferenceKvCache&>(cache);
    for (const Sequence& s : sequences) {
      for (int64_t i = 0; i < s.queries; ++i) {
        std::vector<float> row;
        for (int h = 0; h < shape.query_heads; ++h) {
          const std::span query(q.row<float>(s.first_row + i) + h * shape.head_dim, size_t(shape.head_dim));
          const std::vector<float> head = attend(shape, query, h, s, s.start + i, layer, paged);
          row.insert(row.end(), head.begin(), head.end());
        }
        write_row(out, s.first_row + i, row);
      }
    }
  }

  void route(ConstMatrix logits, int top_k, bool normalise_weights, std::span<int32_t> experts,
             std::span<float> weights) override {
    for (int64_t r = 0; r < logits.rows; ++r) {
      std::vector<float> p = read_row(logits, r);
      softmax(p);
      std::vector<int32_t> order(p.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return p[size_t(a)] > p[size_t(b)]; });
      float sum = 0;
      for (int j = 0; j < top_k; ++j) sum += p[size_t(order[size_t(j)])];
      for (int j = 0; j < top_k; ++j) {
        const size_t at = size_t(r * top_k + j);
        experts[at] = order[size_t(j)];
        weights[at] = p[size_t(order[size_t(j)])] / (normalise_weights ? sum : 1.0F);
      }
    }
  }

  void experts(const compute::Experts& experts, std::span<const int32_t> expert_offsets,
               std::span<const std::byte* const> rows, DType row_type, Matrix out) override {
    const auto& local = static_cast<const ReferenceExperts&>(experts);
    for (size_t e = 0; e < size_t(local.count()); ++e) {
      for (int32_t p = expert_offsets[e]; p < expert_offsets[e + 1]; ++p) {
        const std::vector<float> x = read_elements(rows[size_t(p)], row_type, local[e].gate.in);
        std::vector<float> inner = times(local[e].gate, x);
        const std::vector<float> up = times(local[e].up, x);
        for (size_t i = 0; i < inner.size(); ++i) inner[i] = silu(inner[i]) * up[i];
        write_row(out, p, times(local[e].down, inner));
      }
    }
  }

  Status synchronize() override { return {}; }

 private:
  static const DenseMatrix& matrix_of(const compute::Weight& w) {
    return static_cast<const ReferenceWeight&>(w).matrix();
  }
  static std::span<const float> floats_of(const compute::Buffer& b) {
    return static_cast<const HostBuffer&>(b).floats();
  }
  static std::span<float> head_of(const Matrix& m, int64_t row, int head, const AttentionShape& shape) {
    return {m.row<float>(row) + head * shape.head_dim, size_t(shape.head_dim)};
  }

  // One query head over positions 0 .. last.
  static std::vector<float> attend(const AttentionShape& shape, std::span<const float> query, int head,
                                   const Sequence& s, int64_t last, int layer,
                                   const ReferenceKvCache& cache) {
    const int kv_head = head / (shape.query_heads / shape.kv_heads);
    const float scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
    std::vector<float> weights(size_t(last) + 1);
    for (int64_t p = 0; p <= last; ++p)
      weights[size_t(p)] = dot(query, cache.key(layer, s, p, kv_head)) * scale;
    softmax(weights);
    std::vector<float> sum(size_t(shape.head_dim), 0.0F);
    for (int64_t p = 0; p <= last; ++p) {
      const std::span<const float> value = cache.value(layer, s, p, kv_head);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += weights[size_t(p)] * value[i];
    }
    return sum;
  }

  compute::Options options_;
};

}  // namespace

std::unique_ptr<compute::Backend> make_reference_backend(const compute::Options& options) {
  return std::make_unique<ReferenceBackend>(options);
}

}  // namespace sluice::test
