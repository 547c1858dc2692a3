#include "compute/cpu/onednn_product.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

namespace sluice::compute::cpu {
namespace {

using dnnl::matmul;
using dnnl::memory;

// A primitive takes some tenths of a millisecond to make; batches of many sizes must not pile them up either.
constexpr size_t kMostPrimitives = 1024;

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t columns;
  DType type;  // of inputs and weights
  DType out_type;
  int64_t x_stride;
  int64_t out_stride;
  auto operator<=>(const Shape&) const = default;
};

memory::data_type data_type(DType type) {
  return type == DType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

struct Primitive {
  matmul::primitive_desc description;
  matmul product;
};

// Only a "brgemm" kernel reads this layout as it is; anything else would be a reference implementation,
// slower than our own kernels by orders of magnitude.
std::optional<Primitive> make_primitive(const Shape& shape, const dnnl::engine& engine) {
  const auto packed =
      shape.type == DType::bfloat16 ? memory::format_tag::BA16a64b2a : memory::format_tag::BA16a64b;
  try {
    const memory::desc x({shape.rows, shape.in}, data_type(shape.type), memory::dims{shape.x_stride, 1});
    const memory::desc w({shape.in, shape.columns}, data_type(shape.type), packed);
    const memory::desc out({shape.rows, shape.columns}, data_type(shape.out_type),
                           memory::dims{shape.out_stride, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const matmul::primitive_desc description(matmul::desc(x, w, out), attributes, engine);
    if (!std::string_view(description.impl_info_str()).starts_with("brg")) return std::nullopt;
    return Primitive{description, matmul(description)};
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

}  // namespace

struct OneDnnProduct::State {
  explicit State(Workers& team) : workers(team), engine(dnnl::engine::kind::cpu, 0) {}

  const std::optional<Primitive>& primitive(const Shape& shape) {
    if (const auto found = primitives.find(shape); found != primitives.end()) return found->second;
    if (primitives.size() >= kMostPrimitives) primitives.clear();
    return primitives.emplace(shape, make_primitive(shape, engine)).first->second;
  }

  Workers& workers;
  dnnl::engine engine;
  std::map<Shape, std::optional<Primitive>> primitives;
};

OneDnnProduct::OneDnnProduct(Workers& workers) : state_(std::make_unique<State>(workers)) {}
OneDnnProduct::~OneDnnProduct() = default;

std::string OneDnnProduct::version() {
  const dnnl::version_t* version = dnnl::version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

bool OneDnnProduct::run(ConstMatrix x, const PackedMatrix& w, Matrix out) {
  if (x.dtype != w.dtype()) return false;
  omp_set_num_threads(1);
  // Equal slices of whole tiles, and a shorter last one: two primitives at most.
  const int64_t slices = std::min<int64_t>(state_->workers.threads(), w.tiles());
  const int64_t tiles_each = (w.tiles() + slices - 1) / slices;
  Shape shape{x.rows, w.in(), 0, x.dtype, out.dtype, x.stride, out.stride};
  const auto columns_of = [&](int64_t slice) {
    return std::min(tiles_each * kTileOut, w.out() - slice * tiles_each * kTileOut);
  };
  const int64_t used = (w.tiles() + tiles_each - 1) / tiles_each;
  shape.columns = columns_of(used - 1);
  const std::optional<Primitive> last = state_->primitive(shape);
  shape.columns = columns_of(0);
  const std::optional<Primitive> full = state_->primitive(shape);
  if (!full.has_value() || !last.has_value()) return false;

  state_->workers.run(used, x.rows * w.in() * w.out(), [&](int64_t slice) {
    omp_set_num_threads(1);
    const Primitive& primitive = slice + 1 == used ? *last : *full;
    const auto& description = primitive.description;
    dnnl::stream stream(state_->engine);
    // oneDNN's handles are not const; it only reads these.
    const memory inputs(description.src_desc(), state_->engine, const_cast<void*>(x.data));
    const memory weights(description.weights_desc(), state_->engine,
                         const_cast<uint32_t*>(w.tile(slice * tiles_each)));
    std::byte* first =
        out.row_bytes(0) + static_cast<size_t>(slice * tiles_each * kTileOut) * dtype_bytes(out.dtype);
    const memory outputs(description.dst_desc(), state_->engine, first);
    const memory scratchpad(description.scratchpad_desc(), state_->engine);
    primitive.product.execute(stream, {{DNNL_ARG_SRC, inputs},
                                       {DNNL_ARG_WEIGHTS, weights},
                                       {DNNL_ARG_DST, outputs},
                                       {DNNL_ARG_SCRATCHPAD, scratchpad}});
    stream.wait();
  });
  return true;
}

}  // namespace sluice::compute::cpu
