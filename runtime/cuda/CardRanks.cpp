//===- CardRanks.cpp - the cards of a job's ranks ------------------------===//
#include "runtime/cuda/CardRanks.h"
#include "support/Advice.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unistd.h>

namespace tcc::cuda {

namespace {
constexpr auto kPollTime = std::chrono::milliseconds(50);

/// NCCL may notice a broken connection first; how long to wait until the job's communicator knows which rank has ended.
constexpr auto kBlameTime = std::chrono::seconds(2);

/// NCCL ends in milliseconds, once a card's work is done.
constexpr auto kEndTime = std::chrono::seconds(3);

/// Packs fields into one text, and unpacks them. Nothing: the text is not a list of fields.
std::string packed(const std::vector<std::string> &fields) {
  std::string all;
  for (const std::string &field : fields)
    all += fmt::format("{}:{}", field.size(), field);
  return all;
}
std::optional<std::vector<std::string>> unpacked(const std::string &text) {
  std::vector<std::string> fields;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    const size_t begin = at;
    while (at < text.size() && at < begin + 9 && text[at] >= '0' && text[at] <= '9')
      length = length * 10 + static_cast<size_t>(text[at++] - '0');
    if (at == begin || at >= text.size() || text[at] != ':' || length > text.size() - at - 1)
      return std::nullopt;
    fields.push_back(text.substr(at + 1, length));
    at += 1 + length;
  }
  return fields;
}

/// The data that a rank sends to the others before they join.
struct Introduction {
  std::string problem, plan, version, card; ///< the card: its number and host
  std::string ids;                          ///< NCCL's, one per group; the first rank of a group makes its id

  static constexpr char kMark[] = "cards of CUDA";
  std::string text() const { return packed({kMark, problem, plan, version, card, ids}); }
  /// Nothing: the text is not an introduction.
  static std::optional<Introduction> read(const std::string &text) {
    std::optional<std::vector<std::string>> fields = unpacked(text);
    if (!fields || fields->size() != 6 || fields->front() != kMark)
      return std::nullopt;
    return Introduction{(*fields)[1], (*fields)[2], (*fields)[3], (*fields)[4], (*fields)[5]};
  }
};

std::string hostName() {
  char name[256] = {};
  (void)::gethostname(name, sizeof name - 1);
  return name;
}

/// Success: all ranks can join.
Status compare(const std::vector<std::string> &texts, const runtime::Communicator &ranks,
               std::vector<Introduction> &introductions) {
  for (uint32_t rank = 0; rank < texts.size(); ++rank) {
    std::optional<Introduction> one = Introduction::read(texts[rank]);
    if (!one)
      return error("the ranks of the job differ: {} runs no CUDA card, {} does; start all with the same command",
                   ranks.describe(rank), ranks.describe(ranks.rank()));
    introductions.push_back(*one);
  }
  for (uint32_t rank = 0; rank < texts.size(); ++rank)
    if (const std::string &problem = introductions[rank].problem; !problem.empty())
      return rank == ranks.rank() ? Status(problem) : error("{}: {}", ranks.describe(rank), problem);
  for (uint32_t rank = 1; rank < texts.size(); ++rank) {
    const Introduction &one = introductions[rank], &first = introductions[0];
    if (one.plan != first.plan)
      return error("the ranks of the job differ: {} has plan {}, rank 0 has {}; start all with the same command",
                   ranks.describe(rank), one.plan, first.plan);
    if (one.version != first.version)
      return error("the ranks of the job differ: {} has NCCL {}, rank 0 has {}; install one version on all machines",
                   ranks.describe(rank), one.version, first.version);
    for (uint32_t other = 0; other < rank; ++other)
      if (one.card == introductions[other].card)
        return error("{} and {} run on one card, {}; NCCL needs one for each rank: start fewer ({}), or show more "
                     "cards (CUDA_VISIBLE_DEVICES)",
                     ranks.describe(other), ranks.describe(rank), one.card, advice::option("nproc"));
  }
  return Status();
}
} // namespace

/// Outlives the object with a thread that NCCL holds.
struct CardRanks::Ending {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

Expected<std::unique_ptr<CardRanks>> CardRanks::join(const Card &card, runtime::Communicator &ranks,
                                                     const std::string &plan,
                                                     const std::vector<runtime::RankGroup> &groups) {
  std::vector<CardGroup> wanted{{{0, 1, ranks.size()}}};
  for (const runtime::RankGroup &members : groups)
    wanted.push_back({members});
  Introduction own;
  own.plan = plan;
  own.card = fmt::format("{} of {}", card.uuid(), hostName());
  Expected<NcclLibrary> opened = NcclLibrary::open();
  if (opened) {
    own.version = opened->version();
    for (const CardGroup &group : wanted) {
      api::ncclUniqueId id{};
      if (group.members.first == ranks.rank())
        if (Status status = opened->check((*opened)->getUniqueId(&id), "making NCCL's id"); !status.ok())
          own.problem = status.message();
      own.ids.append(id.internal, sizeof id.internal);
    }
  } else {
    own.problem = opened.message();
  }
  Expected<std::vector<std::string>> texts = ranks.gatherTexts(own.text());
  if (!texts)
    return texts.status();
  std::vector<Introduction> all;
  if (Status status = compare(*texts, ranks, all); !status.ok())
    return status;
  std::vector<api::ncclUniqueId> ids(wanted.size());
  constexpr size_t kIdBytes = sizeof ids.front().internal;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string &made = all[wanted[i].members.first].ids;
    if (made.size() != wanted.size() * kIdBytes)
      return error("internal error: NCCL's ids have {} bytes", made.size());
    std::memcpy(ids[i].internal, made.data() + i * kIdBytes, kIdBytes);
  }
  std::unique_ptr<CardRanks> joined(new CardRanks(*opened, ranks));
  joined->groups = std::move(wanted);
  if (Status status = joined->connect(card, ids); !status.ok())
    return status;
  joined->ending = std::make_shared<Ending>();
  joined->thread = std::thread([made = joined.get()] { made->watch(made->ending); });
  return joined;
}

/// NCCL's initialisation waits for all ranks and cannot be cancelled, so it runs on a thread, which is abandoned if a
/// rank ends meanwhile; then this process ends, too.
Status CardRanks::connect(const Card &card, const std::vector<api::ncclUniqueId> &ids) {
  struct Call {
    std::mutex mutex;
    std::condition_variable done;
    bool returned = false;
    Status status;
    std::vector<CardGroup> groups;
  };
  auto call = std::make_shared<Call>();
  call->groups = groups;
  std::thread waiting([call, ids, nccl = nccl, driver = card.driver(), context = card.handle(), rank = rank()] {
    // NCCL takes the card of the thread's context.
    Status status = driver.check(driver->ctxSetCurrent(context), "selecting the card's context");
    // All ranks join in the same order.
    for (size_t i = 0; i < ids.size() && status.ok(); ++i) {
      CardGroup &group = call->groups[i];
      status = nccl.check(nccl->commInitRank(&group.communicator, static_cast<int>(group.members.count), ids[i],
                                             static_cast<int>(group.numberOf(rank))),
                          "joining the ranks' cards");
    }
    std::lock_guard lock(call->mutex);
    call->status = status;
    call->returned = true;
    call->done.notify_all();
  });
  std::unique_lock lock(call->mutex);
  while (!call->done.wait_for(lock, kPollTime, [&] { return call->returned; }))
    if (std::optional<std::string> failed = ranks.failure()) {
      waiting.detach();
      return Status(*failed);
    }
  waiting.join();
  groups = call->groups;
  if (call->status.ok())
    return Status();
  if (std::string failed = failureOfJob(); !failed.empty())
    return Status(failed);
  return call->status;
}

/// The failure that the job's communicator knows, waiting a moment for it; empty: none.
std::string CardRanks::failureOfJob() {
  for (auto until = std::chrono::steady_clock::now() + kBlameTime;; std::this_thread::sleep_for(kPollTime)) {
    if (std::optional<std::string> failed = ranks.failure())
      return *failed;
    if (std::chrono::steady_clock::now() > until)
      return "";
  }
}

api::ncclResult_t CardRanks::errorOfNccl() const {
  for (const CardGroup &group : groups)
    if (api::ncclResult_t state = api::ncclSuccess;
        nccl->commGetAsyncError(group.communicator, &state) == api::ncclSuccess && state != api::ncclSuccess &&
        state != api::ncclInProgress)
      return state;
  return api::ncclSuccess;
}

const CardGroup *CardRanks::group(const runtime::RankGroup &members) const {
  auto found = std::find_if(groups.begin(), groups.end(), [&](const CardGroup &one) { return one.members == members; });
  return found == groups.end() ? nullptr : &*found;
}

void CardRanks::waitForFailure() {
  std::unique_lock lock(mutex);
  while (!ends.wait_for(lock, kPollTime, [&] { return stopping; })) {
    if (!working)
      continue;
    lock.unlock();
    std::optional<std::string> failed = ranks.failure();
    const api::ncclResult_t state = failed ? api::ncclSuccess : errorOfNccl();
    if (state != api::ncclSuccess) {
      const Status status = nccl.check(state, "a collective");
      failed = failureOfJob();
      if (failed->empty()) {
        ranks.abort(status.message());
        failed = ranks.failure().value_or(status.message());
      }
    }
    lock.lock();
    if (!failed)
      continue;
    problem = *failed;
    return;
  }
}

/// Ends communicators by ncclCommAbort, because ncclCommDestroy may wait for ranks that have ended. At the end of a job
/// the collectives of all ranks are done, so nothing is lost by an abort.
void CardRanks::watch(std::shared_ptr<Ending> ends) {
  waitForFailure();
  const NcclLibrary library = nccl;
  // Each abort returns when no graph needs its communicator, and graphs end only when all are aborted: so they run in
  // parallel. The object may have been destroyed by then.
  std::vector<std::thread> aborts;
  for (const CardGroup &group : groups)
    aborts.emplace_back([library, handle = group.communicator] { (void)library->commAbort(handle); });
  for (std::thread &one : aborts)
    one.join();
  std::lock_guard lock(ends->mutex);
  ends->done = true;
  ends->changed.notify_all();
}

Expected<runtime::Algorithms> CardRanks::share(const runtime::Algorithms &own) {
  std::vector<std::string> fields{own.library, own.machine};
  for (const auto &[call, algorithm] : own.calls)
    fields.insert(fields.end(), {call, algorithm.code, algorithm.about, fmt::format("{}", algorithm.seconds)});
  Expected<std::vector<std::string>> texts = ranks.gatherTexts(rank() == 0 ? packed(fields) : "");
  if (!texts)
    return texts.status();
  std::optional<std::vector<std::string>> first = unpacked(texts->front());
  if (!first || first->size() < 2 || first->size() % 4 != 2)
    return error("internal error: rank 0 says no algorithms");
  runtime::Algorithms all;
  all.library = (*first)[0];
  all.machine = (*first)[1];
  all.source = runtime::Algorithms::kFirstRank;
  for (size_t i = 2; i < first->size(); i += 4)
    all.calls[(*first)[i]] = {(*first)[i + 1], (*first)[i + 2], std::strtod((*first)[i + 3].c_str(), nullptr)};
  return all;
}

Status CardRanks::failure() const {
  std::lock_guard lock(mutex);
  return problem.empty() ? Status() : Status(problem);
}

CardRanks::~CardRanks() {
  if (!thread.joinable())
    return;
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  ends.notify_all();
  std::unique_lock lock(ending->mutex);
  const bool done = ending->changed.wait_for(lock, kEndTime, [&] { return ending->done; });
  lock.unlock();
  done ? thread.join() : thread.detach();
}

} // namespace tcc::cuda
