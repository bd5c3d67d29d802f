// The admin routes of LoRA adapters, in vLLM's form under /v1 and in SGLang's, and their metrics.
#include <memory>

#include "base/log.h"
#include "server/api_call.h"
#include "server/fields.h"
#include "server/metric_text.h"
#include "server/request_body.h"

namespace reprise::server {
namespace {

constexpr std::string_view kVllm = "/v1/";

// vLLM says it in words, SGLang with the adapters that are loaded now.
void answer(const HttpRequest& request, Reply& reply, const Headers& headers, const std::string& words,
            const sched::AdapterTable& adapters) {
  if (request.path.starts_with(kVllm)) return reply.send(200, "text/plain; charset=utf-8", words, headers);
  OrderedJson loaded = OrderedJson::object();
  for (const sched::AdapterPtr& a : adapters.list()) loaded[a->name] = a->path;
  const OrderedJson body{{"success", true}, {"error_message", ""}, {"loaded_adapters", std::move(loaded)}};
  reply.send(200, "application/json", body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace), headers);
}

ApiError no_adapters() {
  return {400, "this server was started without LoRA adapters; --enable-lora keeps slots for them", "", "no_adapters"};
}

ApiError refused(const Status& why) {
  if (why.code() == Code::Busy) return {409, why.message(), "", "no_free_slot"};
  return ApiError::from(why);
}

}  // namespace

void Api::load_adapter(Call& call) {
  ApiError error;
  const auto body = body_of<Json>(call.request.body, options_.limits, stopping_, error);
  if (!body) return call.fail(error);
  Fields f(*body);
  const sched::AdapterPlace place{f.text("lora_name", ""), f.text("lora_path", "")};
  if (place.name.empty()) f.fail("lora_name", "the name that requests will choose the adapter by is expected");
  if (place.path.empty()) f.fail("lora_path", "the adapter's folder on the server is expected");
  if (f.flag("load_inplace", false))
    f.fail("load_inplace", "an adapter in use is not exchanged; unload it and load the other one");
  if (f.error()) return call.fail(*f.error());
  sched::AdapterTable* adapters = serving_.adapters;
  if (!adapters) return call.fail(no_adapters());
  const ServedModel& m = *serving_.model;
  if (place.name == m.name || place.name == m.path)
    return call.fail({400, fmt::format("\"{}\" is the name of the model itself", place.name), "lora_name"});
  // Its files are read apart, its slot is written between two steps, and the HTTP thread answers.
  auto waiting = std::make_shared<Call>(std::move(call));
  auto work = [waiting, place, adapters, http = http_, scheduler = &serving_.scheduler->at(0)]() mutable {
    auto prepared = std::make_shared<Result<engine::PreparedAdapter>>(adapters->read(place));
    const auto tell = [http](std::shared_ptr<Call> c, Status done, sched::AdapterTable* table, std::string name) {
      http->post([c = std::move(c), done = std::move(done), table, name = std::move(name)] {
        if (!done.is_ok()) return c->fail(refused(done));
        answer(c->request, *c->reply, c->headers, fmt::format("Success: LoRA adapter '{}' added successfully.", name),
               *table);
      });
    };
    if (!prepared->is_ok()) return tell(std::move(waiting), prepared->status(), adapters, place.name);
    scheduler->post([waiting = std::move(waiting), prepared, place, adapters, tell]() mutable {
      tell(std::move(waiting), adapters->insert(place, **prepared).status(), adapters, place.name);
    });
  };
  if (!serving_.workers) return work();
  if (!serving_.workers->add(work)) waiting->fail({503, "too many requests wait to be read"});
}

void Api::unload_adapter(Call& call) {
  ApiError error;
  const auto body = body_of<Json>(call.request.body, options_.limits, stopping_, error);
  if (!body) return call.fail(error);
  Fields f(*body);
  const std::string name = f.text("lora_name", "");
  if (name.empty()) f.fail("lora_name", "the name of a loaded adapter is expected");
  if (f.error()) return call.fail(*f.error());
  if (!serving_.adapters) return call.fail(no_adapters());
  const auto users = serving_.adapters->remove(name);
  if (!users) return call.fail({404, users.status().message(), "lora_name", "not_found"});
  if (*users > 0) log::info("adapter {}: unloaded; requests that use it go on, and its slot is free after them", name);
  answer(call.request, *call.reply, call.headers, fmt::format("Success: LoRA adapter '{}' removed successfully.", name),
         *serving_.adapters);
}

std::string Api::adapter_metrics() const {
  if (!serving_.adapters) return {};
  const auto label = &MetricText::label;
  const std::vector<sched::AdapterPtr> loaded = serving_.adapters->list();
  MetricText t(label("model_name", serving_.model->name));
  t.single("reprise:lora_slots", "gauge", static_cast<double>(serving_.adapters->slots()), "Slots of LoRA adapters.");
  t.single("reprise:lora_adapters", "gauge", static_cast<double>(loaded.size()), "LoRA adapters that are loaded.");
  t.family("reprise:lora_requests_total", "counter", "Requests of a loaded adapter, since it was loaded.");
  for (const sched::AdapterPtr& a : loaded)
    t.sample(static_cast<double>(a->requests.load()), label("lora_name", a->name));
  return t.take();
}

}  // namespace reprise::server
