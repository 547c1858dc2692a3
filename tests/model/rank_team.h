// A model spread over several ranks: threads of this process whose exchanges go over a network that delivers
// in any order. Each rank computes whole prompts of its own, or none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compute/ops.h"
#include "exchange/exchange.h"
#include "model/model.h"

namespace sluice::test {

using BackendMaker = std::function<std::unique_ptr<compute::Backend>(const compute::Options&)>;

class RankTeam {
 public:
  static constexpr int kMaxTokens = 256;

  struct Work {
    std::vector<std::vector<int32_t>> prompts;
    exchange::StepFlags flags;
  };
  struct Result {
    Status status;
    std::vector<std::vector<float>> logits;  // after each prompt's last token
    exchange::StepFlags any;
  };

  // Throws what loading says.
  RankTeam(const std::string& directory, int ranks, const compute::Options& options,
           const BackendMaker& make_backend);

  // One step of all ranks, from empty caches. `work` has an entry for each rank.
  std::vector<Result> step(const std::vector<Work>& work);

 private:
  struct Member {
    std::unique_ptr<compute::Backend> backend;
    std::unique_ptr<model::Model> model;
  };
  static Result forward(Member& member, const Work& work, exchange::Exchange& exchange);

  exchange::Shape shape_;
  std::vector<Member> members_;
};

}  // namespace sluice::test
