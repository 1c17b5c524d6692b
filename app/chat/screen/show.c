/* From the conversation to the screen: events and telemetry into the screen's model, messages into
 * its blocks. UI thread. */
#include "app/chat/screen/internal.h"

#include "app/chat/cache_doctor.h"
#include "app/common/model_places.h"
#include "app/connect/server.h"
#include "app/lab/said.h"
#include "app/mcp/record.h"
#include "app/setup/screen/panels_option.h"
#include "app/setup/screen/screen_setup.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/file/dtype.h"
#include "ui/chatview.h"
#include "ui/input_line.h"
#include "ui/screen/screen.h"
#include "ui/token_ink.h"

#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NOTIFY_SECONDS 5 /* shorter answers need no notification */

static struct ui_block *last_answer(struct ui_model *m)
{
    size_t i;

    for (i = m->n_blocks; i-- > 0;)
        if (m->blocks[i].kind == UI_ASSISTANT)
            return &m->blocks[i];
    return NULL;
}

/* The heading line of an answer. */
static void block_take(struct ui_block *b, const struct transcript_entry *from)
{
    snprintf(b->plan, sizeof b->plan, "%s", from->plan);
    snprintf(b->adapters, sizeof b->adapters, "%s", from->adapters);
    b->seconds = from->seconds;
    b->tok_s = from->tok_s;
    b->tokens = from->tokens;
    b->paced = from->paced;
}

/* The entry's index in the conversation, and its other branches. */
static void block_place(struct ui_block *b, const struct transcript_entry *from, size_t i)
{
    b->entry = (int)i + 1;
    b->which = (int)from->which + 1;
    b->of = (int)from->others.n + 1;
}

/* Notifies a user who is looking at another window. */
static void notify(struct chat *s, double seconds)
{
    char text[96];

    if (s->options->notify == 0 || seconds < NOTIFY_SECONDS)
        return;
    snprintf(text, sizeof text, "the answer is there, after %.0f s", seconds);
    terminal_notify(s->terminal, (enum terminal_notice)(s->options->notify - 1), text);
}

static void hook_event(void *ctx, const struct event *ev)
{
    struct chat *s = ctx;
    uint64_t now = clock_now();
    const struct telemetry *t;

    ui_model_event(&s->model, ev, now);
    if (ev->kind == EVENT_REPORT || ev->kind == EVENT_STOPPED)
        s->measuring = false;
    if (ev->kind == EVENT_READY) {
        const struct engine_info *info = conversation_info(s->conversation);
        const struct server *server = conversation_server(s->conversation);

        chat_sampling_show(s); /* a model has default values of its own */
        if (server) {
            snprintf(s->model.model_name, sizeof s->model.model_name, "%.*s", UI_NAME - 1,
                     server->model);
            snprintf(s->model.model_type, sizeof s->model.model_type, "%s",
                     server_kind_word(server->kind));
        }

        if (info) {
            const struct hparams *h = &info->model->hp;
            char *p;

            if (!strstr(conversation_model_path(s->conversation), "/snapshots/"))
                snprintf(s->model.model_name, sizeof s->model.model_name, "%s", info->model->name);
            snprintf(s->model.model_type, sizeof s->model.model_type, "%s",
                     dtype_info(info->model->type)->word);
            for (p = s->model.model_type; *p; p++)
                *p = (char)toupper((unsigned char)*p); /* Q4_0, as in file names */
            ui_model_ready(&s->model, h->n_layers, h->n_experts, h->n_experts_used);
            roofline_init(&s->roofline, info->model, (enum kv_type)s->options->cache_type_k,
                          (enum kv_type)s->options->cache_type_v);
            s->has_roofline = true;
            atomic_store(&s->weights_cached, 0);
        }
    }
    if (ev->kind == EVENT_TURN_DONE) {
        const struct transcript *said = conversation_transcript(s->conversation);
        struct ui_block *b = last_answer(&s->model);

        if (b && said->n && said->entries[said->n - 1].role == ROLE_ASSISTANT)
            block_take(b, &said->entries[said->n - 1]);
        s->memory_due = true;
        if (conversation_cache(s->conversation))
            s->model.cache_lost = conversation_cache(s->conversation)->lost;
        notify(s, clock_seconds(ev->done_turn.total_ns));
    }
    if (!due(&s->panels, now) && ev->kind == EVENT_TOKEN)
        return;
    t = conversation_telemetry(s->conversation);
    if (t)
        ui_model_telemetry(&s->model, t, now);
}

void chat_say(void *ctx, enum conversation_say kind, const char *text)
{
    struct chat *s = ctx;

    ui_block_add(&s->model,
                 kind == SAY_OUTPUT   ? UI_OUTPUT
                 : kind == SAY_NOTICE ? UI_NOTICE
                                      : UI_TROUBLE,
                 text);
    chatview_scroll_end(&s->model);
    if (kind == SAY_OUTPUT && !s->model.running)
        /* if longer than the pane, it is shown from its beginning */
        chatview_scroll_to_last(&s->model);
}

/* How the experts of the two answers differ, for the map. */
static void beside_map(struct chat *s)
{
    const struct said *first = conversation_beside_said(s->conversation, false),
                      *second = conversation_beside_said(s->conversation, true);
    float *difference = first && second ? said_difference(first, second) : NULL;

    ui_model_beside(&s->model, difference);
    mem_free(difference);
}

static void hook_attended(void *ctx, const char *name, const float *times, size_t n)
{
    struct chat *s = ctx;

    token_ink_attended(&s->model, name, times, n);
}

/* The second engine's answer grows in a block of output. */
static void hook_beside(void *ctx, const char *name, const char *text, size_t len)
{
    struct chat *s = ctx;
    char head[160];

    if (!text) {
        s->beside_block = 0;
        beside_map(s);
        return;
    }
    if (!len) {
        snprintf(head, sizeof head, "2 %s:\n", name);
        if (ui_block_add(&s->model, UI_OUTPUT, head))
            s->beside_block = s->model.n_blocks;
    } else if (s->beside_block && s->beside_block <= s->model.n_blocks) {
        struct ui_block *b = &s->model.blocks[s->beside_block - 1];

        ui_block_append(&s->model, b, text, len);
        b->wrap.width = 0;
    }
    s->model.dirty = true;
    chatview_scroll_end(&s->model);
}

/* The line that marks where the model's view begins. */
static void hook_view(void *ctx)
{
    struct chat *s = ctx;
    const struct transcript *t = conversation_transcript(s->conversation);
    size_t at = conversation_view(s->conversation),
           first = t->n && t->entries[0].role == ROLE_SYSTEM ? 1 : 0;
    const char *summary = at < t->n ? t->entries[at].summary : NULL;
    struct strbuf text = {0};

    if (at > first)
        strbuf_printf(&text,
                      summary ? "in place of %zu message%s: %s"
                              : "%zu message%s above are out of its sight; /compact puts a summary "
                                "in their place%s",
                      at - first, at - first == 1 ? "" : "s", summary ? summary : "");
    ui_block_view(&s->model, at > first ? (int)at + 1 : 0, strbuf_text(&text));
    strbuf_release(&text);
}

/* Adds the block of an entry; NULL: no memory. */
static struct ui_block *entry_show(struct chat *s, const struct transcript_entry *entry)
{
    static const enum ui_block_kind kinds[ROLES] = {[ROLE_SYSTEM] = UI_SYSTEM,
                                                    [ROLE_USER] = UI_USER,
                                                    [ROLE_ASSISTANT] = UI_ASSISTANT,
                                                    [ROLE_TOOL] = UI_TOOL};
    struct ui_block *b = ui_block_add(&s->model, kinds[entry->role], entry->text);

    if (b && entry->role == ROLE_TOOL)
        record_line(entry, b->tool, sizeof b->tool);
    return b;
}

static void hook_added(void *ctx, const struct transcript_entry *entry)
{
    struct chat *s = ctx;
    struct ui_block *b = entry->role == ROLE_ASSISTANT && entry->text[0] ? last_answer(&s->model)
                                                                         : NULL;

    if (!b)
        b = entry_show(s, entry);
    if (b && entry->role == ROLE_ASSISTANT) {
        b->open = true;
        b->stop = STOP_NONE;
        b->wrap.width = 0;
    }
    if (b)
        block_place(b, entry, conversation_transcript(s->conversation)->n - 1);
    s->shown = true;
    chatview_scroll_end(&s->model);
}

static enum stop_reason stop_of(const char *word)
{
    enum stop_reason r;

    for (r = STOP_TOKEN; r <= STOP_ERROR; r++)
        if (strcmp(word, stop_reason_word(r)) == 0)
            return r;
    return STOP_NONE;
}

static void hook_changed(void *ctx)
{
    struct chat *s = ctx;
    const struct transcript *t = conversation_transcript(s->conversation);
    size_t i;

    /* the same answer may be a different block */
    ui_model_forget(&s->model);
    ui_block_truncate(&s->model, 0);
    s->beside_block = 0;
    for (i = 0; i < t->n; i++) {
        const struct transcript_entry *from = &t->entries[i];
        struct ui_block *b = entry_show(s, from);

        if (!b)
            break;
        block_take(b, from);
        block_place(b, from, i);
        b->stop = stop_of(from->stop);
        if (from->reasoning)
            ui_block_thought(&s->model, s->model.n_blocks - 1, from->reasoning, 0);
    }
    if (conversation_answer_shown(s->conversation) && last_answer(&s->model))
        ui_model_recall(&s->model, last_answer(&s->model));
    hook_view(s);
    chatview_scroll_end(&s->model);
}

static void hook_edit(void *ctx, const char *text)
{
    input_set(text);
}

static int hook_columns(void *ctx)
{
    /* the mark before a line of output, and a blank */
    return ((struct chat *)ctx)->model.chat_width - 2;
}

static bool hook_copy(void *ctx, const char *text, size_t len)
{
    struct chat *s = ctx;

    terminal_copy(s->terminal, text, len);
    return true;
}

void chat_theme_take(struct chat *s)
{
    struct error e = {0};

    if (screen_theme_take(&s->model.theme, s->terminal, s->options, &e) < 0)
        chat_say(s, SAY_TROUBLE, e.text);
    s->model.dirty = true;
}

void chat_model_name(struct chat *s, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    if (path && strstr(path, "/snapshots/")) /* there the folder's name is a revision */
        model_places_name(path, s->model.model_name, sizeof s->model.model_name);
    else
        snprintf(s->model.model_name, sizeof s->model.model_name, "%s",
                 slash && slash[1] ? slash + 1
                 : path            ? path
                                   : "");
}

static void hook_closing(void *ctx)
{
    struct chat *s = ctx;

    s->has_roofline = s->traced = s->measuring = false;
    s->memory_due = false;
    atomic_store(&s->memory_speed, 0.0);
    machine_view_forget(s->machine, &s->model);
    screen_closing(&s->model);
    chat_model_name(s, conversation_model_path(s->conversation));
    s->model.model_type[0] = 0;
}

static void hook_placing(void *ctx, const char *plan, uint64_t wish)
{
    ui_model_placing(&((struct chat *)ctx)->model, plan, wish, clock_now());
}

/* The sampling settings that are not off: "temp 0.8 top-k 40 top-p 0.95". */
void chat_sampling_show(struct chat *s)
{
    const struct options *o = s->options;
    char *out = s->model.sampling;
    size_t size = sizeof s->model.sampling, n;

    n = (size_t)snprintf(out, size, "temp %g", o->temp);
    if (o->temp <= 0) /* greedy, whatever the other settings are */
        return;
    if (o->top_k > 0)
        n += (size_t)snprintf(out + n, size - n, " top-k %d", o->top_k);
    if (o->top_p < 1 && n < size)
        n += (size_t)snprintf(out + n, size - n, " top-p %g", o->top_p);
    if (o->min_p > 0 && n < size)
        snprintf(out + n, size - n, " min-p %g", o->min_p);
}

static void hook_set(void *ctx, const struct option *option)
{
    struct chat *s = ctx;
    size_t id = (size_t)(option - option_table);

    if (id == OPTION_ID_theme)
        chat_theme_take(s);
    else if (id == OPTION_ID_mouse)
        terminal_mouse(s->terminal, s->options->mouse);
    else if (id == OPTION_ID_panels)
        panels_option_take(&s->model, s->options);
    else if (id == OPTION_ID_update_ms)
        update_option_take(&s->model, s->options);
    else if (id == OPTION_ID_key_bar)
        s->model.key_bar = s->options->key_bar;
    s->model.hints = s->options->hints;
    s->model.pace = conversation_pace(s->conversation);
    chat_sampling_show(s);
}

struct conversation_hooks chat_hooks(struct chat *s)
{
    return (struct conversation_hooks){
        .ctx = s,
        .event = hook_event,
        .say = chat_say,
        .beside = hook_beside,
        .attended = hook_attended,
        .added = hook_added,
        .changed = hook_changed,
        .view = hook_view,
        .edit = hook_edit,
        .copy = hook_copy,
        .columns = hook_columns,
        .set = hook_set,
        .placing = hook_placing,
        .closing = hook_closing,
        .keys = true,
        .asks = true,
    };
}
