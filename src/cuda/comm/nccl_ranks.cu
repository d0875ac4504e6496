#include "cuda/comm/nccl_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "comm/host_rows.h"
#include "cuda/comm/nccl_library.h"
#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {
namespace {

using comm::Link, comm::LinkFailure;
using tensor::DType, tensor::Tensor;
using Bytes = std::vector<std::byte>;

constexpr std::chrono::milliseconds kPiece(100);

// What a node says of itself before the ranks meet.
struct Introduction {
  cudaUUID_t gpu;
  std::array<char, 32> nccl;
};

template <class T>
Bytes bytes_of(const T& value) {
  Bytes bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// What was enqueued in place: the same memory is read and written.
struct Piece {
  char* data = nullptr;
  size_t bytes = 0;
};

class NcclRanks : public comm::Group {
 public:
  NcclRanks(const std::string& name, int device, const comm::NodeRanksConfig& config,
            const NcclLibrary& library);
  ~NcclRanks() override { nccl_.destroy(comm_); }

  comm::Communicator& of(int rank) override {
    FATHOM_CHECK(rank == member_.rank(), "rank " << rank << " is elsewhere");
    return member_;
  }
  int size() const override { return host_.size(); }
  std::string failure() const override;

 private:
  class Member : public comm::Communicator {
   public:
    Member(NcclRanks& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return group_.size(); }
    void all_reduce(const Tensor& t, ops::Stream& stream) override;
    void all_gather(const Tensor& whole, int axis, ops::Stream& stream) override;
    void all_gather_rows(const Tensor& whole, std::span<const int64_t> starts,
                         ops::Stream& stream) override;
    void reduce_scatter_rows(const Tensor& whole, std::span<const int64_t> starts,
                             ops::Stream& stream) override;
    void barrier() override { group_.host_.of(rank_).barrier(); }

   private:
    void gather_columns(const Tensor& whole, int axis, ops::Stream& stream);
    // [rank]; empty pieces too.
    std::vector<Piece> pieces_of(const Tensor& whole, std::span<const int64_t> starts) const;
    void gather(const std::vector<Piece>& pieces, ops::Stream& stream);
    void check_sum(const Tensor& t) const;
    void check(NcclResult result, const char* what) const;

    NcclRanks& group_;
    const int rank_;
  };

  // Who has which GPU, told to node 0, which tells all with what they meet by, or why they cannot.
  NcclId agree(const Introduction& own);
  NcclId invite(const Introduction& own);
  Bytes hear(int node) const;
  void meet(const NcclId& id, int device);
  void look_at_links() const;

  const std::string name_;
  const comm::NodeRanksConfig config_;
  const NcclFunctions nccl_;
  comm::NodeRanks host_;  // for barrier()
  NcclComm comm_ = nullptr;
  Member member_;
};

Introduction introduction_of(int device, const std::string& nccl) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "describe itself");
  Introduction own{.gpu = properties.uuid, .nccl = {}};
  nccl.copy(own.nccl.data(), own.nccl.size() - 1);
  return own;
}

NcclRanks::NcclRanks(const std::string& name, int device, const comm::NodeRanksConfig& config,
                     const NcclLibrary& library)
    : name_(name),
      config_(config),
      nccl_(library.functions),
      host_(name, config),
      member_(*this, config.starts.at(static_cast<size_t>(config.node))) {
  try {
    meet(agree(introduction_of(device, library.name)), device);
  } catch (const LinkFailure& failure) {
    throw StartupError(failure.what());
  }
  FATHOM_LOG(kInfo, "comm", "collective library", {{"group", name_}, {"opened", library.name}});
}

void NcclRanks::look_at_links() const {
  for (const Link* link : config_.links)
    if (link != nullptr && !link->failure().empty()) throw LinkFailure(link->failure());
}

Bytes NcclRanks::hear(int node) const {
  while (true) {
    auto message = config_.links[static_cast<size_t>(node)]->receive_for(config_.channel, kPiece);
    if (message) return *std::move(message);
    look_at_links();
  }
}

NcclId NcclRanks::agree(const Introduction& own) {
  if (config_.node == 0) return invite(own);
  config_.links[0]->send(config_.channel, bytes_of(own));
  const Bytes message = hear(0);
  NcclId id{};
  if (message.size() != sizeof(id))
    throw LinkFailure("what came from rank 0 of " + name_ + " is no id of NCCL's");
  std::memcpy(&id, message.data(), sizeof(id));
  return id;
}

NcclId NcclRanks::invite(const Introduction& own) {
  std::vector<Introduction> all = {own};
  for (int node = 1; node < std::ssize(config_.links); ++node) {
    const Bytes message = hear(node);
    const std::string rank = "rank " + std::to_string(node);
    Introduction other{};
    if (message.size() != sizeof(other))
      throw LinkFailure("what came from " + rank + " of " + name_ + " is no word of its GPU");
    std::memcpy(&other, message.data(), sizeof(other));
    other.nccl.back() = '\0';
    if (other.nccl != own.nccl)
      throw StartupError(rank + " of " + name_ + " has " + other.nccl.data() + ", rank 0 has " +
                         own.nccl.data());
    for (size_t i = 0; i < all.size(); ++i)
      if (std::memcmp(&all[i].gpu, &other.gpu, sizeof(other.gpu)) == 0)
        throw StartupError("rank " + std::to_string(i) + " and " + rank + " of " + name_ +
                           " have the same GPU: give each process one of its own "
                           "(CUDA_VISIBLE_DEVICES)");
    all.push_back(other);
  }
  NcclId id{};
  const NcclResult made = nccl_.make_id(&id);
  if (made != kNcclSuccess)
    throw StartupError(std::string("NCCL does not start: ") + nccl_.error_words(made));
  for (Link* link : config_.links)
    if (link != nullptr) link->send(config_.channel, bytes_of(id));
  return id;
}

// NCCL waits for ranks that will never come, so another thread does, which is left behind then.
void NcclRanks::meet(const NcclId& id, int device) {
  struct Met {
    NcclResult result = kNcclSuccess;
    NcclComm comm = nullptr;
  };
  std::promise<Met> promise;
  std::future<Met> met = promise.get_future();
  std::thread([promise = std::move(promise), nccl = nccl_, id, device, size = size(),
               rank = member_.rank()]() mutable {
    Met done;
    check(cudaSetDevice(device), "be used by a thread");
    done.result = nccl.init_rank(&done.comm, size, id, rank);
    promise.set_value(done);
  }).detach();
  while (met.wait_for(kPiece) != std::future_status::ready) look_at_links();
  const Met done = met.get();
  if (done.result != kNcclSuccess) {
    look_at_links();
    throw StartupError(std::string("NCCL does not start: ") + nccl_.error_words(done.result));
  }
  comm_ = done.comm;
}

std::string NcclRanks::failure() const {
  NcclResult error = kNcclSuccess;
  const NcclResult asked = nccl_.async_error(comm_, &error);
  if (asked != kNcclSuccess) error = asked;
  if (error == kNcclSuccess || error == kNcclInProgress) return "";
  return "rank " + std::to_string(member_.rank()) + " of " + name_ +
         ": NCCL says: " + nccl_.error_words(error);
}

void NcclRanks::Member::check(NcclResult result, const char* what) const {
  FATHOM_CHECK(result == kNcclSuccess, "NCCL could not " << what << " in " << group_.name_ << ": "
                                                         << group_.nccl_.error_words(result));
}

void check_gather(const Tensor& whole) {
  FATHOM_CHECK(whole.is_contiguous(), "pieces by NCCL of " << whole.describe());
}

void NcclRanks::Member::check_sum(const Tensor& t) const {
  FATHOM_CHECK((t.dtype() == DType::kBf16 || t.dtype() == DType::kF32) && t.is_contiguous(),
               "a sum by NCCL of " << t.describe());
}

NcclType sum_type(const Tensor& t) {
  return t.dtype() == DType::kBf16 ? kNcclBfloat16 : kNcclFloat32;
}

void NcclRanks::Member::all_reduce(const Tensor& t, ops::Stream& stream) {
  if (stream.is_measuring() || t.num_elements() == 0) return;
  check_sum(t);
  check(
      group_.nccl_.all_reduce(t.data(), t.data(), static_cast<size_t>(t.num_elements()),
                              sum_type(t), kNcclSum, group_.comm_, CudaStream::of(stream).handle()),
      "add");
}

void NcclRanks::Member::all_gather(const Tensor& whole, int axis, ops::Stream& stream) {
  comm::check_pieces(whole, axis, size());
  check_gather(whole);
  if (stream.is_measuring() || whole.num_elements() == 0) return;
  gather_columns(whole, axis, stream);
}

// Pieces that lie apart are added to zeros: bits of whole numbers, which no sum changes. That sends twice a gather's
// bytes and needs no memory.
void NcclRanks::Member::gather_columns(const Tensor& whole, int axis, ops::Stream& stream) {
  const cudaStream_t handle = CudaStream::of(stream).handle();
  int64_t rows = 1;
  for (int before = 0; before < axis; ++before) rows *= whole.dim(before);
  const int64_t row_bytes = whole.num_bytes() / rows, piece = row_bytes / size();
  const auto clear = [&](int64_t begin, int64_t end) {
    if (begin == end) return;
    cuda::check(
        cudaMemset2DAsync(static_cast<char*>(whole.data()) + begin, static_cast<size_t>(row_bytes),
                          0, static_cast<size_t>(end - begin), static_cast<size_t>(rows), handle),
        "clear memory");
  };
  clear(0, rank_ * piece);
  clear((rank_ + 1) * piece, row_bytes);
  const bool words = whole.num_bytes() % 4 == 0;
  check(group_.nccl_.all_reduce(whole.data(), whole.data(),
                                static_cast<size_t>(whole.num_bytes() / (words ? 4 : 1)),
                                words ? kNcclUint32 : kNcclUint8, kNcclSum, group_.comm_, handle),
        "gather columns");
}

std::vector<Piece> NcclRanks::Member::pieces_of(const Tensor& whole,
                                                std::span<const int64_t> starts) const {
  comm::check_starts(whole, starts, size());
  check_gather(whole);
  const int64_t row_bytes = whole.dim(0) == 0 ? 0 : whole.num_bytes() / whole.dim(0);
  std::vector<Piece> pieces;
  for (size_t rank = 0; rank + 1 < starts.size(); ++rank)
    pieces.push_back({.data = static_cast<char*>(whole.data()) + starts[rank] * row_bytes,
                      .bytes = static_cast<size_t>((starts[rank + 1] - starts[rank]) * row_bytes)});
  return pieces;
}

bool are_equal(const std::vector<Piece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const Piece& piece) { return piece.bytes == pieces[0].bytes; });
}

void NcclRanks::Member::gather(const std::vector<Piece>& pieces, ops::Stream& stream) {
  const cudaStream_t handle = CudaStream::of(stream).handle();
  const NcclFunctions& nccl = group_.nccl_;
  if (are_equal(pieces)) {
    if (pieces[0].bytes == 0) return;
    return check(nccl.all_gather(pieces[static_cast<size_t>(rank_)].data, pieces[0].data,
                                 pieces[0].bytes, kNcclUint8, group_.comm_, handle),
                 "gather");
  }
  check(nccl.begin_group(), "begin a gather");
  for (size_t rank = 0; rank < pieces.size(); ++rank)
    if (pieces[rank].bytes > 0)
      check(nccl.broadcast(pieces[rank].data, pieces[rank].data, pieces[rank].bytes, kNcclUint8,
                           static_cast<int>(rank), group_.comm_, handle),
            "gather rows");
  check(nccl.end_group(), "gather rows");
}

void NcclRanks::Member::all_gather_rows(const Tensor& whole, std::span<const int64_t> starts,
                                        ops::Stream& stream) {
  const std::vector<Piece> pieces = pieces_of(whole, starts);
  if (!stream.is_measuring()) gather(pieces, stream);
}

void NcclRanks::Member::reduce_scatter_rows(const Tensor& whole, std::span<const int64_t> starts,
                                            ops::Stream& stream) {
  const std::vector<Piece> pieces = pieces_of(whole, starts);
  check_sum(whole);
  if (stream.is_measuring()) return;
  const cudaStream_t handle = CudaStream::of(stream).handle();
  const NcclFunctions& nccl = group_.nccl_;
  const auto elements = [&](const Piece& piece) {
    return piece.bytes / static_cast<size_t>(tensor::dtype_bytes(whole.dtype()));
  };
  if (are_equal(pieces)) {
    if (pieces[0].bytes == 0) return;
    return check(
        nccl.reduce_scatter(pieces[0].data, pieces[static_cast<size_t>(rank_)].data,
                            elements(pieces[0]), sum_type(whole), kNcclSum, group_.comm_, handle),
        "add rows");
  }
  check(nccl.begin_group(), "begin sums of rows");
  for (size_t rank = 0; rank < pieces.size(); ++rank)
    if (pieces[rank].bytes > 0)
      check(nccl.reduce(pieces[rank].data, pieces[rank].data, elements(pieces[rank]),
                        sum_type(whole), kNcclSum, static_cast<int>(rank), group_.comm_, handle),
            "add rows");
  check(nccl.end_group(), "add rows");
}

}  // namespace

comm::MakeNodeGroup make_nccl_ranks(const NcclOptions& options) {
  return [options](const std::string& name, const std::vector<int>& devices,
                   const comm::NodeRanksConfig& config) -> std::unique_ptr<comm::Group> {
    FATHOM_CHECK(devices.size() == 1 && config.starts.size() == config.links.size() + 1 &&
                     config.starts.back() == std::ssize(config.links),
                 "group " << name << " has several ranks on a node");
    if (!options.network_interface.empty())
      setenv("NCCL_SOCKET_IFNAME", ("=" + options.network_interface).c_str(), /*overwrite=*/0);
    const Result<NcclLibrary> library = open_nccl(options.library);
    if (!library)
      throw StartupError("GPUs of several nodes need NCCL (--nccl-library): " +
                         library.error().message);
    return std::make_unique<NcclRanks>(name, devices[0], config, *library);
  };
}

}  // namespace fathom::cuda
