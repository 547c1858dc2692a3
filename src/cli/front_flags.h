// The options of a front, which `serve` takes and hands on to the front that it starts.
#pragma once

#include <string>
#include <vector>

#include "server/front.h"

namespace CLI {
class App;
}

namespace sluice::cli {

// All but the model, which is a positional argument of the command.
void add_front_flags(CLI::App& command, server::FrontOptions& options);
// The same for a child process, without the model: as arguments, and what is secret as environment.
std::vector<std::string> to_arguments(const server::FrontOptions& options);
std::vector<std::string> to_environment(const server::FrontOptions& options);

}  // namespace sluice::cli
