#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace sluice::server {
namespace {

void add(std::string& text, std::string_view name, std::string_view type, std::string_view help,
         const std::string& label, uint64_t value) {
  text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0}{{{3}}} {4}\n", name, help, type, label, value);
}

// A label's value: backslash, quote and newline escaped.
std::string escaped(const std::string& value) {
  std::string result;
  for (const char c : value) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string Metrics::text(const std::string& model) const {
  const std::string label = fmt::format("model_name=\"{}\"", escaped(model));
  std::string text =
      "# HELP sluice_requests_total HTTP requests by route and status; 0: the client left before one.\n"
      "# TYPE sluice_requests_total counter\n";
  for (const auto& [key, count] : requests) {
    text +=
        fmt::format("sluice_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  }
  add(text, "sluice_requests_running", "gauge", "Generations in progress.", label,
      static_cast<uint64_t>(std::max(running, 0)));
  add(text, "sluice_connections", "gauge", "Open HTTP connections.", label,
      static_cast<uint64_t>(std::max(connections, 0)));
  add(text, "sluice_clients_left_total", "counter", "Clients that left before their answer was complete.",
      label, clients_left);
  add(text, "sluice_prompt_tokens_total", "counter", "Prompt tokens given to the engine.", label,
      prompt_tokens);
  add(text, "sluice_generation_tokens_total", "counter", "Tokens generated.", label, generation_tokens);
  add(text, "sluice_ready", "gauge", "1 when every rank has proved itself in this epoch.", label,
      ready ? 1 : 0);
  return text;
}

}  // namespace sluice::server
