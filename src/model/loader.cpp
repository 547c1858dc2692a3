#include "model/loader.h"

#include <fmt/format.h>

#include <vector>

namespace sluice::model {
namespace {

compute::WeightSource source_of(const checkpoint::MatrixView& view) {
  return {.data = view.data,
          .dtype = view.dtype,
          .out = view.out,
          .in = view.in,
          .scales = view.scales,
          .block_rows = view.block_rows,
          .block_cols = view.block_cols};
}

}  // namespace

Result<checkpoint::MatrixView> Loader::view(const std::string& name, int64_t out, int64_t in) const {
  return checkpoint::find_matrix(checkpoint_, name, out, in, config_.quantization);
}

Result<std::unique_ptr<compute::Weight>> Loader::matrix(const std::string& name, int64_t out, int64_t in) {
  SLUICE_ASSIGN_OR_RETURN(const checkpoint::MatrixView found, view(name, out, in));
  auto prepared = backend_.prepare(source_of(found));
  if (!prepared.ok()) return prepared.status().with_context(checkpoint_.where(name + ".weight"));
  bytes_ += (*prepared)->bytes();
  return prepared;
}

Result<std::unique_ptr<compute::Buffer>> Loader::vector(const std::string& name, int64_t length) {
  const std::string full = name + ".weight";
  SLUICE_ASSIGN_OR_RETURN(const checkpoint::TensorView found,
                          checkpoint::find_vector(checkpoint_, full, length));
  auto prepared = backend_.prepare_vector(found.data, found.dtype, length);
  if (!prepared.ok()) return prepared.status().with_context(checkpoint_.where(full));
  bytes_ += (*prepared)->bytes();
  return prepared;
}

Result<std::unique_ptr<compute::Experts>> Loader::experts(const std::string& prefix,
                                                          std::span<const int> experts) {
  const int64_t hidden = config_.hidden_size;
  const int64_t inter = config_.moe_intermediate_size;
  std::vector<checkpoint::MatrixView> views;  // own converted scales until the back end has copied them
  std::vector<compute::ExpertSource> sources;
  views.reserve(experts.size() * 3);
  for (const int expert : experts) {
    const std::string name = fmt::format("{}.{}", prefix, expert);
    SLUICE_ASSIGN_OR_RETURN(const auto gate, view(name + ".gate_proj", inter, hidden));
    SLUICE_ASSIGN_OR_RETURN(const auto up, view(name + ".up_proj", inter, hidden));
    SLUICE_ASSIGN_OR_RETURN(const auto down, view(name + ".down_proj", hidden, inter));
    views.insert(views.end(), {gate, up, down});
    sources.push_back({.gate = source_of(gate), .up = source_of(up), .down = source_of(down)});
  }
  auto prepared = backend_.prepare_experts(sources);
  if (!prepared.ok()) return prepared.status().with_context(checkpoint_.directory() + ": " + prefix);
  bytes_ += (*prepared)->bytes();
  return prepared;
}

}  // namespace sluice::model
