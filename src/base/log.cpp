#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace sluice::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  // Never destroyed: threads may still log while the process exits.
  static auto* instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    auto* made = new spdlog::logger("sluice", std::move(sink));
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ [%n] %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_role(std::string role) { logger().set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ [" + role + "] %v"); }

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
void write(Level level, std::string_view line) { logger().log(to_spdlog(level), line); }
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

}  // namespace sluice::log
