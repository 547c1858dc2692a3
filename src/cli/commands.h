// One function a command: it adds the command's options to the program and runs it when it was chosen.
#pragma once

namespace CLI {
class App;
}

namespace sluice::cli {

// `status` is the program's exit status, set when the command runs.
void add_serve(CLI::App& program, int& status);
void add_front(CLI::App& program, int& status);
void add_rank(CLI::App& program, int& status);
void add_check(CLI::App& program, int& status);
void add_bench(CLI::App& program, int& status);
void add_tokenize(CLI::App& program, int& status);

}  // namespace sluice::cli
