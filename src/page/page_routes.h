#pragma once
// The page at "/" and its live figures: the chat and the view of the engine. The files in this folder are
// compiled into the program; nothing is read from disk or from another origin.
//
//   add_page_routes(router, "deepseek-v3", history, readiness);      // GET /, /page/app.js, ..., /stats
//
// Called once while the router is built; the history outlives the router. The handlers are thread-safe.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "http/router.h"
#include "page/stats_history.h"

namespace fathom::page {

// One file; those of page_files() have static storage.
struct PageFile {
  std::string_view path;          // "/page/app.js"
  std::string_view content_type;  // "text/javascript; charset=utf-8"
  std::string_view etag;          // with its quotes
  std::string_view bytes;
};
std::span<const PageFile> page_files();

// What is at "/": index.html with the served model's name in it, so that a message can be sent before any other
// answer has come. It names the model to those only who may ask for it: the page is behind the key.
class IndexPage {
 public:
  explicit IndexPage(std::string_view model_name);
  // Its etag tells models apart; the views live as long as this.
  PageFile file() const;

 private:
  std::string bytes_, etag_;
};

// What /readyz says: {"status": "loading", ...}. Called on any thread.
using ReadinessSource = std::function<json::Value()>;

void add_page_routes(http::Router& router, std::string_view model_name, const StatsHistory& history,
                     ReadinessSource readiness);

// The whole answer for a file, or 304 when `if_none_match` names its etag.
http::Response page_response(const PageFile& file, std::string_view if_none_match);
// GET /stats; `since` is the query parameter's text, empty = all samples. The figures, with "readiness" beside them.
http::Response stats_response(const StatsHistory& history, std::string_view since,
                              json::Value readiness);

}  // namespace fathom::page
