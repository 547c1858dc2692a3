// Hostile templates and inputs end in an error: no hang, no exhausted stack or memory, no leak (under ASan).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "test_files.h"
#include "text/chat_template.h"

namespace sluice::text {
namespace {

using nlohmann::ordered_json;

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// The error, or the start of the output.
std::string outcome(const std::string& source, const ordered_json& context = ordered_json::object()) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status().message();
  const auto rendered = (*parsed)->render(context);
  return rendered.ok() ? "OUTPUT " + rendered->substr(0, 100) : rendered.status().message();
}

TEST(JinjaLimits, EndlessWorkIsAnError) {
  using testing::HasSubstr;
  const std::string work = "more work than the limit allows";
  EXPECT_THAT(outcome("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
              HasSubstr(work));
  EXPECT_THAT(outcome("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("recursion depth"));
  EXPECT_THAT(
      outcome("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"),
      HasSubstr(work));
  EXPECT_THAT(outcome("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("recursion depth"));
  EXPECT_THAT(outcome("{{ range(1000000000) }}"), HasSubstr("Range too big"));
}

TEST(JinjaLimits, GrowingValuesAreAnError) {
  const std::string grow =
      "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
  EXPECT_THAT(outcome(grow), testing::HasSubstr("limit"));
  EXPECT_THAT(outcome("{{ 'x' * 100000000000 }}"), testing::HasSubstr("repetition"));
  EXPECT_THAT(outcome("{{ ('x' * 10000000) ~ ('x' * 10000000) }}"), testing::HasSubstr("limit"));
  EXPECT_THAT(outcome("{{ ('x' * 100000)|replace('', 'y' * 100000) }}"), testing::HasSubstr("limit"));
  EXPECT_THAT(outcome("{{ 'x'.center(10 ** 12) }}"), testing::HasSubstr("width"));
  EXPECT_THAT(outcome("{{ '%999999999d' % 1 }}"), testing::HasSubstr("width"));
  EXPECT_THAT(outcome("{{ '{:>99999999}'.format(1) }}"), testing::HasSubstr("not supported"));
  EXPECT_THAT(
      outcome(
          "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
      testing::HasSubstr("limit"));
  // A value that is small in memory and endless when written.
  EXPECT_THAT(outcome("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] "
                      "%}{% endfor %}{{ ns.x }}"),
              testing::HasSubstr("limit"));
  EXPECT_THAT(
      outcome("{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}"
              "{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ ns.x == ns.y }}"),
      testing::HasSubstr("limit"));
  EXPECT_THAT(outcome("{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) "
                      "%}{% endfor %}{{ {ns.x: 1} }}"),
              testing::HasSubstr("limit"));
  EXPECT_THAT(outcome("{{ 9223372036854775807 + 1 }}"), testing::HasSubstr("64 bits"));
  EXPECT_THAT(outcome("{{ 10 ** 10000000000 }}"), testing::HasSubstr("64 bits"));
}

TEST(JinjaLimits, DeepNestingIsAnError) {
  for (const auto& [open, close] :
       {std::pair("(", ")"), std::pair("[", "]"), std::pair("{1:", "}"), std::pair("-", ""),
        std::pair("not ", ""), std::pair("f(", ")"), std::pair("a[", "]"), std::pair("x if y else ", "")}) {
    const std::string source = "{{ " + repeated(open, 100'000) + "1" + repeated(close, 100'000) + " }}";
    EXPECT_THAT(outcome(source), testing::HasSubstr("nested more than")) << open;
  }
  EXPECT_THAT(outcome(repeated("{% if a %}", 50'000)), testing::HasSubstr("nested more than"));
  EXPECT_THAT(outcome("{{ 1" + repeated(" + 1", 100'000) + " }}"), testing::HasSubstr("recursion depth"));
  EXPECT_THAT(outcome("{{ a" + repeated(".a", 100'000) + " }}"), testing::HasSubstr("recursion depth"));
  EXPECT_THAT(outcome("{{ a" + repeated("|list", 100'000) + " }}"), testing::HasSubstr("recursion depth"));
  EXPECT_THAT(outcome("{% filter upper" + repeated("|upper", 100'000) + " %}{% endfilter %}"),
              testing::HasSubstr("recursion depth"));
  EXPECT_THAT(
      outcome("{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      testing::HasSubstr("nested more than"));
  ordered_json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = ordered_json::array({deep});
  EXPECT_THAT(outcome("{{ x }}", {{"x", deep}}), testing::HasSubstr("nested"));
  // What real templates do stays far from the limits.
  EXPECT_THAT(outcome("{{ ''" + repeated(" + 'a'", 200) + " }}"), testing::StartsWith("OUTPUT aaa"));
}

// Values that refer to themselves are freed at the end: LeakSanitizer watches.
TEST(JinjaLimits, CyclesAreFreed) {
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.list = [ns] %}ok"),
            "OUTPUT ok");
  EXPECT_EQ(outcome("{% macro m() %}{% macro n() %}{% endmacro %}{% endmacro %}{{ m() }}ok"), "OUTPUT ok");
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% macro m() %}{% set ns.f = caller %}{% endmacro %}"
                    "{% for i in [1] %}{% call m() %}{% endcall %}{% set ns.l = loop %}{% endfor %}ok"),
            "OUTPUT ok");
}

// Any text as a template: an answer, never a crash.
TEST(JinjaLimits, RandomTemplatesAreAnswered) {
  const std::vector<std::string> pieces = {
      "{{",   "}}",      "{%",       "%}",    "{#",        "#}",     "-",    " if ",     " for ",
      " in ", " endif ", " endfor ", " set ", " macro ",   "x",      "(",    ")",        "[",
      "]",    "{",       "}",        "'",     "\"",        "|",      ".",    ",",        "=",
      "==",   "1",       "1.5",      "~",     "and",       "is",     "not",  "loop",     "range",
      "\n",   " ",       "upper",    "join",  "raw",       "endraw", "*",    "**",       "%",
      ":",    "\\",      "é",        "else",  "namespace", "tojson", "else", " endset ", "0x"};
  std::mt19937 random(8);
  for (int round = 0; round < 20'000; ++round) {
    std::string source = random() % 2 == 0 ? "{{ " : "{% ";
    for (size_t n = random() % 14; n > 0; --n) source += pieces[random() % pieces.size()];
    source += random() % 2 == 0 ? " }}" : " %}";
    outcome(source, {{"x", {1, "a"}}});
  }
}

TEST(JinjaLimits, ManyThreadsShareOneTemplate) {
  const auto parsed = ChatTemplate::parse(read_text(data_path("templates/thinking.jinja")));
  ASSERT_TRUE(parsed.ok());
  const auto context = ordered_json::parse(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]})");
  const auto expected = (*parsed)->render(context);
  ASSERT_TRUE(expected.ok());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto rendered = (*parsed)->render(context);
        if (!rendered.ok() || *rendered != *expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace sluice::text
