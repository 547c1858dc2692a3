#include "server/http_server.h"

#include <utility>
// Asio wants <utility> first.
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <ctime>
#include <mutex>
#include <random>
#include <unordered_map>

#include "base/log.h"
#include "server/http_connection.h"

namespace sluice::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr size_t kScratchBytes = 65536;
constexpr Nanos kLastReplies = seconds(1);
constexpr int kAcceptPauseMilliseconds = 100;

// Tasks from other threads. It outlives the server, so that a late poster finds a closed door and not a
// dangling pointer. Many posts between two turns of the io thread cost one wake.
class Inbox : public std::enable_shared_from_this<Inbox> {
 public:
  explicit Inbox(asio::io_context& context) : context_(&context) {}

  void post(HttpServer::Task task) {
    std::lock_guard lock(mutex_);
    if (context_ == nullptr) return;
    tasks_.push_back(std::move(task));
    if (tasks_.size() == 1) asio::post(*context_, [self = shared_from_this()] { self->run_all(); });
  }
  void close() {
    std::lock_guard lock(mutex_);
    context_ = nullptr;
    tasks_.clear();
  }

 private:
  void run_all() {
    std::vector<HttpServer::Task> tasks;
    {
      std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (HttpServer::Task& task : tasks) {
      try {
        task();
      } catch (const std::exception& error) {
        log::error("a task of the io thread failed: {}", error.what());
      }
    }
  }

  std::mutex mutex_;
  asio::io_context* context_;
  std::vector<HttpServer::Task> tasks_;
};

class HttpServerImpl : public HttpServer, public ConnectionHost {
 public:
  HttpServerImpl(const HttpOptions& options, HttpHandler& handler)
      : options_(options), handler_(handler), random_(std::random_device{}()) {}
  ~HttpServerImpl() override {
    inbox_->close();
    for (const auto& connection : all_connections()) connection->close();
  }

  Status open();

  int port() const override { return acceptor_.local_endpoint().port(); }
  void run() override;
  std::function<void(Task)> poster() const override {
    return [inbox = inbox_](Task task) { inbox->post(std::move(task)); };
  }
  void when_readable(int fd, Task task) override;
  void drain(Nanos timeout, Task at_timeout) override;
  void stop() override { context_.stop(); }
  int connections() const override { return static_cast<int>(connections_.size()); }

  const HttpOptions& options() const override { return options_; }
  HttpHandler& handler() override { return handler_; }
  bool draining() const override { return draining_; }
  std::string_view date() override;
  std::string draw_request_id() override { return fmt::format("req_{:016x}{:016x}", random_(), random_()); }
  std::vector<char>& scratch() override { return scratch_; }
  void request_done() override;
  void closed(Connection& connection) override { connections_.erase(&connection); }

 private:
  void accept();
  void on_accept(ErrorCode error, tcp::socket socket);
  void schedule_tick();
  void tick();
  void end_drain_when_quiet();
  std::vector<std::shared_ptr<Connection>> all_connections() const;

  HttpOptions options_;
  HttpHandler& handler_;
  asio::io_context context_{1};
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>(context_);
  tcp::acceptor acceptor_{context_};
  asio::steady_timer ticker_{context_};
  asio::steady_timer accept_pause_{context_};
  std::vector<std::unique_ptr<asio::posix::stream_descriptor>> watched_;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  std::vector<char> scratch_ = std::vector<char>(kScratchBytes);
  std::mt19937_64 random_;
  std::time_t date_second_ = 0;
  std::string date_;

  bool draining_ = false;
  bool checking_quiet_ = false;
  Nanos drain_deadline_ = 0;
  Task at_drain_timeout_;
};

Status HttpServerImpl::open() {
  const std::string where = fmt::format("cannot listen on {}:{}", options_.host, options_.port);
  ErrorCode error;
  tcp::resolver resolver(context_);
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return unavailable(fmt::format("{}: {}", where, error.message()));
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return unavailable(fmt::format("{}: {}", where, error.message()));
  return {};
}

void HttpServerImpl::run() {
  accept();
  schedule_tick();
  while (!context_.stopped()) {
    try {
      context_.run();
    } catch (const std::exception& error) {
      log::error("the io thread went on after: {}", error.what());
    }
  }
}

void HttpServerImpl::accept() {
  acceptor_.async_accept(
      [this](ErrorCode error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void HttpServerImpl::on_accept(ErrorCode error, tcp::socket socket) {
  if (error == asio::error::operation_aborted) return;
  if (error) {
    log::warning("cannot accept a connection: {}", error.message());
    accept_pause_.expires_after(std::chrono::milliseconds(kAcceptPauseMilliseconds));
    accept_pause_.async_wait([this](ErrorCode aborted) {
      if (!aborted) accept();
    });
    return;
  }
  accept();
  if (static_cast<int>(connections_.size()) >= options_.max_connections) {
    log::warning("a connection is refused: {} are open, the limit", connections_.size());
    return;
  }
  ErrorCode ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.non_blocking(true, ignored);
  auto connection = std::make_shared<Connection>(std::move(socket), *this);
  connections_.emplace(connection.get(), connection);
  connection->start();
}

void HttpServerImpl::schedule_tick() {
  ticker_.expires_after(std::chrono::nanoseconds(options_.tick));
  ticker_.async_wait([this](ErrorCode aborted) {
    if (!aborted) tick();
  });
}

void HttpServerImpl::tick() {
  schedule_tick();
  const Nanos time = now();
  handler_.tick(time);
  for (const auto& connection : all_connections()) connection->tick(time);
  if (!draining_) return;
  if (at_drain_timeout_ && time > drain_deadline_) std::exchange(at_drain_timeout_, nullptr)();
  if (time > drain_deadline_ + kLastReplies) stop();
  end_drain_when_quiet();
}

void HttpServerImpl::when_readable(int fd, Task task) {
  // A duplicate: the descriptor itself stays its owner's.
  auto& watched = watched_.emplace_back(
      std::make_unique<asio::posix::stream_descriptor>(context_, ::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
  watched->async_wait(asio::posix::stream_descriptor::wait_read, [task = std::move(task)](ErrorCode error) {
    if (!error) task();
  });
}

void HttpServerImpl::drain(Nanos timeout, Task at_timeout) {
  if (draining_) return;
  draining_ = true;
  drain_deadline_ = now() + timeout;
  at_drain_timeout_ = std::move(at_timeout);
  for (const auto& connection : all_connections()) {
    if (connection->idle()) connection->close();
  }
  end_drain_when_quiet();
}

void HttpServerImpl::request_done() {
  // Not at once: the caller is in the middle of a connection's change of state.
  if (!draining_ || std::exchange(checking_quiet_, true)) return;
  asio::post(context_, [this] {
    checking_quiet_ = false;
    end_drain_when_quiet();
  });
}

void HttpServerImpl::end_drain_when_quiet() {
  for (const auto& [key, connection] : connections_) {
    if (connection->busy()) return;
  }
  stop();
}

std::vector<std::shared_ptr<Connection>> HttpServerImpl::all_connections() const {
  std::vector<std::shared_ptr<Connection>> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(connection);
  return all;
}

std::string_view HttpServerImpl::date() {
  const std::time_t second = std::time(nullptr);
  if (second != date_second_) {
    date_second_ = second;
    date_ = fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(second));
  }
  return date_;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options, HttpHandler& handler) {
  auto server = std::make_unique<HttpServerImpl>(options, handler);
  SLUICE_RETURN_IF_ERROR(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace sluice::server
