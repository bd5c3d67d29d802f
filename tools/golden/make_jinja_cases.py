"""Writes tests/data/jinja/cases.json: small templates with the output of Python's jinja2, or an error.

The environment is the one Hugging Face's apply_chat_template makes: immutable sandbox, trim_blocks, lstrip_blocks, loop
controls, the generation tag, its own tojson, dict and namespace. Needs only jinja2 (requirements.txt has the version).

  python tools/golden/make_jinja_cases.py            the table below
  python tools/golden/make_jinja_cases.py --random N SEED
                                                     N random templates as JSON lines, for a differential run
"""

import datetime
import json
import random
import re
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

from common import DATA

NOW = datetime.datetime(2024, 7, 26, 9, 5, 0)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _render(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Namespace(jinja2.utils.Namespace):
    def __setitem__(self, name, value):
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore")
        super().__setitem__(name, value)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    env.globals["namespace"] = Namespace
    return env


def render(template, context):
    """The output, or None for any error."""
    try:
        out = environment().from_string(template).render(**context)
        out.encode("utf-8")
        return out
    except RecursionError:
        raise
    except Exception:
        return None


CONTEXT = {
    "n": 7,
    "z": 0,
    "f": 2.5,
    "s": "Hello, World",
    "u": "Grüße, 世界! ÀÉ",
    "e": "",
    "t": True,
    "x": None,
    "l": [3, 1, 2],
    "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "two", "C": [1, 2.0, None, True], "items": "shadow"},
    "m": [
        {"role": "system", "content": "Be  brief.\n"},
        {"role": "user", "content": "Hi <there> & 'you' \"all\""},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"q": 1, "k": "ü"}}]},
        {"role": "tool", "content": "42", "n": 2},
    ],
    "sp": "  padded\t\n",
    "lines": "one\ntwo\r\nthree\n\nfive",
}

# Expressions, each rendered as {{ ... }}.
EXPRESSIONS = r"""
1
-1
1_000
0x1F
0b101
0o17
1.5
1e3
1.5e-7
1e16
1e15
123456789.123
0.1 + 0.2
1e22
-0.0
1/3
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
2 ** 0.5
10 / 2
1 / 0
1 // 0
1 % 0
1.0 / 0
true + true
true * 3
9223372036854775807
n + f
n * 'ab'
'ab' * 3
'ab' * -1
[1, 2] * 2
(1, 2) + (3,)
[1] + [2, [3]]
[1] + (2,)
'a' + 'b'
'a' + 1
'a' ~ 1 ~ none ~ true ~ 2.0
'a' 'b' "c"
'it\'s' ~ "\t|\x41|\u00e9|\U0001F600|\101|\q"
'line\
next'
n - -1
+n
-f
-'a'
not n
not not e
n and e
e or s
z or x
t and f and n
1 < 2 < 3
1 < 2 > 3
3 > 2 >= 2
1 == 1.0
1 == true
'1' == 1
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
(1, 'a') <= (1, 'b')
none == none
none < 1
undefd == undefd2
undefd != 1
[1, 2] == [1.0, 2]
[1] == (1,)
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
'ell' in s
'x' not in s
3 in l
'a' in d
1 in d
x in l
'a' in none
1 in 'a'
undefd in l
1 in undefd
'a' in undefd
s if t else e
s if z else e
s if z
(s if z) is defined
(s if z) is undefined
1 if z else 2 if t else 3
undefd
undefd.foo
undefd['foo']
undefd + 1
undefd ~ 'x'
undefd()
undefd | length
undefd | default('dflt')
undefd | d
e | default('dflt')
e | default('dflt', true)
e | default('dflt', boolean=true)
x | default('dflt')
d.zzz
d.zzz.yyy
d.zzz | default('q')
d['a']
d.a
d.items
d['items']
d.items()
d.keys()
d.values()
d.items() | list
d.keys() | list
d.get('a')
d.get('q')
d.get('q', 5)
d.get('q', default=5)
d.pop('a')
d.update({'k': 1})
d.update
d.setdefault
d.clear is defined
d.copy()
d | length
d
d | list
d | string
d | tojson
l.append(1)
l.append
l.index(1)
l.index(9)
l.count(3)
l.copy()
l[0]
l[-1]
l[9]
l[9] is defined
l['a']
l.0
l.1
m[0].role
m[0]['role']
m.0.role
m[-1].content
m[1:] | length
m[1:2][0].role
l[1:]
l[:-1]
l[::-1]
l[::2]
l[-2:]
l[5:]
l[::0]
s[0]
s[-1]
s[99]
s[1:4]
s[::-1]
s[-3:]
s[:-3]
s[8:2:-2]
u[0:6]
u[7]
u[-1]
u[::-1]
u | length
u.upper()
u.lower()
u.title()
u.swapcase()
u.capitalize()
u.find('世')
u.find('!')
u.rfind('É')
u.index('zz')
u.split(' ')
u.center(30, '*')
u.isalpha()
'ß'.upper()
'ǆabc'.title()
'ΣΑΣ'.lower()
none.foo
none[0]
x[1:]
n.foo
n[0]
n[1:]
n()
s()
s.nope
s.nope()
s.__class__
s.__len__
d.__class__
range(3)
range(3) | list
range(1, 10, 3) | list
range(5, 0, -2) | list
range(0)|list
range(1, 2, 0)
range(5)[1]
range(5)[-1]
range(10)[2:5]
range(10)[::-1]|list
range(3) | length
range(200000) | length
range('a')
range(2.0)
5 in range(10)
range(3) == range(0, 3)
(1, 2)
(1,)
()
1, 2
[]
{}
[1, 'a', none, true, 1.5, [2], (3,), {'k': 'v'}]
{'a': 1, 2: 'b', none: 3, 'a': 4, (1, 2): 5}
{1: 'a', 1.0: 'b', true: 'c'}
{[1]: 2}
{'a': 1}[['a']]
"it's"
["it's"]
['say "hi"']
['it\'s "both"']
['\n\t\\', '\x01', 'é', '\u200b', '\xa0']
s.upper()
s.lower()
s.title()
'hello wORLD'.capitalize()
"they're bill's".title()
s.split()
s.split(',')
s.split(', ')
s.split('o', 1)
s.rsplit('o', 1)
s.split(',', maxsplit=1)
s.split(sep='l')
'a  b c '.split()
'a  b c '.split(' ')
' a b c '.split(none, 1)
' a b c '.rsplit(none, 1)
' a b c '.split(none, 0)
''.split()
''.split(',')
'abc'.split('')
'a,b,,c'.split(',')
sp.strip()
sp.lstrip()
sp.rstrip()
sp.rstrip('\n')
'xxhixx'.strip('x')
'xyhiyx'.strip('xy')
'xyhiyx'.lstrip('xy')
'éhié'.strip('é')
lines.splitlines()
lines.splitlines(true)
lines.split('\n')
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.replace('', '-')
s.replace('', '-', 3)
'abc'.replace('b', 1)
s.startswith('Hell')
s.startswith(('a', 'H'))
s.startswith(['a', 'H'])
s.startswith('ello', 1)
s.endswith('ld')
s.endswith(('x', 'ld'))
s.endswith(1)
s.find('o')
s.find('o', 5)
s.find('o', 5, 7)
s.find('zz')
s.find('')
s.rfind('o')
s.index('W')
s.rindex('o')
s.count('l')
s.count('')
'aaaa'.count('aa')
', '.join(w)
', '.join(l)
', '.join('abc')
''.join([])
s.join(undefd)
'abc'.zfill(5)
'-42'.zfill(6)
'42'.ljust(5, '.') ~ '|'
'42'.rjust(5) ~ '|'
'42'.center(5, '*')
'abc'.center(6, '*')
'123'.isdigit()
'12.3'.isdigit()
''.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'abc'.isalpha()
'abc1'.isalnum()
' \n'.isspace()
'ABC'.isupper()
'abc'.islower()
'A1'.isupper()
'Abc Def'.istitle()
'abc_1'.isidentifier()
'1abc'.isidentifier()
'abc'.isascii()
'é'.isascii()
'a\tb'.expandtabs(4)
'abc'.removeprefix('a')
'abc'.removesuffix('bc')
'abc'.removesuffix('x')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'{} and {}'.format(1, 'x')
'{0} {1} {0}'.format('a', 'b')
'{a} {b}'.format(a=1, b=[1, 'z'])
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:05d} {:+d} {:,} {:x} {:#x} {:b}'.format(42, 42, 1234567, 255, 255, 5)
'{:.2f} {:8.3f} {:e} {:g} {:%}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25)
'{!r} {!s}'.format('a', 'b')
'{0.role} {0[content]}'.format(m[3])
'{{}}'.format()
'{} {}'.format(1)
'{0} {}'.format(1, 2)
'{:d}'.format('a')
'{:.2}'.format('abc')
'{x}'.format(y=1)
'{:>{w}}'.format('a', w=4)
'{x}'.format_map({'x': 5})
'%s is %d' % ('a', 3)
'%s' % 'a'
'%s' % [1, 2]
'%(a)s-%(b)03d' % {'a': 'x', 'b': 7}
'%5.2f|%-5s|%05d|%+d|%x|%r|%%' % (3.14159, 'a', 42, 5, 255, 'q')
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%d' % 'a'
'%d' % 3.99
'%c%c' % ('a', 98)
'%s' % none
'%5s%%' % 12
5 % 'a'
'x' % undefd
'%s' % undefd
s | upper
s | lower
s | title
'foo-bar (baz) it\'s' | title
s | capitalize
sp | trim
s | trim('Hd')
s | replace('l', 'L')
s | replace('l', 'L', 1)
n | replace('7', 'x')
s | length
s | count
l | length
n | length
none | length
l | join
l | join(', ')
m | join(', ', attribute='role')
m | join(', ', 'role')
n | join(',')
s | join('-')
l | first
l | last
e | first
[] | first
[] | first | default('none')
[] | last
d | first
d | last
s | first
s | last
s | list
d.items() | first
d.items() | last
(l | map('string')) | last
n | first
n | list
n | string
f | string
x | string
'42' | int
'42.9' | int
' 42 ' | int
'abc' | int
'abc' | int(default=5)
'0x1f' | int(0, 16)
'1f' | int(base=16)
'1_000' | int
2.9 | int
-2.9 | int
none | int
true | int
[] | int
undefd | int
'3.14' | float
'abc' | float
'abc' | float(1.5)
'1e3' | float
'inf' | float
'nan' | float
3 | float
2.5 | round
3.5 | round
2.567 | round(2)
2.567 | round(1, 'floor')
2.561 | round(2, 'ceil')
2.675 | round(2)
1234 | round(-2)
1250 | round(-2)
5 | round
2.4 | round | int
'a' | round
2.5 | round(0, 'x')
-5 | abs
-2.5 | abs
'a' | abs
d | items
d | items | list
d | dictsort
d | dictsort(true)
{'b': 2, 'a': 3} | dictsort(by='value')
{'b': 2, 'a': 3} | dictsort(false, 'value', true)
{'b': 2, 'a': 'x'} | dictsort(by='value')
l | map('string') | list
l | map('string') | join('-')
m | map(attribute='role') | list
m | map(attribute='n') | list
m | map(attribute='n', default=0) | list
m | map(attribute='tool_calls.0.name', default='-') | list
w | map('upper') | list
w | map('replace', 'a', 'x') | list
w | map('nope') | list
w | map | list
l | select('odd') | list
l | select('gt', 1) | list
l | select('>', 1) | list
l | select | list
[0, 1, '', 'a', none] | select | list
[0, 1, '', 'a', none] | reject | list
l | reject('even') | list
m | selectattr('content') | map(attribute='role') | list
m | selectattr('role', 'equalto', 'user') | list | length
m | selectattr('role', '==', 'user') | map(attribute='content') | first
m | selectattr('role', 'in', ['user', 'tool']) | list | length
m | rejectattr('role', 'eq', 'user') | map(attribute='role') | join(' ')
m | selectattr('n', 'defined') | list | length
m | selectattr('role', 'nope') | list
m | selectattr
l | sort
l | sort(reverse=true)
w | sort
w | sort(case_sensitive=true)
m | sort(attribute='role') | map(attribute='role') | list
m | sort(attribute='n') | list
[{'a': 1, 'b': 2}, {'a': 1, 'b': 1}, {'a': 0, 'b': 9}] | sort(attribute='a,b')
[1, 'a'] | sort
s | sort
['a', 'A', 'b'] | unique | list
['a', 'A', 'b'] | unique(true) | list
[1, 1.0, true, 2] | unique | list
m | unique(attribute='role') | list | length
l | reverse | list
l | reverse
s | reverse
d | reverse | list
n | reverse
l | sum
l | sum(start=10)
m | sum(attribute='n')
[1.5, 2] | sum
w | sum
[[1], [2]] | sum(start=[])
l | min
l | max
w | min
w | max
w | max(case_sensitive=true)
[] | min
[1, 'a'] | max
m | selectattr('n', 'defined') | map(attribute='n') | max
l | batch(2) | list
l | batch(2, 'x') | list
l | slice(2) | list
l | slice(2, 'x') | list
range(7) | slice(3) | list
l | slice(0) | list
lines | indent
lines | indent(2)
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent('> ', first=true)
'' | indent
'a\n' | indent
n | indent
'<a href="x">\'&</a>' | escape
'<a>' | e
'<a>' | safe
s | wordcount
u | wordcount
'' | wordcount
m | groupby('role')
[{'k': 'B', 'v': 1}, {'k': 'a', 'v': 2}, {'k': 'b', 'v': 3}] | groupby('k')
[{'k': 'B', 'v': 1}, {'k': 'b', 'v': 3}] | groupby('k', case_sensitive=true)
[{'k': 1}, {}] | groupby('k', default=0)
s | truncate(8)
s | truncate(9, true, '', 0)
'hello big wide world' | truncate(12)
'hello big wide world' | truncate(12, true)
'hello big wide world' | truncate(12, end='~')
'hello big wide world' | truncate(2)
s | center(20) ~ '|'
s | center(20, 'x')
'%s-%s' | format('a', 1)
'%(x)s' | format(x=1)
d | attr('items') is callable
d | attr('a')
'a b/c?d=é' | urlencode
{'a': 1, 'b c': 'd&e'} | urlencode
1000 | filesizeformat
1500000 | filesizeformat
1500000 | filesizeformat(true)
s | nope
s is nope
d | tojson
d | tojson(indent=2)
d | tojson(indent=4)
d | tojson(indent=0)
d | tojson(indent='\t')
d | tojson(separators=(',', ':'))
d | tojson(separators=(',', ': '), indent=1)
d | tojson(separators=[','])
d | tojson(sort_keys=true)
u | tojson
u | tojson(ensure_ascii=true)
'\u2028\x7f\x01\b\f😀' | tojson
'\u2028\x7f\x01\b\f😀' | tojson(ensure_ascii=true)
'</script>&\'' | tojson
m | tojson
m | tojson(indent=2)
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}] | tojson(indent=2)
{1: 2, none: 3, true: 4, 1.5: 6} | tojson
{(1,): 2} | tojson
(1, 2) | tojson
1e100 | tojson
0.1 | tojson
('nan' | float) | tojson
(-('inf' | float)) | tojson
undefd | tojson
d.items() | tojson
range(3) | tojson
namespace(a=1) | tojson
x is none
undefd is defined
undefd is undefined
d.a is defined
d.q is defined
s is string
n is string
d is mapping
l is mapping
l is iterable
s is iterable
n is iterable
undefd is iterable
d.items() is iterable
d.items() is sequence
l is sequence
s is sequence
d is sequence
range(3) is sequence
(l | map('int')) is sequence
(l | map('int')) is iterable
n is sequence
n is number
f is number
t is number
s is number
n is integer
t is integer
f is integer
f is float
n is float
t is boolean
n is boolean
t is true
n is true
z is false
t is false
false is false
n is even
n is odd
f is odd
s is odd
n is divisibleby 7
n is divisibleby(2)
n is equalto 7
n is eq 7
n is ne 7
n is lt 8
n is gt 8
n is ge 7
n is le 7
n is lessthan 8
n is greaterthan 8
n is == 7
n is in [7, 8]
n is in l
n is not in l
s is lower
s is upper
'ABC' is upper
'abc' is lower
range is callable
n is callable
undefd is callable
s.upper is callable
t is sameas true
n is sameas 7
x is sameas none
'upper' is filter
'nope' is filter
'odd' is test
s is not string
not s is string
x is not none and n
n is defined and n > 3
d is mapping and d.a is string
x is none == true
dict(a=1, b=2)
dict([('a', 1), ('b', 2)])
dict({'a': 1}, b=2)
dict(a=1).a
dict([1])
namespace(a=1).a
namespace(a=1)
namespace(a=1).b
namespace({'x': 3}).x
cycler('a', 'b').next()
joiner(', ')()
strftime_now('%Y-%m-%d')
strftime_now('%d %B %Y, %H:%M:%S %A %j %%')
strftime_now()
raise_exception('no')
s.upper
l | length > 2
l | length + 1
-l | length
(l | length) * 2
-1 | abs
n | string ~ 'x'
n ~ 'x' | upper
s[0:5] | upper
s.split(',')[0]
s.split(',')[0].upper()[1:]
(s ~ e).strip()
[1, 2, 3][1]
{'a': {'b': [10, 20]}}.a.b[1]
'abc'[1]
(1, 2)[0]
d['C'][0]
d.C[1]
d['a' if t else 'b']
m[0].content.strip().split('  ')
[m[0].role, m[1].role] | join('/')
l[0:2] + l[2:]
l[f]
l[true]
s * 0
'%s' % (1, 2) if z else 'ok'
a.b.c
1 if
(1
1 +
'abc
{'a' 1}
[1 2]
not
1 ++ 2
1 !
$x
l[
foo bar
x is is
1.5.5
range(*[1, 4]) | list
dict(**{'a': 1})
range(*[1], **{'a': 2})
dict(a=1, a=2)
dict(a=1, 2)
loop
loop.index
caller()
caller
varargs
true, True, none, None, false, False
nan
'\ud800'
[undefd]
[undefd] | string
{'a': undefd}
x.y.z
x['y']
'a' is in 'abc'
'a' in ('a', 'b')
1 in [1.0]
none in [none]
[1] in [[1]]
'' in ''
(1, 2) in {(1, 2): 3}
s == 'Hello, World' and n == 7 or false
n > 3 if n else 1
1.0
100.0 * 3
3.0 // 1
1e300 * 1e300
(0.1).hex
true ~ false
[true, none] ~ ''
1 ~ 2 + 3
1 + 2 ~ 3
2 * 3 ~ 4
'a' ~ 'b' * 2
10 - 5 - 2
100 // 7 // 2
2 + 3 * 4
(2 + 3) * 4
7 - 3 + 2
""".strip("\n").split("\n")

# Whole templates; % separates them.
TEMPLATES = r"""
plain
%%
{% if t %}yes{% else %}no{% endif %}
%%
{% if z %}a{% elif n == 7 %}b{% else %}c{% endif %}
%%
{% if z %}a{% elif x %}b{% endif %}|
%%
{% for i in l %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}
%%
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}
%%
{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}
%%
{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}
%%
{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}
%%
{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }} {% endfor %}
%%
{% for i in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}
%%
{% for i in [] %}x{% else %}empty{% endfor %}
%%
{% for i in l if i > 5 %}x{% else %}none{% endfor %}
%%
{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}
%%
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
%%
{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}
%%
{% for k in d %}{{ k }} {% endfor %}
%%
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
%%
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
%%
{% for a, b in [1] %}{{ a }}{% endfor %}
%%
{% for c in s[:3] %}{{ c }}.{% endfor %}
%%
{% for c in u[:3] %}{{ c }}.{% endfor %}
%%
{% for i in n %}{% endfor %}
%%
{% for i in none %}{% endfor %}
%%
{% for i in undefd %}x{% else %}e{% endfor %}
%%
{% for i in range(3) %}{% for j in range(i) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{% endfor %}
%%
{% for i in range(3) %}{% set outer = loop %}{% for j in range(2) %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
%%
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}
%%
{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %}
%%
{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}
%%
{% break %}
%%
{% continue %}
%%
{% set a = 1 %}{{ a }}{% set a = a + 1 %}{{ a }}
%%
{% set a, b = 1, 2 %}{{ a }}{{ b }}
%%
{% set a, b = [1, 2, 3] %}{{ a }}
%%
{% set a = 1, 2 %}{{ a }}
%%
{% set (a, b) = (b0 | default(1), 2) %}{{ a }}{{ b }}
%%
{% set a %}text {{ n }}{% endset %}[{{ a }}]
%%
{% set a | upper %}text {{ n }}{% endset %}[{{ a }}]
%%
{% set a | replace('e', 'E') | trim %} text {% endset %}[{{ a }}]
%%
{% set a %}{% set b = 5 %}{{ b }}{% endset %}{{ a }}{{ b is defined }}
%%
{% set a = 0 %}{% for i in l %}{% set a = a + i %}{{ a }} {% endfor %}{{ a }}
%%
{% set ns = namespace(a=0) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}
%%
{% set ns = namespace() %}{% set ns.x = [1] %}{% set ns.x = ns.x + [2] %}{{ ns.x }}
%%
{% set ns = namespace(a=1) %}{% set ns.a, ns.b = 5, 6 %}{{ ns.a }}{{ ns.b }}
%%
{% set ns.x = 1 %}
%%
{% set d.a = 1 %}
%%
{% set ns = namespace() %}{% set ns._x = 1 %}
%%
{% set ns = namespace(a=1) %}{{ ns['a'] }}{{ ns['b'] is defined }}{{ ns.b is defined }}
%%
{% if t %}{% set q = 5 %}{% endif %}{{ q }}
%%
{% if z %}{% set n = 5 %}{% endif %}{{ n }}
%%
{% for i in l %}{% if loop.first %}{% set n = 5 %}{% endif %}{{ n }}{% endfor %}{{ n }}
%%
{% for n in l %}{{ n }}{% endfor %}{{ n }}
%%
{% set true = 1 %}
%%
{% set 'a' = 1 %}
%%
{% set a = %}
%%
{% macro m1(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m1(1) }}|{{ m1(1, 3) }}|{{ m1(1, c='z') }}|{{ m1(b=5, a=4) }}
%%
{% macro m1(a) %}[{{ a }}]{% endmacro %}{{ m1() }}|{{ m1(1, 2) }}
%%
{% macro m1(a) %}[{{ a is defined }}]{% endmacro %}{{ m1() }}
%%
{% macro m1(a) %}[{{ a }}]{% endmacro %}{{ m1(b=1) }}
%%
{% macro m1(a) %}[{{ a }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ m1(1, 2, 3, k=4) }}
%%
{% macro m1(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m1(1) }}
%%
{% macro m1(a=1, b) %}{% endmacro %}
%%
{% macro rec(k) %}{{ k }}{% if k > 0 %}{{ rec(k - 1) }}{% endif %}{% endmacro %}{{ rec(5) }}
%%
{% macro inner() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ inner() }}
%%
{% set y = 1 %}{% macro inner() %}{{ y }}{% set y = 9 %}{{ y }}{% endmacro %}{% set y = 3 %}{{ inner() }}{{ y }}
%%
{% macro m1() %}  x  {% endmacro %}[{{ m1() | trim }}]{{ m1() is string }}{{ m1 is callable }}{{ m1.name }}
%%
{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}body {{ n }}{% endcall %}
%%
{% macro wrap() %}{% for i in l %}<{{ caller(i) }}>{% endfor %}{% endmacro %}{% call(i) wrap() %}{{ i * 2 }}{% endcall %}
%%
{% macro wrap() %}<{{ caller is defined }}>{% endmacro %}{{ wrap() }}
%%
{% call n %}{% endcall %}
%%
{% for i in l %}{% macro mi() %}{{ i }}{% endmacro %}{{ mi() }}{% endfor %}
%%
{% filter upper %}abc {{ s }}{% endfilter %}
%%
{% filter replace('a', 'b') | upper %}aaa{% endfilter %}
%%
{% filter nope %}aaa{% endfilter %}
%%
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
%%
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
%%
{% with n = 1, k = n %}{{ n }}{{ k }}{% endwith %}{{ n }}
%%
{% generation %}abc{{ n }}{% endgeneration %}|
%%
{% for x in m %}{% generation %}{{ x.role }}{% endgeneration %}
{% endfor %}
%%
{% generation %}{% set q = 2 %}{{ q }}{% endgeneration %}{{ q is defined }}
%%
{% raw %}{{ not }} {% this %}{# x #}{% endraw %}
%%
a
{% raw %}
  {{ x }}
{% endraw %}
b
%%
a {%- raw -%}  x  {%- endraw -%}  b
%%
a {% raw %} x {%- endraw +%}
 b
%%
{% raw %}never closed
%%
a{# comment #}b
%%
a
  {# comment #}
b
%%
a
  {#- comment -#}
b
%%
a {#- c #} b {# d -#} c
%%
{# never closed
%%
  {% if t %}
    indented
  {% endif %}
end
%%
  {%- if t %}
    x
  {%- endif %}
y
%%
  {%+ if t +%}
    x
  {%+ endif +%}
y
%%
a {{- n -}} b
%%
a
  {{ n }}
b
%%
a   {{+ n }}   b
%%
{{ n }}
{{ n }}

%%
{% if t %}

x

{% endif %}

y
%%
x  {% if t %}  y  {% endif %}  z
%%
{% for i in l %}
  - {{ i }}
{% endfor %}
done
%%
{% for i in l -%}
  - {{ i }}
{%- endfor %}

done

%%
{%- set a = 1 -%}

  {{ a }}

{%- set b = 2 %}
  {{ b }}
%%
{{ '{{' }} {{ '%}' }} {{ "}}" }}
%%
{{ {'a': {'b': 1}} }}{{ {'a': 1}['a'] }}{{ {} }}
%%
{% set x = {'a': {'b': '}}'}} %}{{ x }}
%%
{ { n } } {% raw %}{%{% endraw %}
%%
{{ 'a
b' }}
%%
{% if n > 3 and n < 10 and not z %}in{% endif %}
%%
{% if m[0].role == 'system' %}{{ m[0].content | trim }}{% set rest = m[1:] %}{% else %}{% set rest = m %}{% endif %}{{ rest | length }}
%%
{% for x in m %}<|{{ x['role'] }}|>{{ x.content if x.content is string else x.tool_calls | tojson }}
{% endfor %}
%%
{% for x in m %}{% if (x['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ loop.index0 }}{% endif %}{% endfor %}
%%
{% if not loop %}x{% endif %}
%%
{% for x in m[::-1] %}{% set idx = (m | length - 1) - loop.index0 %}{{ idx }}{{ x.role }} {% endfor %}
%%
{% set ns = namespace(found=false) %}{% for x in m %}{% if x.role == 'user' and not ns.found %}{% set ns.found = true %}{{ loop.index }}{% endif %}{% endfor %}{{ ns.found }}
%%
{% set g = l | map('string') %}{{ g | join(',') }}|{{ g | join(',') }}
%%
{% set g = l | select('odd') %}{% for i in g %}{{ i }}{% endfor %}|{% for i in g %}{{ i }}{% endfor %}
%%
{% set g = l | map('string') %}{{ g | first }}{{ g | list }}
%%
{% set g = l | reverse %}{{ g | list }}{{ g | list }}
%%
{% for item in l recursive %}{{ item }}{% endfor %}
%%
{% for item in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3}]}] recursive %}{{ item.v }}@{{ loop.depth }}({{ loop(item.c) if item.c is defined }}){% endfor %}
%%
{% for i in l %}{{ loop(l) }}{% endfor %}
%%
{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}
%%
{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}
%%
{% for g in m | groupby('role') %}{{ g.grouper }}:{{ g.list | length }} {% endfor %}
%%
{% for role, list in m | groupby('role') %}{{ role }}{{ list | length }} {% endfor %}
%%
{% print n, s %}
%%
{% include 'x' %}
%%
{% unknown %}
%%
{% if t %}x
%%
{% for i in l %}x
%%
{% endif %}
%%
{% if t %}{% endfor %}
%%
{% if %}x{% endif %}
%%
{% for in l %}x{% endfor %}
%%
{% for i l %}x{% endfor %}
%%
{% if t: %}x{% endif %}
%%
{{ n
%%
{% if t
%%
{{ }}
%%
{{ raise_exception('bad ' ~ n) }}
%%
{% if z %}{{ raise_exception('bad') }}{% endif %}ok
%%
{% if z %}{{ undefd.a.b }}{{ 1 / 0 }}{% endif %}ok
%%
{% set x = [] %}{% set x = x + [1] %}{% set _ = x.append(2) %}{{ x }}
%%
{% do x %}
%%
{% if undefd %}a{% else %}b{% endif %}{% if undefd is defined and undefd.x %}c{% endif %}
%%
{% if x is defined and x is not none %}a{% elif x is none %}b{% endif %}
%%
{% set a = 'x' if t else 'y' %}{% set b = a if z %}{{ a }}[{{ b }}]
%%
{% for i in [1, 2, 3] %}{% if loop.index is divisibleby 2 %}{{ i }}{% endif %}{% endfor %}
%%
{%- for x in m -%}
    {%- if x.role == 'user' -%}
        {{- '[INST] ' + x.content + ' [/INST]' -}}
    {%- elif x.role == 'assistant' -%}
        {{- ' ' ~ x.content ~ '</s>' -}}
    {%- endif -%}
{%- endfor -%}
%%
{% macro tool(t, indent=2) -%}
{{ t.name }}({%- for k, v in t.arguments.items() -%}
{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}
{%- endfor -%})
{%- endmacro %}
{% for c in m[2].tool_calls %}{{ tool(c) }}{% endfor %}
%%
{{ m[2].tool_calls[0].arguments | tojson(indent=4) | indent(2) }}
%%
{% set content = m[1].content %}{% if '<' in content %}{{ content.split('<')[-1].split('>')[0].strip() }}{% endif %}
%%
{% set parts = 'a</think>b'.split('</think>') %}{{ parts[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}|{{ parts[-1].lstrip('\n') }}
%%
{{ '%s' | format(n) }}{{ "%.1f" | format(f) }}
%%
{% set d2 = dict(d, extra=1) %}{{ d2.extra }}{{ d2 | length }}
%%
{% set x = namespace(v=namespace(w=1)) %}{% set y = x.v %}{% set y.w = 2 %}{{ x.v.w }}
%%
{% for a in 'ab' %}{% for b in 'cd' %}{{ loop.index }}{% else %}x{% endfor %}{{ loop.index }}{% endfor %}
%%
{% set s = 1 %}{% macro q() %}{% set s = 2 %}{% endmacro %}{{ q() }}{{ s }}
%%
{% filter trim %}{% for i in l %} {{ i }} {% endfor %}{% endfilter %}
%%
{% for i in l %}{% filter upper %}a{{ i }}{{ loop.index }}{% endfilter %}{% endfor %}
%%
{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ x }}{{ x | length }}
%%
line{% if t %}
x{% endif %}
y
%%
{% for i in l %}{{ i }}{% endfor %}


%%
{{ 1 }}{# a #}
{{ 2 }}
%%
<TAB>{% if t %}<TAB>tab{% endif %}
%%
 {% if t %} x {% endif %} {% if t %} y {% endif %}
z
%%
a{% if t -%}   b   {%- endif %}c
%%
{{ "a" -}}
   {{ "b" }}
""".strip("\n").replace("<TAB>", "\t").split("\n%%\n")


class RandomTemplates:
    """Random templates that mostly work, for a differential run."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *options):
        return self.r.choice(options)

    def atom(self):
        return self.pick(
            "n", "z", "f", "s", "u", "e", "t", "x", "l", "w", "d", "m", "sp", "lines", "undefd", "1", "2", "0", "-1", "1.5",
            "'a'", "'l'", "''", "none", "true", "false", "[]", "{}", "[1, 2]", "('a', 2)", "{'a': 1}", "m[0]", "m[1].content",
            "d.C", "loop.index", "i", "q", "ns.a", "' x '", "'\\n'", "range(3)", "'ü'",
        )

    def expression(self, depth=3):
        if depth == 0 or self.r.random() < 0.15:
            return self.atom()
        e = lambda: self.expression(depth - 1)
        kind = self.r.randrange(13)
        if kind == 0:
            return f"({e()} {self.pick('+', '-', '*', '/', '//', '%', '~', '~', '~')} {e()})"
        if kind == 1:
            return f"({e()} {self.pick('==', '!=', '<', '>', '<=', '>=', 'in', 'not in')} {e()})"
        if kind == 2:
            return f"({e()} {self.pick('and', 'or')} {e()})"
        if kind == 3:
            return f"(not {e()})"
        if kind == 4:
            return f"({e()} if {e()} else {e()})"
        if kind in (5, 6, 7):
            name = self.pick(
                "length", "upper", "lower", "trim", "title", "capitalize", "first", "last", "list", "string", "int", "float",
                "tojson", "tojson(indent=2)", "join", "join('-')", "sort", "unique | list", "reverse | list", "sum", "min", "max",
                "default('z')", "default('z', true)", "replace('a', 'b')", "abs", "round", "items | list", "dictsort",
                "map('upper') | list", "map('string') | join(',')", "map(attribute='role') | list", "select | list",
                "reject | list", "selectattr('content') | list", "indent(2)",
                "escape", "map('length') | list",
                "select('string') | list", "select('odd') | list", "count", "sort(reverse=true)", "tojson(sort_keys=true)",
            )
            return f"({e()} | {name})"
        if kind == 8:
            test = self.pick(
                "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float",
                "boolean", "true", "false", "even", "odd", "divisibleby 2", "eq 1", "in l", "upper", "lower", "callable",
            )
            return f"({e()} is {self.pick('', 'not ')}{test})"
        if kind == 9:
            method = self.pick(
                "strip()", "lstrip()", "rstrip()", "split()", "split('l')", "splitlines()", "upper()", "title()",
                "replace('l', 'L')", "startswith('H')", "endswith('d')", "find('l')", "count('l')", "items() | list", "keys() | list",
                "get('a')", "get('q', 1)", "role", "content", "a", "isdigit()", "join(w)", "rsplit('o', 1)",
                "capitalize()", "rfind('o')", "isalpha()", "values() | list",
            )
            return f"{e()}.{method}"
        if kind == 10:
            return f"{e()}[{self.pick('0', '-1', '1', '1:', ':-1', '::-1', '::2', '-2:', ':2', chr(39) + 'a' + chr(39), '3:1:-1', 'n')}]"
        if kind == 11:
            return f"[{e()}, {e()}]"
        return f"{{'k': {e()}, 'j': {e()}}}"

    def space(self):
        return self.pick("", "", " ", "\n", "\n  ", "  ", "\n\n", "a", " b\n")

    def tag(self, inside):
        return f"{{%{self.pick('', '', '-', '+')} {inside} {self.pick('', '', '-', '+')}%}}"

    def block(self, depth=3):
        out = self.space()
        for _ in range(self.r.randrange(1, 4)):
            kind = self.r.randrange(12) if depth else 0
            b = lambda: self.block(depth - 1)
            if kind <= 3:
                out += f"{{{{{self.pick('', '', '-')} {self.expression(self.r.randrange(4))} {self.pick('', '', '-')}}}}}"
            elif kind == 4:
                out += self.tag(f"if {self.expression(2)}") + b() + self.tag("else") + b() + self.tag("endif")
            elif kind == 5:
                out += self.tag(f"for i in {self.pick('l', 'w', 'm', 'd', 's', 'range(2)', self.expression(2))}") + b()
                if self.r.random() < 0.2:
                    out += self.tag(f"if {self.expression(1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif")
                out += self.tag("endfor")
            elif kind == 6:
                out += self.tag(f"set q = {self.expression(2)}")
            elif kind == 7:
                out += self.tag("set q") + b() + self.tag("endset")
            elif kind == 8:
                out += self.tag(f"set ns.a = {self.expression(2)}")
            elif kind == 9:
                out += self.tag("macro mm(q, i=1)") + b() + self.tag("endmacro") + "{{ mm(" + self.expression(1) + ") }}"
            elif kind == 10:
                out += f"{{#{self.pick('', '-')} c {self.pick('', '-')}#}}"
            else:
                out += self.tag(f"filter {self.pick('upper', 'trim', 'title', 'replace(1, 2)')}") + b() + self.tag("endfilter")
            out += self.space()
        return out

    def template(self):
        return "{% set ns = namespace(a=0) %}" + self.block(self.r.randrange(1, 4))


# What the interpreter leaves out (src/text/jinja/template.h).
LEFT_OUT = re.compile(
    r"(\||filter|map\(['\"])\s*(batch|slice|groupby|center|truncate|wordcount|format|urlencode|filesizeformat|forceescape)\b"
    r"|\.(index|r?partition|rindex|[lr]just|expandtabs|zfill|casefold|swapcase|isdecimal|isnumeric|isidentifier|istitle"
    r"|isascii|isprintable|format|format_map|center)\b|(['\"]|\b[su]\b) %[ (]"
)


def main():
    if sys.argv[1:2] == ["--random"]:
        made = RandomTemplates(int(sys.argv[3]))
        for _ in range(int(sys.argv[2])):
            template = made.template()
            print(json.dumps({"t": template, "c": CONTEXT, "want": render(template, CONTEXT)}, ensure_ascii=False))
        return
    cases = []
    for template in ["{{ " + e + " }}" for e in EXPRESSIONS] + TEMPLATES:
        want = render(template, CONTEXT)
        # Addresses of Python objects are nobody's answer.
        if any(c["template"] == template for c in cases) or (want and " at 0x" in want) or LEFT_OUT.search(template):
            continue
        cases.append({"template": template, "want": want})
    # Line ends of every kind.
    for template in ["a\r\nb\rc\n", "{% if t %}\r\nx\r\n{% endif %}\r\ny\r\n", "\n", "\n\n", "", "{{ n }}\n", "{{ 'a\r\nb' }}"]:
        cases.append({"template": template, "want": render(template, CONTEXT)})
    path = DATA / "jinja" / "cases.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    head = json.dumps({"jinja2": jinja2.__version__, "context": CONTEXT}, ensure_ascii=False)[:-1]
    path.write_text(head + ', "cases": [\n' + lines + "\n]}\n", encoding="utf-8")
    errors = sum(c["want"] is None for c in cases)
    print(f"{len(cases)} cases, {errors} of them errors")


if __name__ == "__main__":
    main()
