#include "server/page.h"

#include <fmt/format.h>

#include "server/json_text.h"

namespace sluice::server {
namespace {

std::string html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

constexpr std::string_view kPage = R"(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sluice: {0}</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }}
  pre {{ padding: 1rem; overflow-x: auto; border: 1px solid; border-radius: .5rem; }}
</style>
<h1>Sluice</h1>
<p>This server answers OpenAI clients with the model <b>{0}</b>. Try it:</p>
<pre>curl -N http://<span id="host">127.0.0.1:8000</span>/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{{"model":{1},"stream":true,"messages":[{{"role":"user","content":"Who are you?"}}]}}'</pre>
<p>Its state: <a href="/ready">/ready</a>, <a href="/health">/health</a>, <a href="/metrics">/metrics</a>,
<a href="/v1/models">/v1/models</a>.</p>
<script>document.getElementById('host').textContent = location.host;</script>
</html>
)";

}  // namespace

std::string front_page(const std::string& model) {
  return fmt::format(fmt::runtime(kPage), html(model), html(json_string(model)));
}

}  // namespace sluice::server
