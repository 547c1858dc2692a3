// The program's log: one fact a line, on standard error, with the time and the process's role ("rank 3",
// "front"). Safe from any thread. The logger is the only global state in the program.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace sluice::log {

enum class Level { debug, info, warning, error };

// Set once, before threads start: the name that lines carry and the lowest level that is written.
void set_role(std::string role);
void set_level(Level level);

void write(Level level, std::string_view line);
bool enabled(Level level);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warning)) write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice::log
