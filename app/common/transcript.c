/* Conversations in memory. UI thread. See transcript.h; files are transcript_file.c. */
#include "app/common/transcript.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the conversation");
}

void transcript_init(struct transcript *t)
{
    *t = (struct transcript){.created = (int64_t)time(NULL)};
}

void transcript_release(struct transcript *t)
{
    transcript_truncate(t, 0);
    transcript_tails_release(&t->waiting);
    for (size_t i = 0; i < t->n_settings; i++) {
        mem_free(t->settings[i].key);
        mem_free(t->settings[i].value);
    }
    mem_free(t->settings);
    mem_free(t->entries);
    mem_free(t->model);
    *t = (struct transcript){0};
}

int transcript_append(struct transcript *t, enum role role, const char *text, struct error *e)
{
    char *copy;

    assert(text);
    if (!MEM_ROOM(t->entries, t->n, t->size, 16))
        return no_memory(e);
    copy = mem_string(text);
    if (!copy)
        return no_memory(e);
    t->entries[t->n++] = (struct transcript_entry){.role = role, .text = copy};
    transcript_fork_join(t);
    return 0;
}

int transcript_reasoning(struct transcript *t, size_t i, const char *text, struct error *e)
{
    char *copy = *text ? mem_string(text) : NULL;

    assert(i < t->n);
    if (*text && !copy)
        return no_memory(e);
    mem_free(t->entries[i].reasoning);
    t->entries[i].reasoning = copy;
    return 0;
}

int transcript_summary(struct transcript *t, size_t i, const char *text, struct error *e)
{
    char *copy = *text ? mem_string(text) : NULL;

    assert(i < t->n && t->entries[i].role == ROLE_USER);
    if (*text && !copy)
        return no_memory(e);
    mem_free(t->entries[i].summary);
    t->entries[i].summary = copy;
    return 0;
}

int transcript_text(struct transcript *t, size_t i, const char *text, struct error *e)
{
    char *copy = mem_string(text);

    assert(i < t->n && text);
    if (!copy)
        return no_memory(e);
    mem_free(t->entries[i].text);
    t->entries[i].text = copy;
    return 0;
}

size_t transcript_last(const struct transcript *t, enum role role)
{
    size_t i;

    for (i = t->n; i-- > 0;)
        if (t->entries[i].role == role)
            return i;
    return t->n;
}

/* Each name once, in the order of first use; names that do not fit are replaced by an ellipsis. */
static void plan_names(struct transcript_entry *x)
{
    size_t n = 0;

    for (size_t i = 0; i < x->n_plans; i++) {
        const char *name = x->plans[i].name;
        size_t before = 0;

        while (strcmp(x->plans[before].name, name) != 0)
            before++;
        if (before < i)
            continue;
        if (n + 1 + strlen(name) + strlen("+\u2026") >= sizeof x->plan) {
            snprintf(x->plan + n, sizeof x->plan - n, "%s\u2026", n ? "+" : "");
            return;
        }
        n += (size_t)snprintf(x->plan + n, sizeof x->plan - n, "%s%s", n ? "+" : "", name);
    }
}

int transcript_placed(struct transcript *t, size_t i, const char *plan, int first_token,
                      struct error *e)
{
    struct transcript_entry *x = &t->entries[i];

    assert(i < t->n && first_token > 0);
    if (x->n_plans && strcmp(x->plans[x->n_plans - 1].name, plan) == 0)
        return 0;
    if (!MEM_FIT(x->plans, x->n_plans + 1))
        return no_memory(e);
    x->plans[x->n_plans] = (struct transcript_plan){.first_token = first_token};
    snprintf(x->plans[x->n_plans++].name, sizeof x->plans->name, "%.58s", plan);
    plan_names(x);
    return 0;
}

int transcript_receipt(struct transcript *t, size_t i, struct json_t *receipt, struct error *e)
{
    assert(i < t->n);
    if (!t->entries[i].receipts)
        t->entries[i].receipts = json_array();
    return json_array_append_new(t->entries[i].receipts, receipt) < 0 ? no_memory(e) : 0;
}

void transcript_tools(struct transcript *t, size_t i, struct json_t *tools)
{
    assert(i < t->n);
    json_decref(t->entries[i].tools);
    t->entries[i].tools = tools;
}

void transcript_entry_release(struct transcript_entry *x)
{
    transcript_tails_release(&x->others);
    mem_free(x->text);
    mem_free(x->reasoning);
    mem_free(x->summary);
    mem_free(x->plans);
    json_decref(x->receipts);
    json_decref(x->tools);
}

void transcript_truncate(struct transcript *t, size_t n)
{
    while (t->n > n)
        transcript_entry_release(&t->entries[--t->n]);
    if (t->n < t->waiting_at)
        transcript_tails_release(&t->waiting);
}

int transcript_system(struct transcript *t, const char *text, struct error *e)
{
    size_t n = 0;
    bool has = text && text[0];
    int rc = transcript_unfork(t, e); /* indices in the path change */
    struct transcript_entry own;

    if (rc == 0 && has)
        rc = transcript_append(t, ROLE_SYSTEM, text, e);

    if (rc < 0)
        return rc;
    if (has)
        own = t->entries[--t->n];
    for (size_t i = 0; i < t->n; i++) {
        if (t->entries[i].role == ROLE_SYSTEM)
            transcript_entry_release(&t->entries[i]);
        else
            t->entries[n++] = t->entries[i];
    }
    t->n = n;
    if (has) {
        memmove(t->entries + 1, t->entries, n * sizeof *t->entries);
        t->entries[0] = own;
        t->n++;
    }
    return 0;
}

int transcript_model(struct transcript *t, const char *model, struct error *e)
{
    char *copy = mem_string(model);

    if (model && !copy)
        return no_memory(e);
    mem_free(t->model);
    t->model = copy;
    return 0;
}

static size_t find_setting(const struct transcript *t, const char *key)
{
    size_t i = 0;

    while (i < t->n_settings && strcmp(t->settings[i].key, key) != 0)
        i++;
    return i;
}

int transcript_set(struct transcript *t, const char *key, const char *value, struct error *e)
{
    size_t i = find_setting(t, key);
    char *name, *copy = mem_string(value);

    assert(key);
    if (value && !copy)
        return no_memory(e);
    if (i < t->n_settings) {
        mem_free(t->settings[i].value);
        t->settings[i].value = copy;
        if (!value) {
            mem_free(t->settings[i].key);
            memmove(&t->settings[i], &t->settings[i + 1],
                    (--t->n_settings - i) * sizeof *t->settings);
        }
        return 0;
    }
    if (!value)
        return 0;
    name = mem_string(key);
    if (!name || !MEM_FIT(t->settings, t->n_settings + 1)) {
        mem_free(name);
        mem_free(copy);
        return no_memory(e);
    }
    t->settings[t->n_settings++] = (struct transcript_setting){name, copy};
    return 0;
}

const char *transcript_get(const struct transcript *t, const char *key)
{
    size_t i = find_setting(t, key);

    return i < t->n_settings ? t->settings[i].value : NULL;
}

size_t transcript_view(const struct transcript *t)
{
    size_t first = t->n && t->entries[0].role == ROLE_SYSTEM ? 1 : 0;

    for (size_t i = t->n; i-- > first;)
        if (t->entries[i].summary)
            return i;
    return first;
}

/* The members that a template reads; NULL: none. */
static json_t *members_of(const struct transcript_entry *x)
{
    json_t *calls = json_object_get(x->tools, "tool_calls");

    if (!x->tools)
        return NULL;
    if (calls)
        return json_pack("{s:O}", "tool_calls", calls);
    return json_pack("{s:O*, s:O*}", "tool_call_id", json_object_get(x->tools, "tool_call_id"),
                     "name", json_object_get(x->tools, "name"));
}

static int message_copy(const struct transcript_entry *x, struct message *m)
{
    size_t size = strlen(x->text) + (x->summary ? strlen(x->summary) : 0) + 64;
    const char *plain = json_string_value(json_object_get(x->tools, "content"));

    *m = (struct message){
        .role = x->role, .reasoning = mem_string(x->reasoning), .members = members_of(x)};
    if (!x->summary)
        m->text = mem_string(plain ? plain : x->text);
    else if ((m->text = mem_alloc(size, 1)))
        snprintf(m->text, size, "[What was said before, in short: %s]\n\n%s", x->summary, x->text);
    return m->text && !m->reasoning == !x->reasoning ? 0 : ERR_MEMORY;
}

int transcript_messages(const struct transcript *t, struct message **out, size_t *n,
                        struct error *e)
{
    size_t view = transcript_view(t), count = 0;
    struct message *m = mem_alloc(t->n, sizeof *m);

    *out = NULL;
    *n = 0;
    if (!m)
        return no_memory(e);
    for (size_t i = 0; i < t->n; i++) {
        if (i < view && t->entries[i].role != ROLE_SYSTEM)
            continue;
        if (message_copy(&t->entries[i], &m[count++]) == 0)
            continue;
        while (count-- > 0) {
            json_decref(m[count].members);
            mem_free(m[count].reasoning);
            mem_free(m[count].text);
        }
        mem_free(m);
        return no_memory(e);
    }
    *out = m;
    *n = count;
    return 0;
}
