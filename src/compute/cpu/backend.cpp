// The CPU back end: checks what comes from outside, and hands each operation to the file that has it.
#include <fmt/format.h>

#include <cassert>
#include <cstring>
#include <map>

#include "compute/cpu/attention.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/experts.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/kv_cache.h"
#include "compute/cpu/memory.h"
#include "compute/cpu/norm_rope.h"
#include "compute/cpu/onednn_product.h"
#include "compute/cpu/pack.h"
#include "compute/cpu/product.h"
#include "compute/cpu/rope_table.h"
#include "compute/cpu/route.h"
#include "compute/cpu/workers.h"
#include "compute/ops.h"

namespace sluice::compute {
namespace cpu {
namespace {

// oneDNN is for many rows: for few, a product is one pass over the weights, which our kernels make as fast,
// for every type of weight.
constexpr int64_t kOneDnnRows = 5;

const PackedMatrix& packed(const Weight& weight) { return static_cast<const CpuWeight&>(weight).matrix(); }
const float* floats(const Buffer& buffer) { return static_cast<const CpuBuffer&>(buffer).floats(); }

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const Options& options)
      : options_(options), workers_(options.threads), onednn_(workers_) {}

  std::string description() const override {
    return fmt::format("cpu, {}{}, {} thread{}", kernel_instruction_set(),
                       options_.deterministic ? ", deterministic" : " and " + OneDnnProduct::version(),
                       options_.threads, options_.threads == 1 ? "" : "s");
  }
  const Options& options() const override { return options_; }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    SLUICE_ASSIGN_OR_RETURN(Memory memory, Memory::allocate(bytes));
    return std::unique_ptr<Buffer>(std::make_unique<CpuBuffer>(std::move(memory)));
  }

  Result<std::unique_ptr<KvCache>> make_kv_cache(const KvShape& shape) override {
    SLUICE_ASSIGN_OR_RETURN(auto cache, CpuKvCache::make(shape));
    return std::unique_ptr<KvCache>(std::move(cache));
  }

  Result<std::unique_ptr<Weight>> prepare(const WeightSource& source) override {
    SLUICE_ASSIGN_OR_RETURN(auto matrix, PackedMatrix::pack(source, workers_));
    return std::unique_ptr<Weight>(std::make_unique<CpuWeight>(std::move(matrix)));
  }

  Result<std::unique_ptr<Experts>> prepare_experts(std::span<const ExpertSource> sources) override {
    SLUICE_ASSIGN_OR_RETURN(auto experts, CpuExperts::prepare(sources, workers_));
    return std::unique_ptr<Experts>(std::move(experts));
  }

  Result<std::unique_ptr<Buffer>> prepare_vector(const void* data, DType dtype, int64_t length) override {
    if (data == nullptr || length <= 0) {
      return invalid_argument(
          fmt::format("vector of length {}{}", length, data == nullptr ? " without data" : ""));
    }
    if (dtype != DType::float32 && dtype != DType::bfloat16) {
      return unimplemented(
          fmt::format("vector of type {}; it must be float32 or bfloat16", dtype_name(dtype)));
    }
    SLUICE_ASSIGN_OR_RETURN(Memory memory, Memory::allocate(static_cast<size_t>(length) * sizeof(float)));
    load_row(data, dtype, length, length, static_cast<float*>(memory.data()));
    return std::unique_ptr<Buffer>(std::make_unique<CpuBuffer>(std::move(memory)));
  }

  void embed(std::span<const int32_t> tokens, const Weight& table, Matrix out) override {
    assert(out.dtype == DType::float32 && out.cols == table.in());
    const auto count = static_cast<int64_t>(tokens.size());
    workers_.run(count, count * table.in(), [&](int64_t i) {
      packed(table).read_row(tokens[static_cast<size_t>(i)], out.row<float>(i));
    });
  }

  void rms_norm(ConstMatrix x, const Buffer& weight, float eps, Matrix out) override {
    assert(x.dtype == DType::float32 && out.cols == x.cols && out.rows >= x.rows);
    workers_.run(x.rows, x.rows * x.cols, [&](int64_t row) {
      rms_norm_row(x.row<float>(row), floats(weight), eps, x.cols, out.dtype, out.row_bytes(row));
    });
  }

  void product(ConstMatrix x, const Weight& w, Matrix out) override {
    assert(x.cols == w.in() && out.cols == w.out() && out.rows >= x.rows);
    if (x.rows == 0) return;
    if (!options_.deterministic && x.rows >= kOneDnnRows && onednn_.run(x, packed(w), out)) return;
    product_with_own_kernels(x, packed(w), out, workers_, product_scratch_);
  }

  void add(Matrix x, ConstMatrix y) override {
    assert(x.dtype == DType::float32 && y.dtype == DType::float32 && x.cols == y.cols);
    workers_.run(x.rows, x.rows * x.cols,
                 [&](int64_t row) { add_row(y.row<float>(row), x.cols, x.row<float>(row)); });
  }

  void silu_mul(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    assert(gate.dtype == DType::float32 && up.dtype == DType::float32 && gate.cols == up.cols);
    float* products = product_scratch_.get(static_cast<size_t>(gate.rows * gate.cols));
    workers_.run(gate.rows, gate.rows * gate.cols, [&](int64_t row) {
      float* product = products + row * gate.cols;
      silu_mul_row(gate.row<float>(row), up.row<float>(row), gate.cols, product);
      store_row(product, gate.cols, out.dtype, out.row_bytes(row));
    });
  }

  void rope_and_store(const AttentionShape& shape, const RopeParameters& rope, const Buffer* q_norm,
                      const Buffer* k_norm, float eps, Matrix q, Matrix k, ConstMatrix v,
                      std::span<const Sequence> sequences, int layer, KvCache& cache) override {
    assert(cache.shape().kv_heads == shape.kv_heads && cache.shape().head_dim == shape.head_dim);
    int64_t positions = 0;
    for (const Sequence& sequence : sequences)
      positions = std::max(positions, sequence.start + sequence.queries);
    // A model has one rotary embedding, or few (one for full and one for local attention).
    RopeTable& table = rope_tables_[{rope.theta, shape.head_dim}];
    table.reserve(rope.theta, shape.head_dim, positions);
    const RopeStep step{shape, q_norm == nullptr ? nullptr : floats(*q_norm),
                        k_norm == nullptr ? nullptr : floats(*k_norm), eps, layer};
    cpu::rope_and_store(step, table, q, k, v, sequences, static_cast<CpuKvCache&>(cache), workers_);
  }

  void attention(const AttentionShape& shape, ConstMatrix q, std::span<const Sequence> sequences, int layer,
                 const KvCache& cache, Matrix out) override {
    assert(shape.kv_heads > 0 && shape.query_heads % shape.kv_heads == 0);
    attend(shape, q, sequences, layer, static_cast<const CpuKvCache&>(cache), out, workers_);
  }

  void route(ConstMatrix logits, int top_k, bool normalise, std::span<int32_t> experts,
             std::span<float> weights) override {
    assert(logits.dtype == DType::float32 && top_k > 0 && top_k <= logits.cols);
    assert(experts.size() >= static_cast<size_t>(logits.rows * top_k) && weights.size() >= experts.size());
    route_tokens(logits, top_k, normalise, experts, weights, workers_, product_scratch_);
  }

  void experts(const Experts& experts, std::span<const int32_t> expert_offsets,
               std::span<const std::byte* const> rows, DType row_type, Matrix out) override {
    assert(expert_offsets.empty() || static_cast<int>(expert_offsets.size()) <= experts.count() + 1);
    run_experts(static_cast<const CpuExperts&>(experts), expert_offsets, rows, row_type, DType::float32, out,
                workers_, expert_scratch_);
  }

  Status synchronize() override { return {}; }

 private:
  Options options_;
  Workers workers_;
  OneDnnProduct onednn_;
  Scratch product_scratch_;
  ExpertScratch expert_scratch_;
  std::map<std::pair<double, int>, RopeTable> rope_tables_;
};

}  // namespace
}  // namespace cpu

Result<std::unique_ptr<Backend>> make_cpu_backend(const Options& options) {
  if (options.threads < 1) {
    return invalid_argument(
        fmt::format("{} threads for the CPU back end; it needs at least 1", options.threads));
  }
  if (options.activations != DType::float32 && options.activations != DType::bfloat16) {
    return unimplemented(
        fmt::format("activations of type {}; the CPU back end computes in float32 and bfloat16",
                    dtype_name(options.activations)));
  }
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("x86-64-v2")) {
    return unimplemented("this processor has no SSE4.2; the CPU back end needs x86-64-v2");
  }
#endif
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(options));
}

}  // namespace sluice::compute
