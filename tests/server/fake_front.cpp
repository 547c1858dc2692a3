// A front with engines that make text up: for tests with real clients. Prints "port N" and serves until its
// standard input ends.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <set>

#include "server/service.h"

#include "fakes.h"

namespace sluice::server {
namespace {

// Answers on one thread, a token of each open request in turn. A token is a function of prompt, seed (unless
// greedy) and position, so that equal requests have equal answers.
class MakeBelieveEngines : public cluster::EngineClient {
 public:
  MakeBelieveEngines() : thread_([this] { run(); }) {}
  ~MakeBelieveEngines() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  cluster::Health health() const override {
    return {.ready = true, .message = "ready: make-believe", .epoch = {1, 1}, .ranks = {}};
  }
  Result<uint64_t> submit(engine::Request request, engine::Sink sink) override {
    std::lock_guard lock(mutex_);
    open_.emplace(++last_, Open{std::move(request), std::move(sink), 0});
    changed_.notify_all();
    return last_;
  }
  void cancel(uint64_t request) override {
    std::lock_guard lock(mutex_);
    open_.erase(request);
  }

 private:
  struct Open {
    engine::Request request;
    engine::Sink sink;
    int given;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !open_.empty(); });
      if (stop_) return;
      for (auto it = open_.begin(); it != open_.end();) {
        Open& open = it->second;
        engine::Output output;
        output.request = it->first;
        output.index = open.given++;
        uint64_t mixed = open.request.sampling.temperature > 0 ? open.request.sampling.seed : 0;
        for (const int32_t id : open.request.prompt) mixed = mixed * 31 + static_cast<uint64_t>(id);
        mixed = (mixed + static_cast<uint64_t>(output.index)) * 0x9e3779b97f4a7c15U;
        output.token = static_cast<int32_t>('a' + (mixed >> 40) % 26);
        if (open.given == open.request.max_tokens) output.finish = engine::Finish::length;
        open.sink(output);
        it = output.finish == engine::Finish::none ? std::next(it) : open_.erase(it);
      }
      lock.unlock();
      ::usleep(1000);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Open> open_;
  uint64_t last_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

int serve() {
  MakeBelieveEngines engines;
  Service service({}, fake_model(), engines);
  HttpOptions options;
  auto server = HttpServer::listen(options, service);
  if (!server.ok()) {
    fmt::print(stderr, "{}\n", server.status().message());
    return 1;
  }
  service.attach(**server);
  (*server)->when_readable(STDIN_FILENO, [&] { (*server)->stop(); });
  fmt::print("port {}\n", (*server)->port());
  std::fflush(stdout);
  (*server)->run();
  return 0;
}

}  // namespace
}  // namespace sluice::server

int main() { return sluice::server::serve(); }
