#pragma once
// Communicator: a group of ranks, one of which the caller is, and what they do together.
//
//   comm::Communicator& tp = *rank.tp;
//   tp.all_reduce(branch, stream);                 // every rank's branch is now the sum of all
//   tp.all_gather(logits, /*axis=*/1, stream);     // every rank wrote its own columns, now all are there
//
// Everything happens in place, so a group of one has nothing to do: no operator, no copy, no memory. A tensor that is
// gathered has size() equal pieces along `axis`, in the order of ranks, and the same shape on every rank. Rows may be
// shared out unequally: of the same `whole` on every rank, rank i's are [starts[i], starts[i + 1]), perhaps none.
//
//   tp.all_gather_rows(normed, starts, stream);        // every rank wrote its own rows, now all are there
//   tp.reduce_scatter_rows(branch, starts, stream);    // a rank's own rows are now the sum of all ranks' there
//
// The rank's own thread calls (barrier() too), all ranks of a group in the same order. Collectives are enqueued like
// operators: they return before they are done on a stream that runs ahead, may be captured, and send nothing on a
// stream that measures (Stream::is_measuring()). An axis that a tensor does not have is a programmer error and aborts,
// and so does a rank that never comes or comes with another collective, where the transport can tell.

#include <cstdint>
#include <span>

#include "ops/rms_norm.h"
#include "ops/stream.h"
#include "tensor/tensor.h"

namespace fathom::comm {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // [0, size())
  virtual int size() const = 0;

  // t = the sum of the ranks' t.
  virtual void all_reduce(const tensor::Tensor& t, ops::Stream& stream) = 0;
  // A rank has written its own piece of `whole`; afterwards it has all of them.
  virtual void all_gather(const tensor::Tensor& whole, int axis, ops::Stream& stream) = 0;
  // starts i64[size() + 1]: from 0 to the rows of `whole`, never falling; read before the call returns. A rank's own
  // rows of what is reduced are the sum afterwards, the others are as they were.
  virtual void all_gather_rows(const tensor::Tensor& whole, std::span<const int64_t> starts,
                               ops::Stream& stream) = 0;
  virtual void reduce_scatter_rows(const tensor::Tensor& whole, std::span<const int64_t> starts,
                                   ops::Stream& stream) = 0;
  // Returns when all ranks have called it. Waits for no stream.
  virtual void barrier() = 0;

  // x = the sum of the ranks' x, then rms_norm or, where `quantised` is not null, rms_norm_quantize, to their bits. x
  // is undefined afterwards. A transport may do all of it in one pass.
  virtual void all_reduce_norm(const ops::RmsNormArgs& norm, const ops::Activation& quantised,
                               ops::Stream& stream);
};

// The group of one, which is the same for all. Stateless.
Communicator& alone();

}  // namespace fathom::comm
