// A child for the supervisor's tests: does what its arguments say, one after the other.
//   say TEXT | sleep MS | exit STATUS | crash SIGNAL | stubborn (ignores SIGTERM) | count FILE (adds a line)
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int i = 1; i < argc; ++i) {
    const std::string_view verb = argv[i];
    if (verb == "stubborn") {
      ::signal(SIGTERM, SIG_IGN);
      continue;
    }
    const char* value = ++i < argc ? argv[i] : "";
    if (verb == "say") std::fprintf(stderr, "%s\n", value);
    if (verb == "sleep") ::usleep(static_cast<useconds_t>(std::atoi(value)) * 1000);
    if (verb == "exit") return std::atoi(value);
    if (verb == "crash") ::kill(::getpid(), std::atoi(value));
    if (verb == "count") {
      std::FILE* file = std::fopen(value, "a");
      std::fprintf(file, "%d\n", ::getpid());
      std::fclose(file);
    }
  }
  return 0;
}
