"use strict";
// What openapi.json says, as the page about it needs it: routes, and the fields of what they take and give, with
// references and parts of schemas put together. Plain values; nothing of the page.

class Description {
  constructor(json) {
    this.json = json;
  }

  // The node, or what it refers to; what stands next to the reference counts before that.
  resolve(node) {
    const {$ref, ...beside} = node ?? {};
    if (!$ref) return node ?? {};
    const target = $ref.slice(2).split("/").reduce((at, name) => at[name.replaceAll("~1", "/").replaceAll("~0", "~")], this.json);
    return {...this.resolve(target), ...beside};
  }

  routes() {
    const out = [];
    for (const [path, methods] of Object.entries(this.json.paths))
      for (const [method, operation] of Object.entries(methods)) {
        const body = this.resolve(operation.requestBody);
        const content = body.content?.["application/json"];
        const tag = operation.tags?.[0] ?? "other";
        out.push({path, method: method.toUpperCase(), tag, id: operation.operationId, summary: operation.summary ?? "",
          description: operation.description ?? "",
          access: operation.security?.length === 0 ? "open" : tag === "admin" ? "admin" : "key",
          parameters: (operation.parameters ?? []).map(p => this.resolve(p)),
          body: content && {schema: content.schema ?? {}, required: body.required === true, example: content.example},
          responses: Object.entries(operation.responses ?? {}).map(([status, r]) => ({status, ...this.resolve(r)}))});
      }
    return out;
  }
  // The routes by tag, in the order of the tags.
  groups() {
    const routes = this.routes(), tags = (this.json.tags ?? []).map(t => t.name);
    for (const r of routes) if (!tags.includes(r.tag)) tags.push(r.tag);
    return tags.map(tag => ({tag, description: this.json.tags?.find(t => t.name === tag)?.description ?? tag,
      routes: routes.filter(r => r.tag === tag)})).filter(g => g.routes.length);
  }

  // The other forms that a schema may have; null is none of them where it counts as absent.
  alternatives(schema, request) {
    const list = schema.anyOf ?? schema.oneOf ?? [];
    return list.map(s => this.resolve(s)).filter(s => !(request && s.type === "null"));
  }

  // "number, 0 to 2", "list of text", ...; of a request null is left out.
  kind(node, request) {
    const s = this.resolve(node);
    if (s.const !== undefined) return JSON.stringify(s.const);
    if (s.enum) return s.enum.filter(v => !(request && v === null)).map(v => JSON.stringify(v)).join(" or ");
    const others = s.properties ? [] : this.alternatives(s, request);
    if (others.length) return [...new Set(others.map(o => this.kind(o, request)))].join(" or ");
    const types = [s.type ?? []].flat().filter(t => !(request && t === "null" && s.type !== "null"));
    if (types.length === 0) return s.properties || s.allOf ? "object" : "anything";
    return types.map(t => Description.withRange(this.typeName(t, s, request), t, s)).join(" or ");
  }
  typeName(type, s, request) {
    if (type === "array") return s.items ? "list of " + Description.plural(this.kind(s.items, request)) : "list";
    if (type === "object" && typeof s.additionalProperties === "object" && !s.properties)
      return "object of " + Description.plural(this.kind(s.additionalProperties, request));
    return type;
  }
  static plural(kind) {
    return kind.replace(/^(string|object|integer|number|boolean|list)\b(?:, (.*))?/, (all, word, range) => `${word}s${range ? ` (${range})` : ""}`);
  }
  // Large powers of two as such; numbers of JSON are not exact there.
  static bound(n) {
    const power = Math.log2(Math.abs(n));
    if (!(power >= 31 && Number.isInteger(power))) return n;
    return n < 0 ? "-2^" + power : power === 63 ? "2^63 - 1" : "2^" + power;
  }
  static withRange(name, type, s) {
    const between = (low, high, unit) => {
      const u = unit ? ` ${unit}${(high ?? low) === 1 ? "" : "s"}` : "", [from, to] = [low, high].map(Description.bound);
      if (from !== undefined && to !== undefined) return from === to ? `, ${from}${u}` : `, ${from} to ${to}${u}`;
      return from !== undefined ? `, at least ${from}${u}` : to !== undefined ? `, at most ${to}${u}` : "";
    };
    if (type === "string")
      return name + between(s.minLength, s.maxLength, "character") + (s.pattern ? `, like ${s.pattern}` : "");
    if (type === "array") return name + between(s.minItems, s.maxItems, "item");
    if (type === "object") return name + between(s.minProperties, s.maxProperties, "member");
    if (type === "number" || type === "integer") return name + between(s.minimum, s.maximum, "");
    return name;
  }

  // The fields of a schema: of its properties, its parts and its other forms, each with its own fields.
  fields(node, request, above = []) {
    const found = new Map();
    if (above.includes(node?.$ref) || above.length > 40) return [];
    const path = node?.$ref ? [...above, node.$ref] : above;
    const collect = (given, sure, path) => {
      if (given?.$ref && given !== node) {
        if (path.includes(given.$ref)) return;
        path = [...path, given.$ref];
      }
      const s = this.resolve(given), own = s.properties ?? {};
      for (const [name, value] of Object.entries(own)) {
        const v = this.resolve(value), kind = this.kind(value, request), old = found.get(name);
        const field = {name, kinds: [kind], required: sure && (s.required ?? []).includes(name), default: v.default,
          description: v.description ?? "", fields: this.fields(value, request, path)};
        if (!old) {
          found.set(name, field);
          continue;
        }
        // A schema's own word counts before that of its parts; of several forms all count.
        old.default ??= field.default;
        old.description ||= field.description;
        if (sure) continue;
        if (!old.kinds.includes(kind) && kind !== "null") old.kinds = old.kinds.filter(k => k !== "null").concat(kind);
        for (const f of field.fields) if (!old.fields.some(o => o.name === f.name)) old.fields.push(f);
      }
      for (const part of s.allOf ?? []) collect(part, sure, path);
      for (const name of s.required ?? []) if (sure && found.has(name)) found.get(name).required = true;
      if (s.items) collect(s.items, sure, path);
      // Forms of an object whose fields are known only say which of them are needed.
      for (const form of this.alternatives(s, request))
        if (!Object.keys(own).length || !Object.keys(form.properties ?? {}).every(name => name in own)) collect(form, false, path);
      if (typeof s.additionalProperties === "object") collect(s.additionalProperties, false, path);
    };
    collect(node, true, path);
    return [...found.values()].sort((a, b) => b.required - a.required);
  }

  // The command for a shell, on `base` (without the last slash).
  static curl(route, base, keyed, body, values = {}) {
    const quoted = text => "'" + text.replaceAll("'", "'\\''") + "'";
    const path = Description.path(route, values);
    const parts = ["curl"];
    if (route.method !== "GET" && body === undefined) parts.push("-X " + route.method);
    if (body !== undefined && /"stream"\s*:\s*true/.test(body)) parts.push("-N");
    parts.push(/^[\w:/.[\]-]*$/.test(base + path) && !path.includes("[") ? base + path : quoted(base + path));
    if (keyed && route.access !== "open") parts.push('-H "Authorization: Bearer $KEY"');
    if (body !== undefined) parts.push("-H 'Content-Type: application/json'", "-d " + quoted(body));
    return parts.join(" ");
  }
  static path(route, values) {
    return route.path.replaceAll(/\{(\w+)\}/g, (all, name) => values[name] ? encodeURIComponent(values[name]) : all);
  }
}
