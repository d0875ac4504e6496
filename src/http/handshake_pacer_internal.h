#pragma once
// HandshakePacer: the turns of TLS handshakes on one event loop. A hello costs its sender nothing and the server up
// to some milliseconds of arithmetic, so a burst of them would hold up every stream of the loop. Handshakes
// begin one at a time, and behind each the loop does other things for as long as it took: they have half of its time at
// most. Addresses take turns, so that a flood from one does not make others wait for all of it.
//
//   HandshakePacer pacer(io);
//   pacer.add("192.0.2.7", [self] { self->begin_handshake(); });      // the hello has arrived
//
// Used on its loop's thread. `begin` starts an operation whose arithmetic runs in the next handler of the loop.
// Only .cc files of this module include it (it brings Asio).

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>

namespace fathom::http {

class HandshakePacer {
 public:
  explicit HandshakePacer(boost::asio::io_context& io) : io_(io), pause_(io) {}

  void add(const std::string& address, std::function<void()> begin);
  // Forgets those that wait and begins no more.
  void stop();

 private:
  void begin_next();
  void rest(std::chrono::steady_clock::duration taken);

  boost::asio::io_context& io_;
  boost::asio::steady_timer pause_;
  std::unordered_map<std::string, std::deque<std::function<void()>>>
      waiting_;                    // by address, none empty
  std::deque<std::string> turns_;  // the keys of waiting_, whose turn is next first
  bool is_busy_ = false, is_stopped_ = false;
};

}  // namespace fathom::http
