// The HTTP layer alone, with a handler that echoes: what clients may and may not do on a connection.
#include "server/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "raw_client.h"

namespace sluice::server {
namespace {

using testing::HasSubstr;

// "/echo" replies with the body, "/hold" keeps its responders for the test, anything below "/refuse" is
// refused at its head, "/throw" throws and "/forget" lets go without an answer.
class TestHandler : public HttpHandler {
 public:
  std::optional<HttpReply> refuse(const HttpRequest& head) override {
    if (head.path.starts_with("/refuse")) return HttpReply{.status = 403, .body = "refused"};
    return {};
  }
  void handle(HttpRequest request, std::shared_ptr<Responder> responder) override {
    if (request.path == "/throw") throw std::runtime_error("thrown");
    if (request.path == "/forget") return;
    if (request.path != "/hold") {
      return responder->reply(
          {.body = request.method + " " + request.path + "?" + request.query + " " + request.body});
    }
    responder->on_disconnect([this] {
      std::lock_guard lock(mutex_);
      ++disconnected_;
      changed_.notify_all();
    });
    std::lock_guard lock(mutex_);
    held_.push_back(std::move(responder));
    changed_.notify_all();
  }
  HttpReply protocol_error(int status, std::string message) override {
    return {.status = status, .content_type = "text/plain", .body = std::move(message)};
  }
  void finished(const HttpAccess& access) override {
    std::lock_guard lock(mutex_);
    finished_.push_back(access);
    changed_.notify_all();
  }
  void tick(Nanos) override {}

  bool wait_held(size_t count) {
    return wait([&] { return held_.size() >= count; });
  }
  bool wait_disconnected(int count) {
    return wait([&] { return disconnected_ >= count; });
  }
  std::vector<HttpAccess> wait_finished(size_t count) {
    wait([&] { return finished_.size() >= count; });
    std::lock_guard lock(mutex_);
    return finished_;
  }
  std::shared_ptr<Responder> held(size_t index) {
    std::lock_guard lock(mutex_);
    return held_.at(index);
  }
  void let_go() {
    std::lock_guard lock(mutex_);
    held_.clear();
  }

 private:
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Responder>> held_;
  std::vector<HttpAccess> finished_;
  int disconnected_ = 0;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { log::set_level(log::Level::error); }
  ~HttpServerTest() override { stop(); }

  void start() {
    auto server = HttpServer::listen(options_, handler_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
    post_ = server_->poster();
    thread_ = std::thread([this] { server_->run(); });
  }
  void stop() {
    if (!thread_.joinable()) return;
    on_io([this] {
      handler_.let_go();
      server_->stop();
    });
    thread_.join();
    server_.reset();
  }
  // Runs the task on the io thread and waits for it.
  void on_io(std::function<void()> task) {
    std::atomic<bool> done{false};
    post_([&] {
      task();
      done = true;
      done.notify_all();
    });
    done.wait(false);
  }
  RawClient client(int receive_buffer = 0) { return RawClient(server_->port(), receive_buffer); }

  HttpOptions options_ = [] {
    HttpOptions options;
    options.tick = milliseconds(20);
    return options;
  }();
  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
  std::function<void(HttpServer::Task)> post_;
  std::thread thread_;
};

TEST_F(HttpServerTest, KeepsAConnectionForSeveralRequests) {
  start();
  RawClient client = this->client();
  for (int i = 0; i < 3; ++i) {
    client.send(post_request(fmt::format("/echo/{}?q=1", i), "body"));
    const auto reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, fmt::format("POST /echo/{}?q=1 body", i));
    EXPECT_EQ(reply.header("connection"), "");
    EXPECT_THAT(std::string(reply.header("date")), testing::EndsWith(" GMT"));
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  RawClient client = this->client();
  std::string all;
  for (int i = 0; i < 50; ++i)
    all += post_request(fmt::format("/{}", i), std::string(static_cast<size_t>(i), 'x'));
  client.send(all);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.read_reply().body,
              fmt::format("POST /{}? {}", i, std::string(static_cast<size_t>(i), 'x')));
  }
}

TEST_F(HttpServerTest, ARequestMayComeByteByByte) {
  start();
  RawClient client = this->client();
  for (const char c : post_request("/echo", "slow")) client.send({&c, 1});
  EXPECT_EQ(client.read_reply().body, "POST /echo? slow");
}

TEST_F(HttpServerTest, TakesChunkedBodies) {
  start();
  RawClient client = this->client();
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.send("2;name=value\r\nde\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(client.read_reply().body, "POST /echo? abcde");
  client.send(get_request("/again"));
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  start();
  RawClient client = this->client();
  client.send("HEAD /echo HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto reply = client.read_reply(true);
  EXPECT_EQ(reply.header("content-length"), std::to_string(std::string("HEAD /echo? ").size()));
  client.send(get_request("/next"));
  EXPECT_EQ(client.read_reply().body, "GET /next? ");
}

TEST_F(HttpServerTest, Http10ClosesUnlessAskedToStay) {
  start();
  RawClient closing = client();
  closing.send("GET /a HTTP/1.0\r\n\r\n");
  const auto reply = closing.read_reply();
  EXPECT_THAT(reply.head, testing::StartsWith("HTTP/1.0 200 OK\r\n"));
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(closing.wait_closed());

  RawClient staying = client();
  staying.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(staying.read_reply().header("connection"), "keep-alive");
  staying.send("GET /b HTTP/1.0\r\n\r\n");
  EXPECT_EQ(staying.read_reply().body, "GET /b? ");
}

TEST_F(HttpServerTest, ConnectionCloseIsHonoured) {
  start();
  RawClient client = this->client();
  client.send(get_request("/a", "Connection: close\r\n"));
  EXPECT_EQ(client.read_reply().header("connection"), "close");
  EXPECT_TRUE(client.wait_closed());
}

TEST_F(HttpServerTest, StreamsInChunksAndToHttp10AsIs) {
  start();
  RawClient chunked = client();
  RawClient plain = client();
  chunked.send(get_request("/hold"));
  ASSERT_TRUE(handler_.wait_held(1));
  plain.send("GET /hold HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(handler_.wait_held(2));
  for (const size_t i : {0u, 1u}) {
    on_io([&] {
      handler_.held(i)->begin_stream("text/event-stream", {{"X-More", "yes"}});
      handler_.held(i)->write("one");
      handler_.held(i)->write("");
    });
    on_io([&] {
      handler_.held(i)->write("twotwotwotwotwotwo");
      handler_.held(i)->end_stream();
    });
  }
  EXPECT_EQ(chunked.read_until("one\r\n").substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_EQ(chunked.read_until("0\r\n\r\n"), "12\r\ntwotwotwotwotwotwo\r\n0\r\n\r\n");
  chunked.send(get_request("/next"));
  EXPECT_EQ(chunked.read_reply().status, 200);
  const auto reply = plain.read_reply();
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_EQ(reply.header("x-more"), "yes");
  EXPECT_EQ(reply.body, "onetwotwotwotwotwotwo");
}

// Nothing is left to write when it ends: the end itself must close the connection.
TEST_F(HttpServerTest, AnHttp10StreamEndsAfterItsLastPiece) {
  start();
  RawClient client = this->client();
  client.send("GET /hold HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(handler_.wait_held(1));
  on_io([&] {
    handler_.held(0)->begin_stream("text/plain", {});
    handler_.held(0)->write("piece");
  });
  EXPECT_THAT(client.read_until("piece"), HasSubstr("200 OK"));
  on_io([&] { handler_.held(0)->end_stream(); });
  EXPECT_TRUE(client.wait_closed());
  EXPECT_TRUE(handler_.wait_finished(1).at(0).complete);
}

TEST_F(HttpServerTest, EchoesTheRequestIdOrDrawsOne) {
  start();
  RawClient client = this->client();
  client.send(get_request("/a", "X-Request-Id: abc-1\r\n"));
  EXPECT_EQ(client.read_reply().header("x-request-id"), "abc-1");
  client.send(get_request("/a", "X-Request-Id: a b\r\n"));
  EXPECT_THAT(std::string(client.read_reply().header("x-request-id")), testing::StartsWith("req_"));
  client.send(get_request("/a"));
  EXPECT_EQ(client.read_reply().header("x-request-id").size(), 36u);
}

struct Malformed {
  std::string name;
  std::string bytes;
  int status;
  std::string says;
};

TEST_F(HttpServerTest, RefusesWhatIsNotProperAndCloses) {
  options_.max_head_bytes = 4096;
  options_.max_body_bytes = 1000;
  start();
  const std::vector<Malformed> cases = {
      {"not HTTP", "\x16\x03\x01 hello\r\n\r\n", 400, "not a proper"},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/1.1"},
      {"no Host", "GET / HTTP/1.1\r\n\r\n", 400, "Host"},
      {"header flood", "GET / HTTP/1.1\r\nHost: t\r\n" + std::string(5000, 'a') + ": b\r\n\r\n", 431, "4096"},
      {"many headers",
       [] {
         std::string head = "GET / HTTP/1.1\r\nHost: t\r\n";
         for (int i = 0; i < 1000; ++i) head += fmt::format("x-{}: 1\r\n", i);
         return head + "\r\n";
       }(),
       431, "4096"},
      {"long target", "GET /" + std::string(5000, 'a') + " HTTP/1.1\r\nHost: t\r\n\r\n", 431, "4096"},
      {"large body", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n", 413, "1000"},
      {"large chunked body",
       "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3ff\r\n" + std::string(0x3ff, 'x') +
           "\r\n",
       413, "1000"},
      {"huge length", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999\r\n\r\n", 400,
       "proper"},
      {"negative length", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n", 400, "proper"},
      {"two lengths", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400,
       "proper"},
      {"length and chunks",
       "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "proper"},
      {"bad chunk size", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400,
       "proper"},
      {"two codings", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501,
       "Transfer-Encoding"},
      {"unknown coding", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n", 501,
       "Transfer-Encoding"},
      {"folded header", "GET / HTTP/1.1\r\nHost: t\r\nX: a\rb\r\n\r\n", 400, "proper"},
      {"unknown Expect", "POST / HTTP/1.1\r\nHost: t\r\nExpect: wonders\r\nContent-Length: 1\r\n\r\n", 417,
       "wonders"},
      {"refused at the head", "POST /refuse HTTP/1.1\r\nHost: t\r\nContent-Length: 900\r\n\r\n", 403,
       "refused"},
  };
  for (const Malformed& item : cases) {
    SCOPED_TRACE(item.name);
    RawClient client = this->client();
    client.send(item.bytes);
    const auto reply = client.read_reply();
    EXPECT_EQ(reply.status, item.status) << reply.head;
    EXPECT_EQ(reply.header("connection"), "close");
    EXPECT_THAT(reply.body, HasSubstr(item.says));
    client.shut_down_sending();
    EXPECT_TRUE(client.wait_closed());
  }
  RawClient client = this->client();
  client.send(get_request("/still-there"));
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(HttpServerTest, ARefusalWithoutBodyKeepsTheConnection) {
  start();
  RawClient client = this->client();
  client.send(get_request("/refuse"));
  EXPECT_EQ(client.read_reply().status, 403);
  client.send(get_request("/next"));
  EXPECT_EQ(client.read_reply().status, 200);
}

// The client is still sending when it is refused: it must be able to read why.
TEST_F(HttpServerTest, ARefusedUploadStillReadsItsReply) {
  start();
  RawClient client = this->client();
  client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 20000000\r\n\r\n");
  client.send(std::string(20'000'000, 'x'));
  EXPECT_EQ(client.read_reply().status, 413);
}

TEST_F(HttpServerTest, ContinuesAnExpectantClient) {
  start();
  RawClient client = this->client();
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_EQ(client.read_reply().body, "POST /echo? ab");
  client.send("POST /refuse HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 403);
}

TEST_F(HttpServerTest, NoticesAClientThatLeaves) {
  start();
  RawClient waiting = client();
  RawClient half_closed = client();
  RawClient resetting = client();
  RawClient streaming = client();
  for (RawClient* client : {&waiting, &half_closed, &resetting, &streaming})
    client->send(get_request("/hold"));
  ASSERT_TRUE(handler_.wait_held(4));
  on_io([&] {
    for (size_t i = 0; i < 4; ++i) handler_.held(i)->begin_stream("text/plain", {});
  });
  waiting.close();
  ASSERT_TRUE(handler_.wait_disconnected(1));
  half_closed.shut_down_sending();
  ASSERT_TRUE(handler_.wait_disconnected(2));
  resetting.reset();
  ASSERT_TRUE(handler_.wait_disconnected(3));
  on_io([&] {
    for (size_t i = 0; i < 4; ++i) handler_.held(i)->write("x");
  });
  streaming.read_until("x");
  streaming.close();
  ASSERT_TRUE(handler_.wait_disconnected(4));
  for (const HttpAccess& access : handler_.wait_finished(4)) EXPECT_FALSE(access.complete);
}

// It has sent so much ahead that the server has stopped reading: its leaving must be seen all the same.
TEST_F(HttpServerTest, NoticesThatAClientLeavesWhichIsFarAhead) {
  options_.max_pipelined_bytes = 1000;
  start();
  RawClient client = this->client();
  client.send(get_request("/hold"));
  ASSERT_TRUE(handler_.wait_held(1));
  client.send(std::string(20'000, 'x'));
  client.close();
  EXPECT_TRUE(handler_.wait_disconnected(1));
}

// An answer that is complete goes out in full to a client that has only stopped sending.
TEST_F(HttpServerTest, AHalfClosedClientGetsWhatWasAnswered) {
  start();
  RawClient client = this->client();
  client.send(get_request("/a") + get_request("/b"));
  client.shut_down_sending();
  EXPECT_EQ(client.read_reply().body, "GET /a? ");
  EXPECT_EQ(client.read_reply().body, "GET /b? ");
  EXPECT_TRUE(client.wait_closed());
}

TEST_F(HttpServerTest, ASlowReaderIsCutOffAtItsBufferAndOthersGoOn) {
  options_.max_unsent_bytes = 50'000;
  start();
  RawClient slow = client(1);
  RawClient quick = client();
  slow.send(get_request("/hold"));
  ASSERT_TRUE(handler_.wait_held(1));
  on_io([&] { handler_.held(0)->begin_stream("text/plain", {}); });
  const std::string piece(10'000, 'x');
  // The kernel's own buffers take some megabytes at most.
  for (int i = 0; i < 10'000 && handler_.wait_finished(0).empty(); ++i) {
    on_io([&] { handler_.held(0)->write(piece); });
  }
  EXPECT_TRUE(handler_.wait_disconnected(1));
  quick.send(get_request("/a"));
  EXPECT_EQ(quick.read_reply().status, 200);
}

TEST_F(HttpServerTest, AWholeReplyMayBeLargerThanAStreamsBuffer) {
  options_.max_unsent_bytes = 1000;
  start();
  RawClient client = this->client();
  const std::string body(2'000'000, 'x');
  client.send(post_request("/echo", body));
  EXPECT_EQ(client.read_reply().body.size(), body.size() + std::string("POST /echo? ").size());
}

TEST_F(HttpServerTest, AClientThatTakesNothingIsClosed) {
  options_.write_timeout = milliseconds(100);
  start();
  RawClient client = this->client(1);
  client.send(post_request("/echo", std::string(8'000'000, 'x')));
  const auto finished = handler_.wait_finished(1);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_FALSE(finished[0].complete);
}

TEST_F(HttpServerTest, HalfWrittenRequestsEndInTime) {
  options_.head_timeout = milliseconds(100);
  options_.body_timeout = milliseconds(100);
  options_.idle_timeout = milliseconds(100);
  start();
  RawClient silent = client();
  EXPECT_TRUE(silent.wait_closed());
  RawClient half_head = client();
  half_head.send("GET / HTTP/1.1\r\nHos");
  EXPECT_EQ(half_head.read_reply().status, 408);
  RawClient half_body = client();
  half_body.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc");
  const auto reply = half_body.read_reply();
  EXPECT_EQ(reply.status, 408);
  EXPECT_THAT(reply.body, HasSubstr("body"));
}

TEST_F(HttpServerTest, AFaultOfTheHandlerIsA500) {
  start();
  RawClient client = this->client();
  client.send(get_request("/throw") + get_request("/forget") + get_request("/fine"));
  EXPECT_EQ(client.read_reply().status, 500);
  EXPECT_EQ(client.read_reply().status, 500);
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(HttpServerTest, AResponderMayOutliveItsConnection) {
  start();
  RawClient client = this->client();
  client.send(get_request("/hold"));
  ASSERT_TRUE(handler_.wait_held(1));
  client.close();
  ASSERT_TRUE(handler_.wait_disconnected(1));
  on_io([&] {
    handler_.held(0)->begin_stream("text/plain", {});
    handler_.held(0)->write("x");
    handler_.held(0)->end_stream();
    handler_.held(0)->reply({});
  });
}

TEST_F(HttpServerTest, ThePosterMayOutliveTheServer) {
  start();
  stop();
  post_([] { FAIL() << "a task ran after the server's end"; });
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondTheLimit) {
  options_.max_connections = 2;
  start();
  RawClient first = client();
  RawClient second = client();
  for (RawClient* client : {&first, &second}) {
    client->send(get_request("/a"));
    EXPECT_EQ(client->read_reply().status, 200);
  }
  RawClient third = client();
  EXPECT_TRUE(third.wait_closed());
  first.send(get_request("/a"));
  EXPECT_EQ(first.read_reply().status, 200);
}

TEST_F(HttpServerTest, SaysWhyItCannotListen) {
  start();
  TestHandler other;
  HttpOptions same = options_;
  same.port = server_->port();
  const auto second = HttpServer::listen(same, other);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(),
              HasSubstr(fmt::format("127.0.0.1:{}: Address already in use", same.port)));
  same.host = "no such host";
  EXPECT_FALSE(HttpServer::listen(same, other).ok());
}

TEST_F(HttpServerTest, DrainFinishesWhatIsInProgressAndClosesTheRest) {
  start();
  RawClient idle = client();
  RawClient busy = client();
  idle.send(get_request("/a"));
  idle.read_reply();
  busy.send(get_request("/hold"));
  ASSERT_TRUE(handler_.wait_held(1));
  on_io([&] { server_->drain(seconds(60), [] {}); });
  EXPECT_TRUE(idle.wait_closed());
  RawClient late = client();
  late.send(get_request("/refuse"));
  EXPECT_EQ(late.read_reply().status, 403);
  on_io([&] { handler_.held(0)->reply({.body = "done"}); });
  const auto reply = busy.read_reply();
  EXPECT_EQ(reply.body, "done");
  EXPECT_EQ(reply.header("connection"), "close");
  thread_.join();
}

TEST_F(HttpServerTest, DrainEndsAtItsTimeout) {
  start();
  RawClient busy = client();
  busy.send(get_request("/hold"));
  ASSERT_TRUE(handler_.wait_held(1));
  on_io([&] {
    server_->drain(milliseconds(50), [&] { handler_.held(0)->reply({.status = 503, .body = "too late"}); });
  });
  EXPECT_EQ(busy.read_reply().body, "too late");
  thread_.join();
}

}  // namespace
}  // namespace sluice::server
