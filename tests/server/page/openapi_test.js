"use strict";
// src/server/page/openapi.js: what the page about the routes shows of docs/openapi.json.
const {assert, fs, path, root, load, run} = require("./stand_in.js");

const Description = load(["openapi.js"], "Description");
const json = JSON.parse(fs.readFileSync(path.join(root, "docs/openapi.json"), "utf8"));
const api = new Description(json), routes = api.routes();
const route = id => routes.find(r => r.id === id);
const field = (fields, ...names) => names.reduce((at, name) => at.fields.find(f => f.name === name), {fields});
const plain = value => JSON.parse(JSON.stringify(value));

// Names of fields in a schema, wherever they stand in it.
function names(node, out, above = []) {
  if (!node || typeof node !== "object" || above.includes(node.$ref)) return out;
  if (node.$ref) return names(api.resolve(node), out, [...above, node.$ref]);
  for (const [name, value] of Object.entries(node.properties ?? {})) names(value, out.add(name), above);
  for (const part of [...(node.allOf ?? []), ...(node.anyOf ?? []), ...(node.oneOf ?? []), node.items]) names(part, out, above);
  return out;
}
const shown = fields => fields.flatMap(f => [f.name, ...shown(f.fields)]);

run({
  routesAreGroupedByTag() {
    const groups = api.groups();
    assert.deepEqual(plain(groups.map(g => g.tag)), ["generate", "models", "tokens", "state", "admin"]);
    assert.equal(groups.flatMap(g => g.routes).length, routes.length);
    assert.equal(routes.length, Object.values(json.paths).flatMap(Object.keys).length);
    assert.equal(new Set(routes.map(r => r.id)).size, routes.length);
    for (const r of routes) assert.ok(r.id && r.summary && r.responses.length && r.responses.every(a => a.description), r.path);
  },
  everyFieldIsShown() {
    let all = 0;
    for (const r of routes) {
      const schemas = r.responses.flatMap(a => Object.values(a.content ?? {}).map(c => [c.schema, false]));
      if (r.body) schemas.push([r.body.schema, true]);
      for (const [schema, request] of schemas) {
        const expected = [...names(schema, new Set())], found = new Set(shown(api.fields(schema, request)));
        assert.deepEqual(expected.filter(name => !found.has(name)), [], r.path);
        all += expected.length;
      }
    }
    assert.ok(all > 300, String(all));
  },
  kindsRangesAndDefaults() {
    const chat = api.fields(route("createChatCompletion").body.schema, true);
    assert.equal(chat[0].name, "messages");
    assert.equal(chat[0].required, true);
    assert.deepEqual(plain(chat[0].kinds), ["list of objects, at least 1 item"]);
    assert.equal(field(chat, "messages", "role").required, true);
    const {fields, required, ...temperature} = field(chat, "temperature");
    assert.deepEqual(plain(temperature), {name: "temperature", kinds: ["number, 0 to 2"], default: 1, description: "0: the likeliest token"});
    assert.deepEqual(plain(field(chat, "seed").kinds), ["integer, -2^63 to 2^63 - 1"]);
    assert.deepEqual(plain(field(chat, "stream").kinds), ["boolean"]);
    assert.equal(field(chat, "stream").default, false);
    assert.deepEqual(plain(field(chat, "stop").kinds), ["string, at least 1 character or list of strings (at least 1 character), at most 16 items"]);
    assert.deepEqual(plain(field(chat, "logprobs").kinds), ["boolean"]);
    assert.deepEqual(plain(field(chat, "tool_choice", "function", "name").kinds), ["string"]);
    // Of all forms that a field may have.
    assert.deepEqual(plain(shown(field(chat, "response_format").fields)), ["type", "json_schema", "schema", "pattern"]);
    // A schema's own word counts before that of its parts.
    const completion = api.fields(route("createCompletion").body.schema, true);
    assert.deepEqual(plain(field(completion, "logprobs").kinds), ["integer, 0 to 20"]);
    assert.equal(field(completion, "max_tokens").default, 16);
    assert.equal(field(completion, "max_tokens").description, "0: the prompt is read, nothing is said");
    assert.deepEqual(plain(field(completion, "suffix").kinds), ["string, at most 0 characters"]);
    const tokenize = api.fields(route("tokenize").body.schema, true);
    assert.deepEqual(plain(field(tokenize, "messages").kinds), ["list of objects, at least 1 item"]);
    assert.equal(tokenize.some(f => f.required), false);
    assert.deepEqual(plain(field(api.fields(route("abortRequest").body.schema, true), "abort_all").kinds), ["boolean"]);
    const answer = api.fields(route("createChatCompletion").responses[0].content["application/json"].schema, false);
    assert.deepEqual(plain(field(answer, "choices", "finish_reason").kinds), ['"stop" or "length" or "tool_calls" or "abort"']);
    assert.deepEqual(plain(field(answer, "choices", "message", "content").kinds), ["string or null"]);
  },
  accessAsTheServerHasIt() {
    assert.equal(route("page").access, "open");
    assert.equal(route("createCompletion").access, "key");
    assert.equal(route("listRequests").access, "admin");
  },
  commands() {
    const base = "http://127.0.0.1:30000";
    assert.equal(Description.curl(route("health"), base, true), "curl http://127.0.0.1:30000/health");
    assert.equal(Description.curl(route("listModels"), base, true), 'curl http://127.0.0.1:30000/v1/models -H "Authorization: Bearer $KEY"');
    assert.equal(Description.curl(route("flushCache"), base, false), "curl -X POST http://127.0.0.1:30000/flush_cache");
    assert.equal(Description.curl(route("tokenize"), base, false, '{"prompt": "it\'s"}'),
      "curl http://127.0.0.1:30000/tokenize -H 'Content-Type: application/json' -d '{\"prompt\": \"it'\\''s\"}'");
    assert.equal(Description.curl(route("createCompletion"), base, false, '{"stream": true}').slice(0, 8), "curl -N ");
    assert.equal(Description.curl(route("retrieveModel"), base, false, undefined, {model: "a b/$(c)"}),
      "curl 'http://127.0.0.1:30000/v1/models/a%20b%2F%24(c)'");
    assert.equal(Description.curl(route("retrieveModel"), base, false), "curl 'http://127.0.0.1:30000/v1/models/{model}'");
    for (const r of routes) assert.ok(!r.body?.required || r.body.example !== undefined, r.path);
  },
  referencesThatLeadBackEnd() {
    const schema = {type: "object", properties: {next: {$ref: "#/s/Node"}, list: {type: "array", items: {$ref: "#/s/Node"}}}};
    const twice = new Description({paths: {}, s: {Node: schema}});
    assert.deepEqual(plain(shown(twice.fields({$ref: "#/s/Node"}, false))), ["next", "list"]);
  },
});
