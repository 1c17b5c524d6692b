"""Writes cases.json: what jinja2 3.1 with Hugging Face's settings makes of these templates. python3 make.py cases.json"""
import json
import sys
from jinja2.sandbox import ImmutableSandboxedEnvironment
import jinja2, jinja2.ext
def raise_exception(m): raise jinja2.exceptions.TemplateError(m)
def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False): return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
env=ImmutableSandboxedEnvironment(trim_blocks=True,lstrip_blocks=True,extensions=[jinja2.ext.loopcontrols])
env.filters['tojson']=tojson
env.globals['raise_exception']=raise_exception
V=dict(bos_token='<s>',eos_token='<|endoftext|>',unk_token='<unk>',tools=None,documents=None)
convs=[
 [dict(role='user',content='Hi')],
 [dict(role='system',content='You are kind.'),dict(role='user',content='  What is "2+2"?\n')],
 [dict(role='user',content='Hi'),dict(role='assistant',content='Hello!'),dict(role='user',content='Größe 你好 🙂\ttab')],
 [dict(role='system',content='S'),dict(role='user',content='a'),dict(role='assistant',content=''),dict(role='user',content='<|end|> {{ x }}')],
]
T={
'phi': "{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
'chatml': "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
'bracket': """{%- if messages[0]['role'] == 'system' -%}
    {%- set system = messages[0]['content'] | trim -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set rest = messages -%}
{%- endif -%}
{{ bos_token }}
{%- for m in rest %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if m.role == 'user' %}
        {%- if loop.first and system is defined %}
            {{- ' [INST] ' + system + '\\n\\n' + m.content + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' ~ m['content'] ~ ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + m.content|trim + eos_token }}
    {%- endif %}
{%- endfor %}
""",
'blocks': """{# a comment
over two lines #}
{% set ns = namespace(n=0, seen='') %}
{% for message in messages if message.role != 'system' %}
    {% set ns.n = ns.n + 1 %}
    {% set ns.seen = ns.seen ~ message.role[0] ~ loop.index %}
  {{ loop.index }}/{{ loop.length }} {{ message['role'] | upper }}: {{ message.content | replace('a', 'b') }}
    {% if loop.last %}
last {{ loop.revindex }} {{ loop.previtem.role if loop.previtem is defined else 'none' }}
    {% elif loop.first %}
first
    {% else %}
middle
    {% endif %}
{% else %}
nobody
{% endfor %}
{{ ns.n }} {{ ns.seen }} {% if add_generation_prompt %} go{% endif %}
end
""",
'values': """{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 5 }} {{ 1 / 4 }} {{ 3.0 }} {{ true }} {{ none }} {{ [1, 'a', none] }} {{ {'k': 1} }}
{{ 'abc'[1] }} {{ 'abc'[-1] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[::-1] }} {{ [1,2,3,4][1:] | length }} {{ messages[-1].role }} {{ [1,2,3][:-1] }}
{{ 'x' in 'xyz' }} {{ 'q' not in 'xyz' }} {{ 2 in [1,2] }} {{ 'role' in messages[0] }} {{ not false and 1 == 1.0 }} {{ 'a' < 'b' }} {{ 1 != 2 or x.y }}
{{ undefined_thing }}|{{ undefined_thing | default('dflt') }}|{{ '' | default('e', true) }}|{{ none | default('n') }}
{{ messages | length }} {{ 'Straße' | length }} {{ 'Straé ÜBER' | upper }} {{ 'ÄB' | lower }} {{ 'hello world' | title }} {{ 'hELLO' | capitalize }}
{{ ['a','b'] | join(', ') }} {{ messages | map(attribute='role') | join('+') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ '  x '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x','c')) }} {{ 'aXbX'.replace('X', '-') }}
{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }} {{ 'a=b=c'.split('=', 1) }} {{ {'b': 1, 'a': 2}.items() | map('last') | list }} {{ {'b': 1, 'a': 2} | dictsort | map('first') | list }}
{{ {'k': [1, {'z': none}], 'u': 'ü"\\n'} | tojson }}
{{ [1, {'z': none}, []] | tojson(indent=2) }}
{{ range(3) | list }} {{ range(1, 7, 2) | list }} {{ 'é\\'s' ~ 5 ~ none }} {{ "it's" }} {{ 'x' if false }} {{ 'x' if false else 'y' }}
{{ 4 is even }} {{ 5 is divisibleby 5 }} {{ 'a' is string and 5 is number }} {{ messages is iterable }} {{ messages is not mapping }} {{ 3 | int + '4' | int }} {{ '2.5' | float }}
{{ 1.5 + 1 }} {{ 10 // 4 }} {{ 'ab' * 3 }} {{ (1, 2) | last }} {{ [3,1] | first }} {{ 'abc' | reverse }} {{ -3 | abs }} {{ 'a\\nb\\n\\nc' | indent(2) }}
""",
'more': """{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(reverse=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | join }}
{{ {1: 'x', 10: 'y', 2: 'z'} | dictsort | map('last') | join }} {{ {1: 'x'}[1] }} {{ {2: 'a'}.get(2) }} {% for k, v in {1: 2}.items() %}{{ k + v }}{% endfor %} {{ 'a' in nothing }}
{{ none | selectattr('x') | list | length }} {% if false %}{{ 1 | never_there }}{% endif %} {{ messages | rejectattr('role', 'in', ['user']) | list | length }}
{{ messages[0].content[:3] ~ '|' ~ messages[0]['content'][-2:] }} {{ loop is defined }} {{ messages | first | length }} {{ 'x' is in ['x', 'y'] }} {{ [1, 2] == [1, 2] }}
{% set a, b = 1, 'two' %}{{ a }}{{ b }} {% set l = [1] + [2] %}{{ l | join(',') }} {{ (messages | length > 1) | string | lower }} {{ 'a' if messages[1] is defined else 'b' }}
""",
'macro': """{% macro say(who, what='nothing', mark=':') %}
{{ who }}{{ mark }} {{ what }}
{% endmacro %}
{% for m in messages %}{{ say(m.role, m.content) }}{% endfor %}
{{ say('x', mark='!') }}{% set block %}
[{{ messages[0].content }}]
{% endset %}{{ block | trim }}
{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% raw %}{{ not run }}{% endraw %}
{% for x in [] %}a{% else %}empty{% endfor %} {{ loop is defined }}
{%- if messages[0].content -%}   tight   {%- endif -%}
   {%+ if true +%}
kept
{% endif %}
""",
# the layout of Zephyr 7B beta's, which is JetMoE's too (arXiv:2404.07413); the words are ours
'zephyr': """{% for m in messages %}
{% if m['role'] in ['system', 'user', 'assistant'] %}
{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
""",
'raises': "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for m in messages %}{{ m.role }}{% endfor %}",
}
out=[]
for name,t in T.items():
    for c in convs:
        for g in (True,False):
            try: text=env.from_string(t).render(messages=c,add_generation_prompt=g,**V)
            except jinja2.exceptions.TemplateError as e: text=None
            out.append(dict(name=name,messages=convs.index(c),add_generation_prompt=g,text=text))
json.dump(dict(templates=T,conversations=convs,cases=out),open(sys.argv[1],'w'),ensure_ascii=False,indent=0)
print(len(out), sum(o['text'] is None for o in out))
