#include "cuda/comm/peer_ranks.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "comm/thread_ranks.h"
#include "cuda/comm/exchange.cuh"
#include "cuda/comm/nccl.h"
#include "cuda/comm/peer_memory.h"
#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {
namespace {

using tensor::DType, tensor::Tensor;

enum Collective : uint32_t {
  kAllReduce,
  kAllReduceNorm,
  kAllGather,
  kAllGatherRows,
  kReduceScatterRows
};
constexpr const char* kCollectiveNames[] = {"all_reduce", "all_reduce_norm", "all_gather",
                                            "all_gather_rows", "reduce_scatter_rows"};

// A device while this lives, and the one before afterwards.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check(cudaGetDevice(&before_), "name its device");
    check(cudaSetDevice(device), "be used by a thread");
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// Zeros on a device.
class DeviceWords {
 public:
  DeviceWords(int device, int64_t count) : device_(device) {
    const OnDevice scope(device);
    const auto bytes = static_cast<size_t>(count) * sizeof(uint32_t);
    if (cudaMalloc(&words_, bytes) != cudaSuccess)
      throw StartupError("no memory for the collectives of GPU " + std::to_string(device));
    check(cudaMemset(words_, 0, bytes), "clear memory");
    check(cudaDeviceSynchronize(), "clear memory");
  }
  ~DeviceWords() {
    const OnDevice scope(device_);
    cudaFree(words_);
  }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;
  uint32_t* data() const { return words_; }

 private:
  int device_;
  uint32_t* words_ = nullptr;
};

// Host memory that the kernels of all devices write.
class Record {
 public:
  Record() {
    check(cudaHostAlloc(&lost_, sizeof(LostPeer), cudaHostAllocPortable | cudaHostAllocMapped),
          "allocate page-locked memory");
    *lost_ = LostPeer();
  }
  ~Record() { cudaFreeHost(lost_); }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  LostPeer* get() const { return lost_; }

 private:
  LostPeer* lost_ = nullptr;
};

class PeerRanks : public comm::Group {
 public:
  PeerRanks(std::string name, const std::vector<int>& devices, const PeerOptions& options);

  comm::Communicator& of(int rank) override { return members_[static_cast<size_t>(rank)]; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string failure() const override;

 private:
  class Member : public comm::Communicator {
   public:
    Member(PeerRanks& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return group_.size(); }
    void all_reduce(const Tensor& t, ops::Stream& stream) override;
    void all_reduce_norm(const ops::RmsNormArgs& norm, const ops::Activation& quantised,
                         ops::Stream& stream) override;
    void all_gather(const Tensor& whole, int axis, ops::Stream& stream) override;
    void all_gather_rows(const Tensor& whole, std::span<const int64_t> starts,
                         ops::Stream& stream) override;
    void reduce_scatter_rows(const Tensor& whole, std::span<const int64_t> starts,
                             ops::Stream& stream) override;
    void barrier() override { group_.host_.of(rank_).barrier(); }

   private:
    Exchange of(Collective collective, Exchange::Form form, const Tensor& t) const;
    // The same sum in two kernels: each rank adds its part of the bytes, then all have all parts.
    void reduce_in_two(const Exchange& whole, ops::Stream& stream) const;
    void exchange_rows(const Exchange& empty, const Tensor& whole, std::span<const int64_t> starts,
                       ops::Stream& stream) const;

    PeerRanks& group_;
    int rank_;
  };
  Mailbox mailbox(int rank, Collective collective) const;
  void open_nccl(const std::vector<int>& devices);
  // Whether NCCL adds it. The same on all ranks: it depends on the shape, and on whether a step is captured.
  bool is_for_nccl(const Tensor& t, ops::Stream& stream) const;

  const std::string name_;
  const PeerOptions options_;
  comm::ThreadRanks host_;          // for barrier()
  std::deque<PeerMemory> inboxes_;  // [rank]
  std::deque<DeviceWords> turns_;   // [rank]: kMaxBlocks turns, then gave_up
  std::deque<Record> lost_;         // [rank]
  std::unique_ptr<Nccl> nccl_;      // null = all sums are ours
  std::deque<Member> members_;
};

// Up to here our own kernels are faster among four GPUs; between two they always are (docs/perf/ranks.md).
constexpr int64_t kNcclBytes = int64_t{16} << 20;

bool is_capturing(ops::Stream& stream) {
  cudaStreamCaptureStatus status{};
  check(cudaStreamIsCapturing(CudaStream::of(stream).handle(), &status), "tell what it captures");
  return status != cudaStreamCaptureStatusNone;
}

constexpr int64_t places_of(int size) {
  return int64_t{kSlots} * size * kMaxBlocks * kBlockPackets;
}
constexpr int64_t tokens_of(int size) { return int64_t{kSlots} * size * kMaxBlocks; }

PeerRanks::PeerRanks(std::string name, const std::vector<int>& devices, const PeerOptions& options)
    : name_(std::move(name)), options_(options), host_(name_, static_cast<int>(devices.size())) {
  const int size = static_cast<int>(devices.size());
  if (size > kMaxRanks)
    throw StartupError("group " + name_ + " has " + std::to_string(size) +
                       " ranks, GPUs of one host are at most " + std::to_string(kMaxRanks));
  const std::set<int> different(devices.begin(), devices.end());
  const std::vector<int> users(different.begin(), different.end());
  // Memory of a device that no thread has used yet has no context to be mapped in.
  for (const int user : users) {
    const OnDevice scope(user);
    check(cudaFree(nullptr), "begin");
  }
  const int64_t bytes = (places_of(size) + tokens_of(size)) * static_cast<int64_t>(sizeof(uint4));
  for (int rank = 0; rank < size; ++rank) {
    const int device = devices[static_cast<size_t>(rank)];
    inboxes_.emplace_back(bytes, device, users);
    turns_.emplace_back(device, kMaxBlocks + 1);
    lost_.emplace_back();
    members_.emplace_back(*this, rank);
  }
  open_nccl(devices);
}

void PeerRanks::open_nccl(const std::vector<int>& devices) {
  if (!options_.use_nccl && !options_.disable_custom_all_reduce) return;
  Result<std::unique_ptr<Nccl>> nccl = Nccl::open(options_.nccl_library, devices);
  if (nccl.has_value()) {
    FATHOM_LOG(kInfo, "comm", "collective library",
               {{"group", name_}, {"opened", nccl.value()->name()}});
    nccl_ = std::move(nccl.value());
    return;
  }
  if (options_.disable_custom_all_reduce)
    throw StartupError("--disable-custom-all-reduce needs NCCL: " + nccl.error().message);
  if (!options_.nccl_library.empty()) throw StartupError("--nccl-library: " + nccl.error().message);
  FATHOM_LOG(kInfo, "comm", "collective library",
             {{"group", name_}, {"not_opened", nccl.error().message}});
}

bool PeerRanks::is_for_nccl(const Tensor& t, ops::Stream& stream) const {
  if (nccl_ == nullptr || !t.is_contiguous()) return false;
  if (options_.disable_custom_all_reduce) return true;
  return size() > 2 && t.num_bytes() > kNcclBytes && !is_capturing(stream);
}

std::string PeerRanks::failure() const {
  for (size_t rank = 0; rank < lost_.size(); ++rank) {
    const volatile LostPeer& lost = *lost_[rank].get();
    if (lost.is_lost == 0) continue;
    return "rank " + std::to_string(rank) + " of " + name_ + " waited " +
           std::to_string(options_.deadline.count()) + " ms in " +
           kCollectiveNames[lost.collective] + " for rank " + std::to_string(lost.peer);
  }
  return "";
}

Mailbox PeerRanks::mailbox(int rank, Collective collective) const {
  const auto at = static_cast<size_t>(rank);
  Mailbox box{
      .rank = rank,
      .size = size(),
      .turns = turns_[at].data(),
      .gave_up = turns_[at].data() + kMaxBlocks,
      .lost = lost_[at].get(),
      .deadline_ns = static_cast<uint64_t>(std::chrono::nanoseconds(options_.deadline).count()),
      .collective = collective};
  for (size_t i = 0; i < inboxes_.size(); ++i) {
    box.inbox[i] = reinterpret_cast<uint4*>(inboxes_[i].data());
    box.tokens[i] = box.inbox[i] + places_of(size());
  }
  return box;
}

Exchange PeerRanks::Member::of(Collective collective, Exchange::Form form, const Tensor& t) const {
  return {
      .mailbox = group_.mailbox(rank_, collective), .form = form, .dtype = t.dtype(), .pieces = {}};
}

void PeerRanks::Member::all_reduce(const Tensor& t, ops::Stream& stream) {
  if (stream.is_measuring() || t.num_elements() == 0) return;
  if (group_.is_for_nccl(t, stream)) return group_.nccl_->all_reduce(rank_, t, stream);
  Exchange args = of(kAllReduce, Exchange::kAllReduce, t);
  args.pieces[0] = piece_of(t);
  // Everybody sends everything to all others, or twice its part of it: with three and more ranks the second is less,
  // for one more way over the wire and one more kernel. Among four H200 they are level at 450 KB to each peer.
  constexpr int64_t kOneShotSends = int64_t{1400} << 10;
  if (size() > 2 && (size() - 1) * args.pieces[0].bytes > kOneShotSends)
    return reduce_in_two(args, stream);
  exchange(args, stream);
}

void PeerRanks::Member::reduce_in_two(const Exchange& whole, ops::Stream& stream) const {
  const Piece all = whole.pieces[0];
  FATHOM_CHECK(all.bytes == all.row_bytes, "a large sum of rows that lie apart");
  Exchange args = whole;
  const int64_t lines = (all.bytes + 15) / 16;  // parts begin at whole packets
  for (int r = 0; r < size(); ++r) {
    const int64_t begin = lines * r / size() * 16;
    const int64_t end = std::min(lines * (r + 1) / size() * 16, all.bytes);
    args.pieces[r] = {.data = all.data + begin,
                      .bytes = end - begin,
                      .row_bytes = end - begin,
                      .stride = end - begin,
                      .aligned = all.aligned};
  }
  args.form = Exchange::kReduceScatter;
  exchange(args, stream);
  args.form = Exchange::kGather;
  exchange(args, stream);
}

void PeerRanks::Member::all_reduce_norm(const ops::RmsNormArgs& norm,
                                        const ops::Activation& quantised, ops::Stream& stream) {
  if (stream.is_measuring() || group_.is_for_nccl(norm.x, stream) ||
      !can_all_reduce_norm(norm, quantised))
    return Communicator::all_reduce_norm(norm, quantised, stream);
  cuda::all_reduce_norm(group_.mailbox(rank_, kAllReduceNorm), norm, quantised, stream);
}

void PeerRanks::Member::all_gather(const Tensor& whole, int axis, ops::Stream& stream) {
  FATHOM_CHECK(
      axis >= 0 && axis < whole.rank() && whole.dim(axis) % size() == 0,
      "axis " << axis << " of " << whole.describe() << ", in " << size() << " equal pieces");
  if (stream.is_measuring()) return;
  Exchange args = of(kAllGather, Exchange::kGather, whole);
  const int64_t length = whole.dim(axis) / size();
  for (int r = 0; r < size(); ++r)
    args.pieces[r] = piece_of(whole.slice(axis, r * length, (r + 1) * length));
  exchange(args, stream);
}

void PeerRanks::Member::exchange_rows(const Exchange& empty, const Tensor& whole,
                                      std::span<const int64_t> starts, ops::Stream& stream) const {
  FATHOM_CHECK(
      std::ssize(starts) == size() + 1 && starts.front() == 0 && starts.back() == whole.dim(0) &&
          std::is_sorted(starts.begin(), starts.end()),
      starts.size() << " starts of rows of " << whole.describe() << " for " << size() << " ranks");
  if (stream.is_measuring()) return;
  Exchange args = empty;
  for (int r = 0; r < size(); ++r) {
    const auto at = static_cast<size_t>(r);
    args.pieces[r] = piece_of(whole.slice(0, starts[at], starts[at + 1]));
  }
  exchange(args, stream);
}

void PeerRanks::Member::all_gather_rows(const Tensor& whole, std::span<const int64_t> starts,
                                        ops::Stream& stream) {
  exchange_rows(of(kAllGatherRows, Exchange::kGather, whole), whole, starts, stream);
}

void PeerRanks::Member::reduce_scatter_rows(const Tensor& whole, std::span<const int64_t> starts,
                                            ops::Stream& stream) {
  exchange_rows(of(kReduceScatterRows, Exchange::kReduceScatter, whole), whole, starts, stream);
}

}  // namespace

comm::MakeGroup make_peer_ranks(const PeerOptions& options) {
  return [options](const std::string& name, const std::vector<int>& devices) {
    return std::unique_ptr<comm::Group>(std::make_unique<PeerRanks>(name, devices, options));
  };
}

}  // namespace fathom::cuda
