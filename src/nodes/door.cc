#include "nodes/door.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/json.h"

namespace fathom::nodes {
namespace {

// The last digit is the version of what follows.
constexpr std::string_view kDoorMagic = "FathomN1";
constexpr size_t kNonceBytes = 32;
constexpr uint32_t kMaxWordsBytes = 16u << 20;

struct Hello {
  std::array<char, 8> magic = {};
  uint32_t node_rank = 0;
  uint32_t reserved = 0;
  std::array<char, kNonceBytes> nonce = {};
};
static_assert(sizeof(Hello) == 48);

template <class T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

template <class T>
Bytes plain_bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Hello new_hello(int node_rank) {
  Hello hello;
  std::memcpy(hello.magic.data(), kDoorMagic.data(), hello.magic.size());
  hello.node_rank = static_cast<uint32_t>(node_rank);
  const std::string nonce = random_bytes(kNonceBytes);
  std::memcpy(hello.nonce.data(), nonce.data(), kNonceBytes);
  return hello;
}

void check_magic(const Hello& hello) {
  const std::string_view magic(hello.magic.data(), hello.magic.size());
  if (magic == kDoorMagic) return;
  if (magic.substr(0, 7) == kDoorMagic.substr(0, 7))
    throw SocketError("speaks another version of the nodes' protocol, " + json::shown_text(magic) +
                      " instead of " + json::shown_text(kDoorMagic));
  throw SocketError("is no node of Fathom");
}

// Who says it, to whom: an answer fits neither the other role nor another connection.
Hmac::Digest proof(std::string_view key, std::string_view role, const Hello& node,
                   const Hello& head) {
  return Hmac(key).of({bytes_of(role), plain_bytes_of(node), plain_bytes_of(head)});
}

std::string key_of(std::string_view key, std::string_view purpose, const Hello& node,
                   const Hello& head) {
  const Hmac::Digest digest = proof(key, purpose, node, head);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Door::Door(Socket socket, int node_rank, std::string_view mine, std::string_view theirs)
    : socket_(std::move(socket)), node_rank_(node_rank), mine_(mine), theirs_(theirs) {}

Door Door::enter(Socket socket, std::string_view key, int node_rank, Deadline deadline) {
  const Hello node = new_hello(node_rank);
  socket.write(plain_bytes_of(node), deadline);
  Hello head;
  Hmac::Digest answer;
  socket.read(writable_bytes_of(head), deadline);
  check_magic(head);
  socket.read(answer, deadline);
  if (!same(answer, proof(key, "head", node, head)))
    throw SocketError("has another --cluster-key-file, or one of both has none");
  socket.write(proof(key, "node", node, head), deadline);
  return {std::move(socket), node_rank, key_of(key, "node tells", node, head),
          key_of(key, "head tells", node, head)};
}

Door Door::admit(Socket socket, std::string_view key, Deadline deadline) {
  Hello node;
  socket.read(writable_bytes_of(node), deadline);
  // Who speaks another version of it hears which one is spoken here.
  const Hello head = new_hello(0);
  socket.write(plain_bytes_of(head), deadline);
  check_magic(node);
  socket.write(proof(key, "head", node, head), deadline);
  Hmac::Digest answer;
  try {
    socket.read(answer, deadline);
  } catch (const SocketError&) {
    throw SocketError("gave no proof that it has the --cluster-key-file");
  }
  if (!same(answer, proof(key, "node", node, head)))
    throw SocketError("gave a wrong proof that it has the --cluster-key-file");
  return {std::move(socket), static_cast<int>(node.node_rank & 0xffff),
          key_of(key, "head tells", node, head), key_of(key, "node tells", node, head)};
}

void Door::tell(const json::Value& words, Deadline deadline) {
  const std::string text = json::dump(words);
  const auto length = static_cast<uint32_t>(text.size());
  const uint64_t number = num_told_++;
  const Hmac::Digest tag = mine_.of({plain_bytes_of(number), bytes_of(text)});
  socket_.write(plain_bytes_of(length), deadline);
  socket_.write(tag, deadline);
  socket_.write(bytes_of(text), deadline);
}

json::Value Door::hear(Deadline deadline) {
  uint32_t length = 0;
  Hmac::Digest tag;
  socket_.read(writable_bytes_of(length), deadline);
  socket_.read(tag, deadline);
  if (length > kMaxWordsBytes) throw SocketError("sent what is no message");
  std::string text(length, '\0');
  socket_.read(std::as_writable_bytes(std::span(text)), deadline);
  const uint64_t number = num_heard_++;
  if (!same(tag, theirs_.of({plain_bytes_of(number), bytes_of(text)})))
    throw SocketError("sent a message that was changed on the way");
  Result<json::Value> words = json::parse(text);
  if (!words || !words->is_object()) throw SocketError("sent what is no message");
  return std::move(*words);
}

}  // namespace fathom::nodes
