// The operations that a model's forward pass needs, declared once; a back end (cpu/, later cuda/) implements
// all of them. model/ knows this header only.
//
// Shapes are (rows, cols), row-major. An operation's shapes are the caller's duty (checked in debug builds);
// errors of the device are sticky and come out of synchronize(). Accumulation is float32. Inputs of products
// are float32 or the back end's activation type (float32, or bfloat16 with --dtype bfloat16), as their matrix
// says.
//
// With Options::deterministic every output row depends on its own input row and its absolute position only:
// not on what else is in the batch, nor on the number of threads. (DESIGN §7a.)
//
// Threads: one caller at a time per Backend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/matrix.h"
#include "base/status.h"

namespace sluice::compute {

struct Options {
  DType activations = DType::float32;  // float32 or bfloat16
  bool deterministic = false;
  int threads = 1;
};

// A weight matrix as the checkpoint holds it: (out, in), row-major, in host memory.
// float8_e4m3 has one float32 scale per (block_rows, block_cols) block: scales is
// (ceil(out / block_rows), ceil(in / block_cols)), and the weight is value x scale ("weight_scale_inv").
struct WeightSource {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int64_t out = 0;
  int64_t in = 0;
  const float* scales = nullptr;
  int block_rows = 0;
  int block_cols = 0;
};

// A matrix prepared for products: y = x W^T. Made and read by one back end only.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int64_t out() const = 0;
  virtual int64_t in() const = 0;
  virtual size_t bytes() const = 0;
};

struct ExpertSource {
  WeightSource gate;  // (inter, hidden)
  WeightSource up;    // (inter, hidden)
  WeightSource down;  // (hidden, inter)
};

// The experts of one layer that live on this rank, in local-index order.
class Experts {
 public:
  virtual ~Experts() = default;
  virtual int count() const = 0;
  virtual size_t bytes() const = 0;
};

// Owned device memory.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() = 0;
  virtual size_t bytes() const = 0;
};

// Paged keys and values of all layers. A block holds block_size positions of one sequence, for all layers;
// which blocks belong to whom is the engine's business.
struct KvShape {
  int layers = 0;
  int blocks = 0;
  int block_size = 16;
  int kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::float32;  // float32 or bfloat16
};
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const KvShape& shape() const = 0;
  virtual size_t bytes() const = 0;
};

// One sequence's part of a step: `queries` consecutive tokens whose first is at position `start`. After the
// step's keys are stored the sequence holds start + queries positions; query i sees positions 0 .. start + i.
struct Sequence {
  int64_t first_row = 0;  // of the step's tokens
  int64_t queries = 0;
  int64_t start = 0;
  std::span<const int32_t> blocks;  // block table: position p is in blocks[p / block_size]
};

struct RopeParameters {
  double theta = 10000.0;
};

struct AttentionShape {
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // For logs: "cpu, AVX-512 BF16, 2 threads".
  virtual std::string description() const = 0;
  virtual const Options& options() const = 0;

  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes) = 0;
  virtual Result<std::unique_ptr<KvCache>> make_kv_cache(const KvShape& shape) = 0;
  // Copies or repacks; the source may be unmapped afterwards.
  virtual Result<std::unique_ptr<Weight>> prepare(const WeightSource& source) = 0;
  virtual Result<std::unique_ptr<Experts>> prepare_experts(std::span<const ExpertSource> sources) = 0;
  // A vector such as a norm's weight, converted to float32.
  virtual Result<std::unique_ptr<Buffer>> prepare_vector(const void* data, DType dtype, int64_t length) = 0;

  // out: (tokens, hidden) float32 = rows `tokens` of table (vocab, hidden). The table is a prepared Weight
  // because a tied head uses it in product() too.
  virtual void embed(std::span<const int32_t> tokens, const Weight& table, Matrix out) = 0;
  // out (n, width) = x / sqrt(mean(x^2) + eps) * weight (width,); x float32, out float32 or activation type.
  virtual void rms_norm(ConstMatrix x, const Buffer& weight, float eps, Matrix out) = 0;
  // out (n, w.out()) = x (n, w.in()) w^T; x and out float32 or activation type.
  virtual void product(ConstMatrix x, const Weight& w, Matrix out) = 0;
  // x += y, float32.
  virtual void add(Matrix x, ConstMatrix y) = 0;
  // out (n, inter), float32 or activation type, = silu(gate) * up; gate, up: (n, inter) float32.
  virtual void silu_mul(ConstMatrix gate, ConstMatrix up, Matrix out) = 0;

  // Per head: rms_norm with weight (head_dim,) and rotary embedding at each token's position (the two halves
  // of a head are rotated against each other, as in transformers' rotate_half); keys and values go to the
  // cache. q: (tokens, query_heads x head_dim), k and v: (tokens, kv_heads x head_dim), float32; q is changed
  // in place. Null norms leave the normalisation out.
  virtual void rope_and_store(const AttentionShape& shape, const RopeParameters& rope, const Buffer* q_norm,
                              const Buffer* k_norm, float eps, Matrix q, Matrix k, ConstMatrix v,
                              std::span<const Sequence> sequences, int layer, KvCache& cache) = 0;
  // Causal softmax(q k^T / sqrt(head_dim)) v over each sequence's cached positions; query heads share key
  // heads in runs of query_heads / kv_heads. q float32; out (tokens, query_heads x head_dim) float32 or
  // activation type.
  virtual void attention(const AttentionShape& shape, ConstMatrix q, std::span<const Sequence> sequences,
                         int layer, const KvCache& cache, Matrix out) = 0;

  // Softmax over the router's logits (tokens, experts) float32, then the top_k largest in descending order,
  // ties to the lowest index; `normalise` divides the chosen by their sum. experts, weights: (tokens x
  // top_k), host memory.
  virtual void route(ConstMatrix logits, int top_k, bool normalise, std::span<int32_t> experts,
                     std::span<float> weights) = 0;
  // For each pair p of local expert e (expert_offsets[e] <= p < expert_offsets[e + 1]):
  // out[p] = down_e(silu(gate_e(x)) * up_e(x)) with x = rows[p] (hidden elements of `row_type`); out float32.
  // The inner activation is not rounded: a router downstream would choose otherwise on a near tie.
  virtual void experts(const Experts& experts, std::span<const int32_t> expert_offsets,
                       std::span<const std::byte* const> rows, DType row_type, Matrix out) = 0;

  // Waits for all of the above and reports the first device error since the last call.
  virtual Status synchronize() = 0;
};

// The CPU back end. Fails, with what it found, on a processor below the baseline.
Result<std::unique_ptr<Backend>> make_cpu_backend(const Options& options);

}  // namespace sluice::compute
