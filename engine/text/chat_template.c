/* The chat format: finds the model's template, runs it, and encodes the result such that special
 * tokens are recognised in its frame but not in users' text. The rendering's mask separates the two
 * byte by byte, so the ids are exactly the reference's for ordinary text (blanks absorbed by a
 * special token, the dummy prefix after it), whatever the template does with the contents.
 * Immutable after load: any thread. */
#include "engine/text/chat_template.h"

#include "engine/base/mapping.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/text/chat_formats.h"
#include "engine/text/tool_tellings.h"

#include <stdio.h>
#include <string.h>

static const struct format {
    const char *name, *text;
} formats[] = {
#define X(name, text) {name, text},
    CHAT_FORMATS(X)
#undef X
};

enum { VARIABLE_BOS, VARIABLE_EOS, VARIABLE_UNK, VARIABLE_PAD, VARIABLE_COUNT };

struct chat_template {
    struct jinja *jinja;
    char *source; /* NULL: the model has none */
    /* a separate template for conversations with tools, or the model's with a prefix that describes
     * them; NULL: none */
    struct jinja *tool_jinja;
    char *tool_source;
    const struct tokenizer *tokenizer;
    char *tokens[VARIABLE_COUNT];
    struct jinja_variable variables[VARIABLE_COUNT];
    struct answer_format answers;
    struct chat_tools tools;
    json_t *globals; /* NULL: none; read only */
    time_t now;
    char notice[320];
};

static const char *const variable_names[VARIABLE_COUNT] = {"bos_token", "eos_token", "unk_token",
                                                           "pad_token"};

const char *chat_template_notice(const struct chat_template *c)
{
    return c->notice[0] ? c->notice : NULL;
}

void chat_template_ends(const struct tokenizer *t, void (*fn)(void *ctx, int id), void *ctx)
{
    static const char *const names[] = {"<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",
                                        "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
                                        "<|return|>",    "<|call|>",      "<|calls|>"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int id = tokenizer_find(t, names[i], strlen(names[i]));
        bool control = false;
        size_t len;

        if (id >= 0 && tokenizer_piece(t, id, &len, &control) && control)
            fn(ctx, id);
    }
}

const char *chat_template_source(const struct chat_template *c)
{
    return c->source ? c->source : "";
}

bool chat_template_asks(const struct chat_template *c, const char *name)
{
    return c->source && strstr(c->source, name) != NULL;
}

struct chat_tools chat_template_tools(const struct chat_template *c)
{
    return c->tools;
}

struct answer_format chat_template_answers(const struct chat_template *c)
{
    return c->answers;
}

/* "bos_token": "<s>" or {"content": "<s>", ...} */
static const char *token_text(const json_t *config, const char *name)
{
    const json_t *v = json_object_get(config, name);

    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

/* A string, or a list of named templates: "default", and "tool_use" where there are tools. */
static const char *template_of(const json_t *config, const char *which)
{
    const json_t *v = json_object_get(config, "chat_template"), *each;
    size_t i;

    json_array_foreach(v, i, each)
    {
        const char *name = json_string_value(json_object_get(each, "name"));

        if (name && strcmp(name, which) == 0)
            return json_string_value(json_object_get(each, "template"));
    }
    return json_string_value(v);
}

static void keep_tool_source(struct chat_template *c, const char *text, size_t len, bool *memory)
{
    if (text) {
        c->tool_source = mem_string_n(text, len);
        *memory = *memory || !c->tool_source;
    }
}

static int set_token(struct chat_template *c, int which, const char *text, size_t len)
{
    if (!text || c->tokens[which])
        return 0;
    c->tokens[which] = mem_string_n(text, len);
    c->variables[which] = (struct jinja_variable){variable_names[which], c->tokens[which], len};
    return c->tokens[which] ? 0 : -1;
}

/* The template's text, mem_*; NULL: none (or out of memory, see *memory). */
static char *find_in_folder(struct chat_template *c, const struct weight_file *f, bool *memory,
                            struct error *why)
{
    size_t size, len = 0;
    const char *data = weight_file_aux(f, "chat_template.jinja", &size), *text = data;
    json_error_t where;
    json_t *config = NULL;
    char *copy = NULL;

    if (data)
        len = size;
    data = weight_file_aux(f, "tokenizer_config.json", &size);
    if (data) {
        config = json_load_wide(data, size, 0, &where);
        if (!config)
            error_set(why, ERR_MODEL, "tokenizer_config.json:%d: %s", where.line, where.text);
        if (!text && (text = template_of(config, "default"))) {
            const char *tools = template_of(config, "tool_use");

            len = strlen(text);
            keep_tool_source(c, tools == text ? NULL : tools, tools ? strlen(tools) : 0, memory);
        }
        for (int i = 0; i < VARIABLE_COUNT; i++) {
            const char *token = token_text(config, variable_names[i]);

            if (token && set_token(c, i, token, strlen(token)) < 0)
                *memory = true;
        }
    }
    if (text) {
        copy = mem_string_n(text, len);
        *memory = *memory || !copy;
    }
    json_decref(config);
    return copy;
}

static char *find_in_gguf(struct chat_template *c, const struct weight_file *f, bool *memory)
{
    static const char *const keys[VARIABLE_COUNT] = {"tokenizer.ggml.bos_token_id",
                                                     "tokenizer.ggml.eos_token_id",
                                                     "tokenizer.ggml.unknown_token_id",
                                                     "tokenizer.ggml.padding_token_id"};
    struct meta_value v;
    char *copy;

    for (int i = 0; i < VARIABLE_COUNT; i++) {
        size_t len;
        const char *text;

        v = weight_file_meta(f, keys[i]);
        text = v.type == META_INT && v.i >= 0 && v.i < 1 << 30
                   ? tokenizer_piece(c->tokenizer, (int)v.i, &len, NULL)
                   : NULL;
        if (text && set_token(c, i, text, len) < 0)
            *memory = true;
    }
    v = weight_file_meta(f, "tokenizer.chat_template.tool_use");
    if (v.type == META_STRING)
        keep_tool_source(c, v.s, v.len, memory);
    v = weight_file_meta(f, "tokenizer.chat_template");
    if (v.type != META_STRING)
        return NULL;
    copy = mem_string_n(v.s, v.len);
    *memory = *memory || !copy;
    return copy;
}

/* A trial rendering shows whether the template uses unsupported features; some require a system
 * message. */
static int try_out(const struct chat_template *c, const struct stop *stop, struct error *e)
{
    char hello[] = "Hi", be[] = "Be kind.", *text;
    struct message m[] = {{.role = ROLE_SYSTEM, .text = be}, {.role = ROLE_USER, .text = hello}};
    struct error second;
    int status = chat_template_render(c, m + 1, 1, NULL, true, stop, &text, e);

    if (status == ERR_INPUT && chat_template_render(c, m, 2, NULL, true, stop, &text, &second) == 0)
        status = 0;
    if (status == 0)
        mem_free(text);
    return status;
}

/* Origin of the template: the user's file or option, or the model. */
struct source {
    char *text;        /* mem_*; NULL: there is none */
    const char *whose; /* before "chat template" in errors */
};

static int find_format(struct source *s, const char *name, struct error *e)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) {
            s->text = mem_string(formats[i].text);
            s->whose = "the built-in ";
            return s->text ? 0 : error_set(e, ERR_MEMORY, "out of memory for the chat template");
        }
    return error_set(e, ERR_USAGE, "there is no built-in chat template '%s'", name);
}

static int find_in_file(struct source *s, const char *path, struct error *e)
{
    struct mapping m = {0};
    int status = mapping_open(&m, path, e);

    if (status == 0 && m.size > JINJA_TEMPLATE_MAX)
        status = error_set(e, ERR_MODEL,
                           "%s: %zu bytes long; at most 1 MiB of a chat template is read", path,
                           m.size);
    if (status == 0) {
        s->text = mem_string_n((const char *)m.data, m.size);
        s->whose = "the given ";
        status = s->text ? mapping_check(&m, e)
                         : error_set(e, ERR_MEMORY, "out of memory for the chat template");
    }
    mapping_close(&m);
    return status;
}

/* why: the problem with the model's, if known */
static int find_source(struct chat_template *c, const struct weight_file *f,
                       const struct chat_template_options *o, struct source *s, struct error *why,
                       struct error *e)
{
    bool memory = false;

    s->whose = "the model's ";
    s->text = weight_file_format(f) == WEIGHT_GGUF ? find_in_gguf(c, f, &memory)
                                                   : find_in_folder(c, f, &memory, why);
    if (memory)
        return error_set(e, ERR_MEMORY, "out of memory for the chat template");
    if (!o || (!o->file && !o->name))
        return 0;
    mem_free(s->text);
    mem_free(c->tool_source);
    c->tool_source = NULL;
    *s = (struct source){0};
    return o->file ? find_in_file(s, o->file, e) : find_format(s, o->name, e);
}

static int read_globals(struct chat_template *c, const char *text, struct error *e)
{
    json_error_t where;

    if (!text)
        return 0;
    c->globals = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!c->globals)
        return error_set(e, ERR_USAGE,
                         "the chat template's values are no JSON (line %d, column %d): %.120s; "
                         "write {\"enable_thinking\": false}",
                         where.line, where.column, where.text);
    if (!json_is_object(c->globals))
        return error_set(e, ERR_USAGE,
                         "the chat template's values are no JSON object; write "
                         "{\"enable_thinking\": false}");
    return 0;
}

/* An unusable tool template is dropped: the other one is tested for tools instead. */
static int use_tool_template(struct chat_template *c, struct error *e)
{
    struct error why = {0};

    if (!c->tool_source ||
        jinja_parse(&c->tool_jinja, c->tool_source, strlen(c->tool_source), &why) == 0)
        return 0;
    mem_free(c->tool_source);
    c->tool_source = NULL;
    c->tool_jinja = NULL;
    if (why.code == ERR_MEMORY)
        *e = why;
    return why.code == ERR_MEMORY ? ERR_MEMORY : 0;
}

static int use(struct chat_template *c, const struct source *s, const struct stop *stop,
               struct error *e)
{
    struct error why = {0};
    int status = jinja_parse(&c->jinja, s->text, strlen(s->text), &why);

    if (status == 0)
        status = try_out(c, stop, &why);
    if (status == 0)
        return 0;
    if (status == ERR_MEMORY || status == ERR_CANCELLED) {
        *e = why;
        return status;
    }
    return error_set(e, ERR_MODEL,
                     "%s%.300s (--chat-template NAME or --chat-template-file FILE gives another, "
                     "--raw goes without)",
                     s->whose, why.text);
}

/* Context of trial renderings. */
struct trial {
    const struct chat_template *chat;
    const struct stop *stop;
};

static int try_render(void *ctx, const struct message *m, size_t n, const json_t *given,
                      bool add_generation_prompt, char **text, struct error *e)
{
    const struct trial *t = ctx;

    return chat_template_render(t->chat, m, n, given, add_generation_prompt, t->stop, text, e);
}

/* Determines its support of tools; if it writes calls but not the tools, adds a description. */
static int find_tools(struct chat_template *c, const struct stop *stop, struct error *e)
{
    struct trial t = {c, stop};
    struct strbuf b = {0};
    int status = chat_tools_find(&c->tools, try_render, &t, e);

    if (status < 0 || c->tools.tools || !c->tools.deepseek || c->tool_source)
        return status;
    strbuf_puts(&b, TELL_DEEPSEEK);
    strbuf_puts(&b, c->source);
    c->tool_source = strbuf_take(&b, NULL);
    strbuf_release(&b);
    if (!c->tool_source)
        return error_set(e, ERR_MEMORY, "out of memory for the chat template");
    status = use_tool_template(c, e);
    return status < 0 ? status : chat_tools_find(&c->tools, try_render, &t, e);
}

int chat_template_load(struct chat_template **out, const struct weight_file *f,
                       const struct tokenizer *t, const struct chat_template_options *o,
                       struct error *e)
{
    struct chat_template *c = mem_alloc(1, sizeof *c);
    struct source s = {0};
    struct error why = {0};
    int status;

    *out = NULL;
    if (!c)
        return error_set(e, ERR_MEMORY, "out of memory for the chat template");
    c->tokenizer = t;
    for (int i = 0; i < VARIABLE_COUNT; i++)
        c->variables[i] = (struct jinja_variable){variable_names[i], NULL, 0};
    c->now = o ? o->now : 0;
    status = read_globals(c, o ? o->globals : NULL, e);
    if (status == 0)
        status = find_source(c, f, o, &s, &why, e);
    if (status == 0)
        status = use_tool_template(c, e);
    if (status == 0 && s.text)
        status = use(c, &s, o ? o->stop : NULL, e);
    else if (status == 0) {
        snprintf(c->notice, sizeof c->notice,
                 "the built-in Phi format is used, because the model has no chat template%s%.200s",
                 why.code ? ": " : "", why.code ? why.text : "");
        status = jinja_parse(&c->jinja, formats[0].text, strlen(formats[0].text), e);
    }
    c->source = s.text;
    c->answers = answer_format_of(c->source, t);
    if (c->tool_source)
        c->answers.known |= answer_format_of(c->tool_source, t).known;
    if (status == 0)
        status = find_tools(c, o ? o->stop : NULL, e);
    if (status < 0) {
        chat_template_free(c);
        return status;
    }
    *out = c;
    return 0;
}

void chat_template_free(struct chat_template *c)
{
    if (!c)
        return;
    jinja_free(c->jinja);
    jinja_free(c->tool_jinja);
    for (int i = 0; i < VARIABLE_COUNT; i++)
        mem_free(c->tokens[i]);
    json_decref(c->globals);
    mem_free(c->source);
    mem_free(c->tool_source);
    mem_free(c);
}

static bool has_tools(const json_t *given)
{
    return json_array_size(json_object_get(given, "tools")) > 0;
}

static int render(const struct chat_template *c, const struct message *m, size_t n,
                  const json_t *given, bool add_generation_prompt, const struct stop *stop,
                  const struct jinja_output *out, struct error *e)
{
    struct jinja_input in = {.messages = m,
                             .n_messages = n,
                             .add_generation_prompt = add_generation_prompt,
                             .variables = c->variables,
                             .n_variables = VARIABLE_COUNT,
                             .stop = stop,
                             .globals = c->globals,
                             .given = given,
                             .now = c->now};

    return jinja_render(c->tool_jinja && has_tools(given) ? c->tool_jinja : c->jinja, &in, out, e);
}

int chat_template_render(const struct chat_template *c, const struct message *m, size_t n,
                         const json_t *given, bool add_generation_prompt, const struct stop *stop,
                         char **text, struct error *e)
{
    struct strbuf b = {0};
    int status = render(c, m, n, given, add_generation_prompt, stop,
                        &(struct jinja_output){.text = &b}, e);

    *text = status == 0 ? strbuf_take(&b, NULL) : NULL;
    strbuf_release(&b);
    if (status == 0 && !*text)
        return error_set(e, ERR_MEMORY, "out of memory for the rendered conversation");
    return status;
}

/* Starts of messages not reported by the template's loop (SIZE_MAX): the end of the previous one's
 * text. The mask counts modulo JINJA_MESSAGES, so a byte belongs to the next message with its
 * number. */
static void begin_behind_texts(size_t *begins, size_t n, const struct strbuf *mask)
{
    size_t i = 0, end = 0;

    for (size_t k = 0; k < mask->len; k++) {
        size_t own = (unsigned char)mask->data[k], next;

        if (!own || own == JINJA_GIVEN)
            continue;
        next = i + (own - 1 + JINJA_MESSAGES - i % JINJA_MESSAGES) % JINJA_MESSAGES;
        if (next >= n)
            continue;
        for (; i < next; i++)
            if (begins[i + 1] == SIZE_MAX)
                begins[i + 1] = end;
        end = k + 1;
    }
    for (; i + 1 < n; i++)
        if (begins[i + 1] == SIZE_MAX)
            begins[i + 1] = end;
}

/* Start of the generation prompt: the end of the common prefix with a rendering without it. */
static int find_end(const struct chat_template *c, const struct message *m, size_t n,
                    const json_t *given, const struct stop *stop, const struct strbuf *text,
                    const struct strbuf *mask, size_t *end, struct error *e)
{
    struct strbuf whole = {0};
    struct error why = {0};
    int status = render(c, m, n, given, false, stop, &(struct jinja_output){.text = &whole}, &why);

    *end = 0;
    if (status == 0)
        while (*end < whole.len && *end < text->len && whole.data[*end] == text->data[*end])
            ++*end;
    /* it cannot be rendered without: use the end of the last user text */
    else
        for (size_t k = 0; k < text->len; k++)
            if (mask->data[k])
                *end = k + 1;
    strbuf_release(&whole);
    if (status != ERR_CANCELLED && status != ERR_MEMORY)
        return 0;
    *e = why;
    return status;
}

/* Converts offsets of the text to indices of the ids: the first id of the piece with the border, so
 * a border inside a special token is before it. */
static void starts_of(int *starts, const size_t *begins, size_t n, const size_t *offsets, int n_ids,
                      size_t text_len)
{
    int up = 0, at;

    starts[0] = 0;
    for (size_t i = 1; i <= n; i++) {
        while (up < n_ids && offsets[up] <= begins[i])
            up++;
        at = up;
        while (at > 1 && offsets[at - 2] == offsets[at - 1])
            at--;
        at = begins[i] >= text_len ? n_ids : at - (at > 0);
        starts[i] = at < starts[i - 1] ? starts[i - 1] : at;
    }
}

/* Offset of the id in the text: its piece, and the text of the ids before it there. */
static size_t text_offset(const struct chat_template *c, const int *ids, const size_t *offsets,
                          int at)
{
    int first = at;
    char *text = NULL;
    size_t len = 0;

    while (first > 0 && offsets[first - 1] == offsets[at])
        first--;
    if (at > first &&
        tokenizer_decode(c->tokenizer, ids + first, at - first, true, &text, &len, NULL) < 0)
        len = 0;
    mem_free(text);
    return offsets[at] + len;
}

/* Line `line` of the template, trimmed. */
static char *line_text(const struct chat_template *c, int line)
{
    const char *at = chat_template_source(c), *end;

    for (; line > 1 && (end = strchr(at, '\n')); line--)
        at = end + 1;
    at += strspn(at, " \t");
    end = at + strcspn(at, "\r\n");
    while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return mem_string_n(at, (size_t)(end - at));
}

int chat_template_line(const struct chat_template *c, const struct message *m, size_t n,
                       const json_t *given, bool add_generation_prompt, int at, int *line,
                       char **its, struct error *e)
{
    struct strbuf text = {0}, mask = {0}, again = {0};
    struct jinja_line wanted = {0};
    size_t *offsets = NULL;
    int *ids = NULL, n_ids = 0;
    int status = render(c, m, n, given, add_generation_prompt, NULL,
                        &(struct jinja_output){.text = &text, .mask = &mask}, e);

    *its = NULL;
    if (status == 0)
        status = tokenizer_encode_masked(c->tokenizer, strbuf_text(&text), text.len, true,
                                         (unsigned char *)mask.data, NULL, &ids, &n_ids, &offsets,
                                         e);
    if (status == 0 && at >= 0 && at < n_ids) {
        wanted.offset = text_offset(c, ids, offsets, at);
        status = render(c, m, n, given, add_generation_prompt, NULL,
                        &(struct jinja_output){.text = &again, .wanted = &wanted}, e);
    }
    *line = status == 0 ? wanted.line : 0;
    if (*line)
        *its = line_text(c, *line);
    mem_free(ids);
    mem_free(offsets);
    strbuf_release(&again);
    strbuf_release(&mask);
    strbuf_release(&text);
    return status;
}

int chat_template_encode(const struct chat_template *c, const struct message *m, size_t n,
                         const json_t *given, bool add_generation_prompt, const struct stop *stop,
                         int **ids, int *n_ids, int *starts, struct error *e)
{
    struct strbuf text = {0}, mask = {0};
    size_t *offsets = NULL, *begins = starts ? mem_alloc(n + 1, sizeof *begins) : NULL;
    int status = 0;

    *ids = NULL;
    *n_ids = 0;
    if (starts && !begins)
        status = error_set(e, ERR_MEMORY, "no memory for a conversation of %zu messages", n);
    if (status == 0)
        status = render(c, m, n, given, add_generation_prompt, stop,
                        &(struct jinja_output){.text = &text, .mask = &mask, .begins = begins}, e);
    if (status == 0)
        status = tokenizer_encode_masked(c->tokenizer, strbuf_text(&text), text.len, true,
                                         (unsigned char *)mask.data, stop, ids, n_ids,
                                         starts ? &offsets : NULL, e);
    if (status == 0 && starts && add_generation_prompt)
        status = find_end(c, m, n, given, stop, &text, &mask, &begins[n], e);
    if (status == 0 && starts) {
        begin_behind_texts(begins, n, &mask);
        starts_of(starts, begins, n, offsets, *n_ids, text.len);
        if (!add_generation_prompt)
            starts[n] = *n_ids;
    }
    if (status < 0) {
        mem_free(*ids);
        *ids = NULL;
        *n_ids = 0;
    }
    mem_free(begins);
    mem_free(offsets);
    strbuf_release(&text);
    strbuf_release(&mask);
    return status;
}
