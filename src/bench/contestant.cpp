#include "bench/contestant.h"

#include <fmt/core.h>

#include <sstream>

#include "base/sockets.h"

namespace sluice::bench {
namespace {

// A parent that is silent for so long is gone, or was stopped for ever.
constexpr Nanos kPatience = seconds(3600);
constexpr size_t kMostOrder = 1 << 20;

nlohmann::json error(const Status& status) { return {{"error", status.message()}}; }

nlohmann::json run_block(Contestant& contestant, int repetitions) {
  auto samples = nlohmann::json::array();
  for (int i = 0; i < repetitions; ++i) {
    const auto sample = contestant.run();
    if (!sample.ok()) return error(sample.status());
    samples.push_back({sample->begin, sample->end, sample->dispatch, sample->combine});
  }
  return {{"samples", samples}};
}

nlohmann::json carry_out(const std::string& order, const std::map<std::string, Contestant*>& contestants,
                         const std::function<nlohmann::json()>& report) {
  std::istringstream words(order);
  std::string verb;
  std::string name;
  int repetitions = 0;
  words >> verb;
  if (verb == "report") return report();
  words >> name >> repetitions;
  const auto contestant = contestants.find(name);
  if (contestant == contestants.end()) return {{"error", fmt::format("there is no '{}' here", name)}};
  if (verb == "block") return run_block(*contestant->second, repetitions);
  if (verb != "verify") return {{"error", fmt::format("unknown order '{}'", order)}};
  const Status verified = contestant->second->verify();
  return verified.ok() ? nlohmann::json::object() : error(verified);
}

}  // namespace

Status obey(int control, const std::map<std::string, Contestant*>& contestants,
            const std::function<nlohmann::json()>& report) {
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const auto order, receive_frame(control, kMostOrder, Deadline::after(kPatience)));
    if (order == "end") return {};
    const nlohmann::json answer = carry_out(order, contestants, report);
    SLUICE_RETURN_IF_ERROR(send_frame(control, answer.dump(), Deadline::after(kPatience)));
  }
}

Result<Introduction> introduce(const std::string& socket, const std::string& side, int rank) {
  const Deadline deadline = Deadline::after(seconds(60));
  SLUICE_ASSIGN_OR_RETURN(UniqueFd fd, connect_unix(socket, deadline));
  const nlohmann::json hello{{"side", side}, {"rank", rank}};
  SLUICE_RETURN_IF_ERROR(send_frame(fd.get(), hello.dump(), deadline));
  SLUICE_ASSIGN_OR_RETURN(auto settings, receive_frame(fd.get(), kMostOrder, Deadline::after(kPatience)));
  return Introduction{std::move(fd), std::move(settings)};
}

}  // namespace sluice::bench
