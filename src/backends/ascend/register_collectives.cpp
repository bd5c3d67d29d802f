// Entries of the ops by which ranks exchange data: functions of HCCL, which captures record as they do operators.
#include <algorithm>
#include <map>

#include "backends/ascend/entries.h"
#include "ops/args/collectives.h"

namespace reprise::ascend {
namespace {

// Even parts are gathered one rank after the other, then moved into their columns; a single row lies right at once.
// Uneven ones are added as integers: every number is some rank's, and zero on all others, so any order gives its bits.
Status all_gather(const AllGatherArgs& a, Launch& l) {
  const auto& ranks = *static_cast<const Communicator*>(l.constant());
  const int64_t rows = l.size(a.rows), element = static_cast<int64_t>(size_of(a.type));
  const int64_t mine = a.width / element, all = a.of / element, first = a.first / element;
  if (a.even) {
    void* parts = rows == 1 ? a.out.data : l.scratch(static_cast<size_t>(rows * a.of));
    RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_gather(a.x, parts, rows * a.width, s); }));
    if (rows == 1) return Status::ok();
    return l.run(l.ops().copy, l.tensor(a.out, a.type, {rows, ranks.size(), mine}),
                 l.view(parts, a.type, {rows, ranks.size(), mine}, {mine, rows * mine, 1}, 0, rows * all));
  }
  RETURN_IF_ERROR(l.run(l.ops().zero, l.tensor(a.out, a.type, {rows, all})));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.view(a.out, a.type, {rows, mine}, {all, 1}, first, rows * all),
                        l.tensor(a.x, a.type, {rows, mine})));
  return l.enqueue([&](aclrtStream s) { return ranks.merge(a.out.data, rows * all, a.type, s); });
}

// Rows that all ranks have parts of, one rank's after the other's.
struct Parts {
  const uint8_t* data;
  int64_t ranks, rows;
};

// Their sums in the order of ranks (+ bias). Sums of more than two numbers are made in fp32; that of two is aclnnAdd's
// own, which widens what it adds and rounds once. No sum lies where one of its numbers does.
Status add_parts(const AllReduceArgs& a, const Parts& parts, const void* out, Launch& l) {
  const int64_t rows = parts.rows, count = rows * a.width;
  const auto matrix = [&](const void* data, DType type) { return l.tensor(data, type, {rows, a.width}); };
  const auto add = [&](const void* x, const void* y, DType type, const void* sum) {
    return l.run(l.ops().add, matrix(x, type), matrix(y, type), l.number(1), matrix(sum, type));
  };
  const bool wide = a.type != DType::F32;
  if (parts.ranks == 2 && !a.bias)
    return add(parts.data, parts.data + count * static_cast<int64_t>(size_of(a.type)), a.type, out);
  const auto widened = [&](const void* data, int64_t n) -> Result<const uint8_t*> {
    if (!wide) return static_cast<const uint8_t*>(data);
    auto* to = static_cast<uint8_t*>(l.scratch(static_cast<size_t>(n * 4)));
    RETURN_IF_ERROR(
        l.run(l.ops().cast, l.tensor(data, a.type, {n}), acl_type(DType::F32), l.tensor(to, DType::F32, {n})));
    return to;
  };
  ASSIGN_OR_RETURN(const uint8_t* sum, widened(parts.data, parts.ranks * count));
  const uint8_t* next = sum;
  const void* sums[] = {l.scratch(static_cast<size_t>(count * 4)), l.scratch(static_cast<size_t>(count * 4))};
  const int64_t additions = parts.ranks - (a.bias ? 0 : 1);
  for (int64_t i = 1; i <= additions; ++i) {
    const void* to = i == additions && !wide ? out : sums[i % 2];
    if (i < parts.ranks) {
      next += count * 4;
      RETURN_IF_ERROR(add(sum, next, DType::F32, to));
    } else {
      ASSIGN_OR_RETURN(const uint8_t* bias, widened(a.bias, a.width));
      RETURN_IF_ERROR(l.run(l.ops().add, matrix(sum, DType::F32), l.tensor(bias, DType::F32, {a.width}), l.number(1),
                            matrix(to, DType::F32)));
    }
    sum = static_cast<const uint8_t*>(to);
  }
  if (!wide) return Status::ok();
  return l.run(l.ops().cast, matrix(sum, DType::F32), acl_type(a.type), matrix(out, a.type));
}

// From so many bytes on, what each rank need not receive and add of the rows takes longer than a second meeting: at
// 28 GB/s a meeting of 10 us (docs/ascend.md, both assumed) is 280 KB.
constexpr int64_t kWorthAMeeting = 280 << 10;

// The parts of all ranks are gathered and added here. HcclAllReduce would add them in an order that follows from the
// number of bytes, so a row's bits would depend on the batch. Of many rows each rank adds its share, and the sums are
// gathered: the same additions, elsewhere.
struct Exchanged {
  const AllReduceArgs& a;
  const Communicator& ranks;
  int64_t row;  // bytes

  uint8_t* room(int64_t rows, Launch& l) const {
    return static_cast<uint8_t*>(l.scratch(static_cast<size_t>(rows * row)));
  }
  bool few(int64_t rows) const { return rows * row * (ranks.size() - 2) < kWorthAMeeting * ranks.size(); }
};

Status reduce_few(const Exchanged& x, int64_t rows, Launch& l) {
  uint8_t* parts = x.room(x.ranks.size() * rows, l);
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return x.ranks.all_gather(x.a.x, parts, rows * x.row, s); }));
  return add_parts(x.a, {parts, x.ranks.size(), rows}, x.a.out.data, l);
}

// Shares are equal. Where the rows are not (`filled`), the last ones are of no row, and nothing of them is copied back.
Status reduce_shares(const Exchanged& x, int64_t rows, bool filled, Launch& l) {
  const AllReduceArgs& a = x.a;
  const int64_t size = x.ranks.size(), share = (rows + size - 1) / size;
  const auto matrix = [&](const void* data) { return l.tensor(data, a.type, {rows, a.width}); };
  const void* from = a.x;
  void* to = a.out.data;
  if (filled) {
    from = x.room(share * size, l);
    to = x.room(share * size, l);
    RETURN_IF_ERROR(l.run(l.ops().copy, matrix(from), matrix(a.x)));
  }
  uint8_t *parts = x.room(share * size, l), *mine = x.room(share, l);
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return x.ranks.all_to_all(from, parts, share * x.row, s); }));
  RETURN_IF_ERROR(add_parts(a, {parts, size, share}, mine, l));
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return x.ranks.all_gather(mine, to, share * x.row, s); }));
  return filled ? l.run(l.ops().copy, matrix(a.out), matrix(to)) : Status::ok();
}

Status all_reduce(const AllReduceArgs& a, Launch& l) {
  const Exchanged x{a, *static_cast<const Communicator*>(l.constant()),
                    a.width * static_cast<int64_t>(size_of(a.type))};
  const int64_t rows = l.size(a.rows), size = x.ranks.size();
  if (!l.at_bounds()) return x.few(rows) ? reduce_few(x, rows, l) : reduce_shares(x, rows, rows % size != 0, l);
  // The most that any number of rows up to this one needs: few rows need more than some of many do.
  const int64_t few = x.few(rows) ? rows : kWorthAMeeting * size / (x.row * (size - 2));
  RETURN_IF_ERROR(reduce_few(x, std::max<int64_t>(few, 1), l));
  return x.few(rows) ? Status::ok() : reduce_shares(x, rows, true, l);
}

// Which of the ids of a table are this rank's, in words as wide as the table's numbers.
struct IdsHere {
  const Communicator* ranks;
  const void* words;
};

AclType word_of(DType t) { return size_of(t) == 2 ? ACL_INT16 : ACL_INT32; }

Status found_ids(const FoundIdsArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  return l.run(l.ops().index_select, l.tensor(l.constant(), DType::I32, {a.of}), 0, l.tensor(a.ids, DType::I32, {rows}),
               l.tensor(a.out, DType::I32, {rows}));
}

// Rows of others become zero, all as integers: each row is some rank's, and adding zeros keeps its bits.
Status gather_found(const GatherFoundArgs& a, Launch& l) {
  const IdsHere& ids = *static_cast<const IdsHere*>(l.constant());
  const AclType word = word_of(a.type);
  const int64_t rows = l.size(a.rows);
  void* here = l.scratch(static_cast<size_t>(rows) * size_of(a.type));
  RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(ids.words, word, {a.of}), 0, l.tensor(a.ids, DType::I32, {rows}),
                        l.tensor(here, word, {rows})));
  RETURN_IF_ERROR(l.run(l.ops().mul, l.tensor(a.x, word, {rows, a.width}), l.tensor(here, word, {rows, 1}),
                        l.tensor(a.out, word, {rows, a.width})));
  return l.enqueue([&](aclrtStream s) { return ids.ranks->merge(a.out.data, rows * a.width, a.type, s); });
}

// Numbers of one byte are moved several at a time: the vendor multiplies no int8, and the words are fewer.
struct MarkedWords {
  DType type;
  int64_t each = 1, width, first, of;  // numbers in a word; sizes in words

  explicit MarkedWords(const GatherMarkedArgs& a) : type(a.type), width(a.width), first(a.first), of(a.of) {
    if (size_of(type) != 1) return;
    each = (width | first | of) % 4 == 0 ? 4 : 2;
    type = each == 4 ? DType::I32 : DType::F16;
    for (int64_t* size : {&width, &first, &of}) *size /= each;
  }
};

// Rows of others become zero, all as integers, as do the columns of others; then all ranks' are put together.
Status gather_marked(const GatherMarkedArgs& a, Launch& l) {
  const auto& ranks = *static_cast<const Communicator*>(l.constant());
  const MarkedWords w(a);
  const AclType word = word_of(w.type);
  const int64_t rows = l.size(a.rows);
  const size_t bytes = size_of(w.type);
  aclTensor* here = l.tensor(a.here, DType::I32, {rows, 1});
  if (word != ACL_INT32) {
    aclTensor* narrow = l.tensor(l.scratch(static_cast<size_t>(rows) * bytes), word, {rows, 1});
    RETURN_IF_ERROR(l.run(l.ops().cast, here, word, narrow));
    here = narrow;
  }
  const bool whole = w.width == w.of;
  void* mine = whole ? a.out.data : l.scratch(static_cast<size_t>(rows * w.width) * bytes);
  RETURN_IF_ERROR(
      l.run(l.ops().mul, l.tensor(a.x, word, {rows, w.width}), here, l.tensor(mine, word, {rows, w.width})));
  if (!whole) {
    RETURN_IF_ERROR(l.run(l.ops().zero, l.tensor(a.out, w.type, {rows, w.of})));
    RETURN_IF_ERROR(l.run(l.ops().copy, l.view(a.out, w.type, {rows, w.width}, {w.of, 1}, w.first, rows * w.of),
                          l.tensor(mine, w.type, {rows, w.width})));
  }
  return l.enqueue([&](aclrtStream s) { return ranks.merge(a.out.data, rows * w.of, w.type, s); });
}

// The value at each row's index, and that index in the whole vocabulary, side by side.
Status argmax_pairs(const ArgmaxPairsArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  RETURN_IF_ERROR(l.run(l.ops().gather, l.tensor(a.x, DType::F32, {rows, a.width}), 1,
                        l.tensor(a.ids, DType::I32, {rows, 1}),
                        l.view(a.out, DType::F32, {rows, 1}, {2, 1}, 0, 2 * rows)));
  return l.run(l.ops().adds, l.tensor(a.ids, DType::I32, {rows}), l.whole(a.first), l.whole(1),
               l.view(a.out, DType::I32, {rows}, {2}, 1, 2 * rows));
}

Status merge_argmax(const MergeArgmaxArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), all = 2 * rows * a.ranks;
  void* best = l.scratch(static_cast<size_t>(rows) * sizeof(int32_t));
  RETURN_IF_ERROR(l.run(l.ops().argmax, l.view(a.pairs, DType::F32, {rows, a.ranks}, {2 * a.ranks, 2}, 0, all), 1, true,
                        l.tensor(best, DType::I32, {rows, 1})));
  return l.run(l.ops().gather, l.view(a.pairs, DType::I32, {rows, a.ranks}, {2 * a.ranks, 2}, 1, all), 1,
               l.tensor(best, DType::I32, {rows, 1}), l.tensor(a.out, DType::I32, {rows, 1}));
}

// The part of a table that a call is about: as text it is in the keys of what is made for it.
struct TablePart {
  int64_t first, count, of;

  explicit TablePart(const Attrs& a) : first(a.integer("first")), count(a.integer("count")), of(a.integer("of")) {}
  auto operator<=>(const TablePart&) const = default;

  std::string text() const { return fmt::format("[{}+{}/{}]", first, count, of); }
  // Calls to(id, place) for each id of the table: the row in this part, or -1.
  template <typename To>
  void each(const To& to) const {
    for (int64_t id = 0; id < of; ++id) to(id, id >= first && id < first + count ? id - first : -1);
  }
};

Status in_words(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (size_of(c.in[0].dtype) == 2 || size_of(c.in[0].dtype) == 4) return Status::ok();
  return error(Code::Unsupported, "rows are merged in words of 2 or 4 bytes, unlike {}", describe(c));
}

Status in_marked_words(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  const int64_t width = c.in[0].shape[1].factor, first = c.attrs->integer("first"), of = c.attrs->integer("of");
  if (size_of(c.in[0].dtype) != 1) return in_words(c);
  if ((width | first | of) % 2 == 0) return Status::ok();
  return error(Code::Unsupported, "numbers of one byte are merged two at a time, unlike {}", describe(c));
}

void register_tables(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto places = [context](const OpCall& c, LaunchArgs& args) {
    const TablePart part(*c.attrs);
    args.constant = context->constant(
        fmt::format("rows of ids {}", part.text()), static_cast<size_t>(part.of) * sizeof(int32_t), [&](void* to) {
          part.each([&](int64_t id, int64_t place) {
            static_cast<int32_t*>(to)[id] = static_cast<int32_t>(std::max<int64_t>(place, 0));
          });
        });
  };
  const auto known = std::make_shared<std::map<std::pair<TablePart, size_t>, IdsHere>>();
  const auto here = [context, known](const OpCall& c, LaunchArgs& args) {
    const TablePart part(*c.attrs);
    const size_t word = word_of(c.in[0].dtype) == ACL_INT16 ? 2 : 4;
    const void* words = context->constant(fmt::format("ids here {}, {} bytes", part.text(), word),
                                          static_cast<size_t>(part.of) * word, [&](void* to) {
                                            part.each([&](int64_t id, int64_t place) {
                                              if (word == 2)
                                                static_cast<int16_t*>(to)[id] = place >= 0 ? 1 : 0;
                                              else
                                                static_cast<int32_t*>(to)[id] = place >= 0 ? 1 : 0;
                                            });
                                          });
    args.constant = &((*known)[{part, word}] = IdsHere{context->communicator(), words});
  };
  add(kernels, context, {.op = "found_ids", .kernel = kernel<found_ids>, .bind = places});
  add(kernels, context, {.op = "gather_found", .kernel = kernel<gather_found>, .bind = here, .accepts = in_words});
}

}  // namespace

void register_collectives(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  if (!context->communicator()) return;
  const auto bind = [context](const OpCall&, LaunchArgs& args) { args.constant = context->communicator(); };
  register_tables(kernels, context);
  add(kernels, context,
      {.op = "all_gather", .kernel = kernel<all_gather>, .bind = bind, .accepts = want_constant_rows});
  add(kernels, context,
      {.op = "gather_marked", .kernel = kernel<gather_marked>, .bind = bind, .accepts = in_marked_words});
  add(kernels, context, {.op = "all_reduce", .kernel = kernel<all_reduce>, .bind = bind});
  add(kernels, context, {.op = "argmax_pairs", .kernel = kernel<argmax_pairs>});
  add(kernels, context, {.op = "merge_argmax", .kernel = kernel<merge_argmax>});
}

}  // namespace reprise::ascend
