/* Conversations as files: JSON in and out, text and Markdown out. UI thread. */
#include "app/common/transcript.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* "moetop_chat" of the files written, and of those with calls of tools, which earlier versions
 * cannot read */
#define FORMAT 1
#define FORMAT_TOOLS 2
#define DEPTH_MAX 200 /* branches inside branches */
#define BYTES_MAX ((size_t)256 << 20)

/* JSON strings must be UTF-8; invalid bytes become U+FFFD. */
static json_t *json_text(const char *text)
{
    size_t n = strlen(text), at = 0;
    json_t *v = json_stringn(text, n);
    char *clean;

    if (v || utf8_valid(text, n))
        return v;
    clean = mem_alloc(n * 3 + 1, 1);
    for (size_t i = 0; clean && i < n;) {
        uint32_t cp;

        i += utf8_decode(text + i, n - i, &cp);
        at += utf8_encode(cp, clean + at);
    }
    v = clean ? json_stringn(clean, at) : NULL;
    mem_free(clean);
    return v;
}

static json_t *plans_json(const struct transcript_entry *x)
{
    json_t *list = json_array();

    for (size_t i = 0; i < x->n_plans; i++) {
        json_t *o = json_object();

        json_object_set_new(o, "plan", json_text(x->plans[i].name));
        json_object_set_new(o, "first_token", json_integer(x->plans[i].first_token));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *entry_json(const struct transcript_entry *x);

/* Arrays of messages: the other branches from some entry on. */
static json_t *tails_json(const struct transcript_tails *l)
{
    json_t *all = json_array();

    for (size_t i = 0; i < l->n; i++) {
        json_t *tail = json_array();

        for (size_t k = 0; k < l->tails[i].n; k++)
            json_array_append_new(tail, entry_json(&l->tails[i].entries[k]));
        json_array_append_new(all, tail);
    }
    return all;
}

/* The members of struct transcript_entry's `tools`, as a file names them: "content" is the text
 * that is shown. */
static const struct {
    const char *ours, *theirs;
} tool_members[] = {{"tool_calls", "tool_calls"},
                    {"content", "content_without_calls"},
                    {"tool_call_id", "tool_call_id"},
                    {"name", "name"},
                    {"tool_run", "tool_run"}};
#define TOOL_MEMBERS (sizeof tool_members / sizeof *tool_members)

static void tools_put(json_t *o, const struct transcript_entry *x)
{
    for (size_t i = 0; i < TOOL_MEMBERS && x->tools; i++) {
        json_t *v = json_object_get(x->tools, tool_members[i].ours);

        if (v)
            json_object_set(o, tool_members[i].theirs, v);
    }
}

static json_t *entry_json(const struct transcript_entry *x)
{
    json_t *o = json_object();

    json_object_set_new(o, "role", json_string(role_word(x->role)));
    json_object_set_new(o, "content", json_text(x->text));
    if (x->reasoning)
        json_object_set_new(o, "reasoning_content", json_text(x->reasoning));
    if (x->summary)
        json_object_set_new(o, "summary_before", json_text(x->summary));
    if (x->plan[0])
        json_object_set_new(o, "plan", json_text(x->plan));
    if (x->n_plans > 1)
        json_object_set_new(o, "plans", plans_json(x));
    if (x->stop[0])
        json_object_set_new(o, "stop", json_text(x->stop));
    if (x->adapters[0])
        json_object_set_new(o, "adapters", json_text(x->adapters));
    if (x->tokens)
        json_object_set_new(o, "tokens", json_integer(x->tokens));
    if (x->seconds > 0 && isfinite(x->seconds))
        json_object_set_new(o, "seconds", json_real(x->seconds));
    if (x->paced)
        json_object_set_new(o, "paced", json_true());
    if (x->tok_s > 0 && isfinite(x->tok_s))
        json_object_set_new(o, "tok_s", json_real(x->tok_s));
    if (x->receipts)
        json_object_set(o, "receipts", x->receipts);
    tools_put(o, x);
    if (x->others.n) {
        json_object_set_new(o, "branch", json_integer((json_int_t)x->which));
        json_object_set_new(o, "branches", tails_json(&x->others));
    }
    return o;
}

static bool calls_tools(const struct transcript_entry *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (x[i].tools)
            return true;
        for (size_t k = 0; k < x[i].others.n; k++)
            if (calls_tools(x[i].others.tails[k].entries, x[i].others.tails[k].n))
                return true;
    }
    return false;
}

/* As JSON, allocated by jansson (free). */
static int json_text_of(const struct transcript *t, char **text, struct error *e)
{
    json_t *root = json_object(), *list = json_array(), *settings = json_object();
    time_t created = (time_t)t->created;
    char when[32];
    struct tm tm;
    bool complete;

    gmtime_r(&created, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_object_set_new(root, "moetop_chat",
                        json_integer(calls_tools(t->entries, t->n) ? FORMAT_TOOLS : FORMAT));
    json_object_set_new(root, "created", json_string(when));
    if (t->model)
        json_object_set_new(root, "model", json_text(t->model));
    for (size_t i = 0; i < t->n_settings; i++)
        json_object_set_new(settings, t->settings[i].key, json_text(t->settings[i].value));
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(list, entry_json(&t->entries[i]));
    complete = json_array_size(list) == t->n && json_object_size(settings) == t->n_settings;
    json_object_set_new(root, "settings", settings);
    json_object_set_new(root, "messages", list);
    if (t->waiting.n && t->waiting_at == t->n) { /* /undo, and no message was added since */
        json_object_set_new(root, "undone", tails_json(&t->waiting));
        json_object_set_new(root, "undone_branch", json_integer((json_int_t)t->waiting_which));
    }
    *text = complete ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory for saving the conversation");
}

int transcript_as(const struct transcript *t, const char *path, char **text, size_t *n,
                  struct error *e)
{
    int rc;
    FILE *f;

    *text = NULL;
    if (!path_stem(path, ".md")) {
        rc = json_text_of(t, text, e);
        *n = rc == 0 ? strlen(*text) : 0;
        return rc;
    }
    if (!(f = open_memstream(text, n)))
        return error_set(e, ERR_MEMORY, "out of memory for saving the conversation");
    rc = transcript_markdown(t, f, e);
    fclose(f);
    if (rc < 0) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

int transcript_save(const struct transcript *t, const char *path, struct error *e)
{
    char *text, folder[PATH_MAX], *slash;
    int rc = json_text_of(t, &text, e), fd;

    if (rc < 0)
        return rc;
    snprintf(folder, sizeof folder, "%s", path);
    if ((slash = strrchr(folder, '/')) && slash != folder) {
        *slash = 0;
        rc = file_make_folders(folder, e);
    }
    /* A conversation is private: file_replace keeps the mode of an existing file, so a new file is
     * created first. */
    if (rc == 0 && (fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)) >= 0)
        close(fd);
    if (rc == 0)
        rc = file_replace(path, text, strlen(text), e);
    free(text); /* allocated by jansson */
    return rc;
}

static void copy_word(char *out, size_t size, const json_t *v)
{
    if (json_is_string(v))
        utf8_strip(out, size, json_string_value(v), json_string_length(v), 0);
}

/* Older files have no such list: only the one name is known. */
static int read_plans(struct transcript *t, const json_t *list, struct error *e)
{
    char name[64];
    int rc = 0;

    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const json_t *o = json_array_get(list, i);
        json_int_t first = json_integer_value(json_object_get(o, "first_token"));

        name[0] = 0;
        copy_word(name, sizeof name, json_object_get(o, "plan"));
        if (name[0])
            rc = transcript_placed(t, t->n - 1, name,
                                   first > 0 && first <= INT_MAX ? (int)first : 1, e);
    }
    return rc;
}

static int read_entry(struct transcript *t, const json_t *o, size_t i, int depth, struct error *e);

/* Reads one branch like a separate conversation. */
static int read_tail(const json_t *list, int depth, struct transcript_tail *out, struct error *e)
{
    struct transcript own;
    int rc = depth > DEPTH_MAX
                 ? error_set(e, ERR_INPUT, "branches inside branches, more than %d deep", DEPTH_MAX)
                 : 0;

    transcript_init(&own);
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = read_entry(&own, json_array_get(list, i), i, depth, e);
    if (rc == 0 && own.n == 0)
        rc = error_set(e, ERR_INPUT, "a branch has no messages");
    if (rc == 0) {
        /* siblings of its first message are stored at the branching point of the path */
        transcript_tails_release(&own.entries[0].others);
        own.entries[0].which = 0;
        *out = (struct transcript_tail){own.entries, own.n};
        own.entries = NULL;
        own.n = 0;
    }
    transcript_release(&own);
    return rc;
}

/* *which: limited to the branches there are; below `most`. */
static int read_tails(const json_t *list, const json_t *number, size_t more, int depth,
                      struct transcript_tails *out, size_t *which, struct error *e)
{
    size_t n = json_array_size(list);
    json_int_t k = json_integer_value(number);
    int rc = 0;

    if (!n)
        return 0;
    if (!(out->tails = mem_alloc(n, sizeof *out->tails)))
        return error_set(e, ERR_MEMORY, "out of memory for the branches of the conversation");
    while (out->n < n &&
           (rc = read_tail(json_array_get(list, out->n), depth + 1, &out->tails[out->n], e)) == 0)
        out->n++;
    *which = k < 0 ? 0 : (size_t)k >= n + more ? n + more - 1 : (size_t)k;
    return rc;
}

static bool is_call(const json_t *call)
{
    const json_t *f = json_object_get(call, "function");

    return json_is_string(json_object_get(call, "id")) &&
           json_is_string(json_object_get(f, "name")) &&
           json_is_string(json_object_get(f, "arguments"));
}

/* Calls and results in another form are left out: the text remains. */
static bool tools_valid(enum role role, const json_t *o)
{
    const json_t *calls = json_object_get(o, "tool_calls"), *call;
    size_t i;

    if (role == ROLE_TOOL)
        return json_is_string(json_object_get(o, "tool_call_id")) &&
               json_is_string(json_object_get(o, "name"));
    if (role != ROLE_ASSISTANT || !json_array_size(calls))
        return false;
    json_array_foreach(calls, i, call) if (!is_call(call)) return false;
    return true;
}

static json_t *tools_of(enum role role, const json_t *o)
{
    json_t *tools = tools_valid(role, o) ? json_object() : NULL;

    for (size_t i = 0; i < TOOL_MEMBERS && tools; i++) {
        json_t *v = json_object_get(o, tool_members[i].theirs);

        if (v)
            json_object_set(tools, tool_members[i].ours, v);
    }
    return tools;
}

static int read_entry(struct transcript *t, const json_t *o, size_t i, int depth, struct error *e)
{
    const char *role = json_string_value(json_object_get(o, "role")),
               *text = json_string_value(json_object_get(o, "content"));
    struct transcript_entry *x;
    int which = 0, rc;

    while (role && which < ROLES && strcmp(role, role_word((enum role)which)) != 0)
        which++;
    if (!role || which == ROLES)
        return error_set(e, ERR_INPUT, "message %zu has no role (system, user, assistant or tool)",
                         i + 1);
    if (!text)
        return error_set(e, ERR_INPUT, "message %zu has no content", i + 1);
    rc = transcript_append(t, (enum role)which, text, e);
    if (rc < 0)
        return rc;
    x = &t->entries[t->n - 1];
    x->tools = tools_of(x->role, o);
    text = json_string_value(json_object_get(o, "reasoning_content"));
    if (text && (rc = transcript_reasoning(t, t->n - 1, text, e)) < 0)
        return rc;
    text = json_string_value(json_object_get(o, "summary_before"));
    if (text && x->role == ROLE_USER && (rc = transcript_summary(t, t->n - 1, text, e)) < 0)
        return rc;
    copy_word(x->plan, sizeof x->plan, json_object_get(o, "plan"));
    copy_word(x->stop, sizeof x->stop, json_object_get(o, "stop"));
    copy_word(x->adapters, sizeof x->adapters, json_object_get(o, "adapters"));
    x->seconds = json_number_value(json_object_get(o, "seconds"));
    x->tok_s = json_number_value(json_object_get(o, "tok_s"));
    if (json_integer_value(json_object_get(o, "tokens")) > 0 &&
        json_integer_value(json_object_get(o, "tokens")) <= INT_MAX)
        x->tokens = (int)json_integer_value(json_object_get(o, "tokens"));
    x->paced = json_is_true(json_object_get(o, "paced"));
    if (json_is_array(json_object_get(o, "receipts")))
        x->receipts = json_incref(json_object_get(o, "receipts"));
    if ((rc = read_tails(json_object_get(o, "branches"), json_object_get(o, "branch"), 1, depth,
                         &x->others, &x->which, e)) < 0)
        return rc;
    return read_plans(t, json_object_get(o, "plans"), e);
}

static int read_root(struct transcript *t, json_t *root, struct error *e)
{
    json_t *list = json_object_get(root, "messages"), *settings = json_object_get(root, "settings"),
           *v;
    const char *key, *created = json_string_value(json_object_get(root, "created"));
    struct tm tm = {0};
    size_t i;
    int rc = 0;

    if (!json_is_array(list))
        return error_set(e, ERR_INPUT, "not a saved conversation (no \"messages\")");
    if (json_integer_value(json_object_get(root, "moetop_chat")) > FORMAT_TOOLS)
        return error_set(e, ERR_INPUT, "written by a newer moetop; format %d is understood",
                         FORMAT_TOOLS);
    t->format = (int)json_integer_value(json_object_get(root, "moetop_chat"));
    t->format = t->format < 0 ? 0 : t->format;
    if (created && strptime(created, "%Y-%m-%dT%H:%M:%SZ", &tm))
        t->created = (int64_t)timegm(&tm);
    if (json_is_string(json_object_get(root, "model")))
        rc = transcript_model(t, json_string_value(json_object_get(root, "model")), e);
    json_object_foreach(settings, key, v)
    {
        if (rc == 0 && json_is_string(v))
            rc = transcript_set(t, key, json_string_value(v), e);
    }
    for (i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = read_entry(t, json_array_get(list, i), i, 0, e);
    if (rc == 0)
        rc = read_tails(json_object_get(root, "undone"), json_object_get(root, "undone_branch"), 0,
                        0, &t->waiting, &t->waiting_which, e);
    t->waiting_at = t->n;
    return rc;
}

bool transcript_recognised(const char *text, size_t n)
{
    json_t *root = json_read(text, n, "", NULL);
    bool chat = json_is_array(json_object_get(root, "messages"));

    json_decref(root);
    return chat;
}

int transcript_load(struct transcript *t, const char *path, struct error *e)
{
    static const struct file_kind kind = {"saved conversation", BYTES_MAX, ERR_INPUT};
    char *text;
    size_t n = 0;
    int rc = file_read(path, &kind, &text, &n, e);

    if (rc == 0)
        rc = transcript_read(t, text, n, path, e);
    mem_free(text);
    return rc;
}

int transcript_read(struct transcript *t, const char *text, size_t n, const char *name,
                    struct error *e)
{
    struct transcript fresh;
    struct error why = {0};
    json_t *root = json_read(text, n, name, &why);
    int rc = root ? 0 : error_set(e, ERR_INPUT, "%s", why.text);

    transcript_init(&fresh);
    if (rc == 0 && (rc = read_root(&fresh, root, e)) < 0)
        error_prefix(e, "%s", name);
    json_decref(root);
    if (rc < 0) {
        transcript_release(&fresh);
        return rc;
    }
    transcript_release(t);
    *t = fresh;
    return 0;
}

/* ---- text and Markdown ---- */

static void put_safe(const char *text, FILE *f)
{
    size_t n = strlen(text),
           size = utf8_strip(NULL, 0, text, n, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB) + 1;
    char *out = mem_alloc(size, 1);

    if (!out)
        return;
    size = utf8_strip(out, size, text, n, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
    while (size && out[size - 1] == '\n')
        size--;
    fwrite(out, 1, size, f);
    mem_free(out);
}

static int finish(FILE *f, struct error *e)
{
    if (fflush(f) == 0 && !ferror(f))
        return 0;
    return error_set(e, ERR_IO, "cannot write the conversation: %s", strerror(errno));
}

#define RESULT_PRINTED 400 /* bytes */

/* A tool's result may be a whole file. */
static void put_beginning(const char *text, FILE *f)
{
    size_t n = strnlen(text, RESULT_PRINTED);
    char *part;

    n -= utf8_incomplete(text, n);
    if ((part = mem_string_n(text, n)))
        put_safe(part, f);
    if (text[n])
        fprintf(f, "\n[%zu bytes more]", strlen(text) - n);
    mem_free(part);
}

int transcript_print(const struct transcript *t, FILE *f, struct error *e)
{
    static const char *const heads[] = {"system:", "you:", "moetop:", "tool:"};

    for (size_t i = 0; i < t->n; i++) {
        const struct transcript_entry *x = &t->entries[i];

        fprintf(f, "%s%s\n", i ? "\n" : "", heads[x->role]);
        if (x->role == ROLE_TOOL)
            put_beginning(x->text, f);
        else
            put_safe(x->text, f);
        fputc('\n', f);
    }
    return finish(f, e);
}

int transcript_markdown(const struct transcript *t, FILE *f, struct error *e)
{
    static const char *const heads[] = {"System", "You", "moetop", "Tool"};
    time_t created = (time_t)t->created;
    const char *name = t->model ? strrchr(t->model, '/') : NULL;
    char when[64];
    struct tm tm;

    localtime_r(&created, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    fprintf(f, "# Conversation of %s\n", when);
    if (t->model) {
        fputs("\nModel: ", f);
        put_safe(name && name[1] ? name + 1 : t->model, f);
        fputc('\n', f);
    }
    for (size_t i = 0; i < t->n; i++) {
        const struct transcript_entry *x = &t->entries[i];
        const char *between = "\n\n*";

        if (x->summary) {
            fputs("\n---\n\n*For the model this stands for all above:* ", f);
            put_safe(x->summary, f);
            fputc('\n', f);
        }
        fprintf(f, "\n## %s\n\n", heads[x->role]);
        if (x->reasoning) {
            fputs("<details><summary>Reasoning</summary>\n\n", f);
            put_safe(x->reasoning, f);
            fputs("\n\n</details>\n\n", f);
        }
        put_safe(x->text, f);
        if (x->tokens) {
            fprintf(f, "%s%d tokens", between, x->tokens);
            between = ", ";
        }
        if (x->tok_s > 0) {
            fprintf(f, "%s%.1f tokens/s", between, x->tok_s);
            between = ", ";
        }
        if (x->plan[0]) {
            fprintf(f, "%splacement ", between);
            put_safe(x->plan, f);
            between = ", ";
        }
        if (x->adapters[0]) {
            fprintf(f, "%sadapters ", between);
            put_safe(x->adapters, f);
            between = ", ";
        }
        if (x->stop[0] && strcmp(x->stop, "stop") != 0) {
            fprintf(f, "%sended by ", between);
            put_safe(x->stop, f);
            between = ", ";
        }
        fputs(between[0] == ',' ? "*\n" : "\n", f);
    }
    return finish(f, e);
}
