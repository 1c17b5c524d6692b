/* See model.h. */
#include "ui/model.h"
#include "engine/base/mem.h"
#include "ui/glyph.h"
#include "ui/keys.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ui_model_init(struct ui_model *m)
{
    memset(m, 0, sizeof *m);
    theme_init(&m->theme);
    m->anchor_block = -1;
    m->focus = m->zoom = m->instead = -1;
    m->shown.ttft_s = -1;
    m->settle_ns = UI_SETTLE_NS;
    /* unknown before the first sample */
    for (int i = 0; i < DEVICE_MAX; i++)
        m->devices[i].use = m->devices[i].mhz = m->devices[i].temperature = m->devices[i].watts =
            NAN;
    m->loading = true;
    m->dirty = true;
    return 0;
}

void ui_model_beside(struct ui_model *m, const float *difference)
{
    size_t n = (size_t)m->n_cells;
    bool first = !m->beside;

    mem_free(m->beside);
    m->beside = difference && n ? mem_alloc(n, sizeof *m->beside) : NULL;
    if (m->beside) {
        memcpy(m->beside, difference, n * sizeof *m->beside);
        m->heat = first ? HEAT_BESIDE : m->heat;
    } else if (m->heat == HEAT_BESIDE) {
        m->heat = HEAT_ANSWER;
    }
    m->dirty = true;
}

static void telemetry_arrays_free(struct ui_model *m)
{
    mem_free(m->live.answer);
    mem_free(m->live.session);
    mem_free(m->live.now);
    mem_free(m->live.ran_on);
    mem_free(m->live.planned);
    mem_free(m->live.newest);
    mem_free(m->live.here);
    mem_free(m->live.edited);
    mem_free(m->light);
    mem_free(m->token_experts);
    ui_model_beside(m, NULL);
    memset(&m->live, 0, sizeof m->live);
    m->light = NULL;
    m->token_experts = NULL;
    m->n_cells = 0;
}

static void block_release(struct ui_block *b)
{
    mem_free(b->text);
    mem_free(b->wrap.runs);
    mem_free(b->wrap.lines);
    memset(b, 0, sizeof *b);
}

void ui_model_release(struct ui_model *m)
{
    ui_block_truncate(m, 0);
    mem_free(m->blocks);
    mem_free(m->attended.times);
    telemetry_arrays_free(m);
    for (int i = 0; i < LAYOUT_PANELS; i++)
        mem_free(m->panel_state[i]);
    memset(m, 0, sizeof *m);
}

int ui_model_ready(struct ui_model *m, int n_layers, int n_experts, int n_used)
{
    size_t n = (size_t)n_layers * (size_t)n_experts;

    assert(n_layers > 0 && n_experts > 0 && n_used > 0);
    telemetry_arrays_free(m);
    m->token_width = n_layers * n_used;
    m->live.answer = mem_alloc(n, sizeof *m->live.answer);
    m->live.session = mem_alloc(n, sizeof *m->live.session);
    m->live.now = mem_alloc(n, sizeof *m->live.now);
    m->live.ran_on = mem_alloc(n, 1);
    m->live.planned = mem_alloc(n, 1);
    m->live.newest = mem_alloc(n, 1);
    m->live.here = mem_alloc(n, 1);
    m->live.edited = mem_alloc(n, 1);
    m->light = mem_alloc(n, 1);
    m->token_experts = mem_alloc((size_t)UI_TOKENS * (size_t)(m->token_width ? m->token_width : 1),
                                 sizeof *m->token_experts);
    if (!m->live.answer || !m->live.session || !m->live.now || !m->live.ran_on ||
        !m->live.planned || !m->live.newest || !m->live.here || !m->live.edited || !m->light ||
        !m->token_experts) {
        telemetry_arrays_free(m);
        return ERR_MEMORY;
    }
    memset(m->live.ran_on, PLAN_NO_DEVICE, n);
    memset(m->live.here, 1, n);
    m->live.n_layers = n_layers;
    m->live.n_experts = n_experts;
    m->live.n_experts_used = n_used;
    m->n_cells = (int)n;
    m->dirty = true;
    return 0;
}

void ui_model_closing(struct ui_model *m)
{
    telemetry_arrays_free(m);
    ui_model_forget(m);
    m->aside = 0;
    m->forgotten = m->ready = m->running = m->prefilling = m->stopped = false;
    m->loading = true;
    m->progress_done = m->progress_total = 0;
    m->wish = m->lit_tokens = 0;
    m->wanted_plan[0] = m->memory_share[0] = 0;
    m->bytes_per_token = 0;
    m->shown = (struct ui_metrics){.ttft_s = -1};
    m->decode.count = m->prefill.count = 0;
    m->sample_tokens = m->sample_prefilled = m->sample_last = 0;
    m->cursor_layer = 0;
    m->instead = -1;
}

struct ui_block *ui_block_add(struct ui_model *m, enum ui_block_kind kind, const char *text)
{
    struct ui_block *b;

    assert(text);
    if (!MEM_ROOM(m->blocks, m->n_blocks, m->room_blocks, 16))
        return NULL;
    b = &m->blocks[m->n_blocks];
    memset(b, 0, sizeof *b);
    b->kind = kind;
    m->n_blocks++;
    m->dirty = true;
    if (ui_block_append(m, b, text, strlen(text)) < 0) {
        m->n_blocks--;
        return NULL;
    }
    return b;
}

struct ui_block *ui_block_thought(struct ui_model *m, size_t answer, const char *text, int tokens)
{
    struct ui_block *b = ui_block_add(m, UI_THOUGHT, text), made;

    assert(answer < m->n_blocks);
    if (!b)
        return NULL;
    b->tokens = tokens;
    made = *b;
    memmove(m->blocks + answer + 1, m->blocks + answer,
            (m->n_blocks - 1 - answer) * sizeof *m->blocks);
    m->blocks[answer] = made;
    return &m->blocks[answer];
}

static void block_remove(struct ui_model *m, size_t i)
{
    block_release(&m->blocks[i]);
    memmove(m->blocks + i, m->blocks + i + 1, (--m->n_blocks - i) * sizeof *m->blocks);
    m->inked_block -= m->inked_block > i;
    if (m->anchor_block > (int)i)
        m->anchor_block--;
    m->dirty = true;
}

void ui_block_view(struct ui_model *m, int entry, const char *text)
{
    struct ui_block made;
    size_t at = 0;

    for (size_t i = m->n_blocks; i-- > 0;)
        if (m->blocks[i].kind == UI_VIEW)
            block_remove(m, i);
    while (at < m->n_blocks && (!entry || m->blocks[at].entry != entry))
        at++;
    if (at == m->n_blocks || !ui_block_add(m, UI_VIEW, text))
        return;
    if (at && m->blocks[at - 1].kind == UI_THOUGHT) /* it belongs to the block */
        at--;
    made = m->blocks[m->n_blocks - 1];
    memmove(m->blocks + at + 1, m->blocks + at, (m->n_blocks - 1 - at) * sizeof *m->blocks);
    m->blocks[at] = made;
    m->inked_block += m->inked_block >= at;
    if (m->anchor_block >= (int)at)
        m->anchor_block++;
}

int ui_block_append(struct ui_model *m, struct ui_block *b, const char *text, size_t len)
{
    assert(b >= m->blocks && b < m->blocks + m->n_blocks);
    assert(text || len == 0);
    if (b->len + len + 1 > b->size) {
        size_t size = (b->len + len + 1) * 2;

        if (!MEM_FIT(b->text, size))
            return ERR_MEMORY;
        b->size = size;
    }
    memcpy(b->text + b->len, text, len);
    b->len += len;
    b->text[b->len] = 0;
    b->wrap.whole = false;
    m->dirty = true;
    return 0;
}

void ui_block_truncate(struct ui_model *m, size_t n_blocks)
{
    while (m->n_blocks > n_blocks)
        block_release(&m->blocks[--m->n_blocks]);
    if (m->anchor_block >= (int)m->n_blocks)
        m->anchor_block = -1;
    m->dirty = true;
}

struct ui_block *ui_block_answer(struct ui_model *m)
{
    size_t i;

    for (i = m->n_blocks; i-- > 0;)
        if (m->blocks[i].open && m->blocks[i].kind == UI_ASSISTANT)
            return &m->blocks[i];
    return NULL;
}

bool ui_model_asked(const struct ui_model *m)
{
    for (size_t i = 0; i < m->n_blocks; i++)
        if (m->blocks[i].kind == UI_USER)
            return true;
    return false;
}

void ui_model_note(struct ui_model *m, uint64_t now, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(m->note, sizeof m->note, format, args);
    va_end(args);
    m->note_until = now + 4000000000ull;
    m->dirty = true;
}

/* "cpu", or "cpu, prompts gpu". */
static void plans_read(struct ui_model *m, const char *names)
{
    static const char word[] = ", prompts ";
    const char *prompts = strstr(names, word);

    snprintf(m->live.plan, sizeof m->live.plan, "%.*s",
             (int)(prompts ? prompts - names : (long)strlen(names)), names);
    snprintf(m->live.prompt_plan, sizeof m->live.prompt_plan, "%s",
             prompts ? prompts + sizeof word - 1 : "");
}

const char *ui_plan_now(const struct ui_model *m)
{
    bool prompt = m->prefilling || (m->serving && m->live.phase == PHASE_PROMPT);

    return prompt && m->live.prompt_plan[0] ? m->live.prompt_plan : m->live.plan;
}

void ui_model_placing(struct ui_model *m, const char *plan, uint64_t wish, uint64_t now)
{
    m->wish = wish;
    snprintf(m->wanted_plan, sizeof m->wanted_plan, "%s", plan);
    m->spin_at = now + UI_SPIN_NS;
    m->dirty = true;
}

static void token_note(struct ui_model *m, const struct token_event *t)
{
    struct ui_token *k;
    size_t n = t->len < sizeof k->text - 1 ? t->len : sizeof k->text - 1;

    if (t->id < 0) /* text that was held back, not a token */
        return;
    k = &m->tokens[m->n_tokens++ % UI_TOKENS];
    memset(k, 0, sizeof *k);
    while (n < t->len && n > 0 && (t->text[n] & 0xc0) == 0x80)
        n--;
    memcpy(k->text, t->text, n);
    k->id = t->id;
    k->probability = t->probability;
    k->share = t->share;
    k->candidates = t->candidates;
    k->forbidden = t->forbidden;
    k->us = (uint32_t)(t->compute_ns / 1000);
    k->serial = t->serial;
    if (m->likely.id == t->id)
        k->likely = m->likely;
    m->likely.n = 0;
}

static void progress_set(struct ui_model *m, const struct event *ev)
{
    m->progress_done = ev->progress.done;
    m->progress_total = ev->progress.total;
}

static void turn_started(struct ui_model *m)
{
    m->running = m->prefilling = true;
    m->forgotten = false;
    m->aside = 0;
    m->sample_tokens = 0;
    m->sample_prefilled = 0;
}

/* The thought before an answer. */
static struct ui_block *thought_of(struct ui_model *m, const struct ui_block *answer)
{
    size_t i = (size_t)(answer - m->blocks);

    return i > 0 && m->blocks[i - 1].kind == UI_THOUGHT ? &m->blocks[i - 1] : NULL;
}

static void thought_close(struct ui_model *m, const struct ui_block *answer)
{
    struct ui_block *thought = thought_of(m, answer);

    if (thought && thought->open) {
        thought->open = false;
        thought->wrap.width = 0;
    }
}

static void thought_came(struct ui_model *m, struct ui_block *answer, const struct token_event *t)
{
    struct ui_block *thought = thought_of(m, answer);

    answer->part = PART_REASONING;
    if (!thought)
        thought = ui_block_thought(m, (size_t)(answer - m->blocks), "", 0);
    if (!thought)
        return;
    thought->open = true;
    thought->tokens += t->id >= 0;
    ui_block_append(m, thought, t->text, t->len);
}

static void token_came(struct ui_model *m, const struct token_event *t)
{
    struct ui_block *b = ui_block_answer(m);

    m->prefilling = false;
    token_note(m, t);
    if (!b)
        return;
    b->tokens += t->id >= 0;
    if (t->id >= 0 && !b->first_token)
        b->first_token = m->n_tokens;
    m->inked_block = (size_t)(b - m->blocks);
    if (t->part == PART_REASONING) {
        thought_came(m, b, t);
        m->inked_block = (size_t)(ui_block_answer(m) - m->blocks); /* its index has changed */
        return;
    }
    if (t->len) {
        const char *border = answer_part_border(b->part, t->part);

        b->part = t->part;
        ui_block_append(m, b, border, strlen(border));
        thought_close(m, b);
    }
    if (t->id >= 0)
        m->tokens[(m->n_tokens - 1) % UI_TOKENS].at = (uint32_t)b->len;
    ui_block_append(m, b, t->text, t->len);
}

/* Completes the answer; NULL: there was none. */
static struct ui_block *answer_close(struct ui_model *m, enum stop_reason why)
{
    struct ui_block *b = ui_block_answer(m);

    if (b) {
        thought_close(m, b);
        b->open = false;
        b->wrap.width = 0; /* unclosed marks are literal now */
        b->stop = why;
    }
    return b;
}

static void turn_done(struct ui_model *m, const struct event *ev)
{
    int tokens = ev->done_turn.completion_tokens;
    uint64_t decode_ns = ev->done_turn.decode_ns;
    struct ui_block *b = answer_close(m, ev->done_turn.reason);

    m->running = m->prefilling = false;
    m->last_stop = ev->done_turn.reason;
    if (!b)
        return;
    b->seconds = (double)ev->done_turn.total_ns * 1e-9;
    b->tokens = tokens;
    if (tokens > 1 && decode_ns)
        b->tok_s = (double)(tokens - 1) * 1e9 / (double)decode_ns;
    snprintf(b->plan, sizeof b->plan, "%s", m->live.plan);
    if (m->live.prompt_plan[0])
        snprintf(b->plan, sizeof b->plan, "%.30s, prompts %.30s", m->live.plan,
                 m->live.prompt_plan);
}

static void engine_failed(struct ui_model *m, const char *why)
{
    m->running = m->prefilling = m->loading = false;
    if (answer_close(m, STOP_ERROR))
        m->last_stop = STOP_ERROR;
    ui_block_add(m, UI_TROUBLE, why ? why : "the engine failed");
}

/* A temporary notice of a driver, "compiling … (once per driver)": useless when it is over; the
 * log has it. */
static bool passes(const char *notice)
{
    return strstr(notice, "(once per ") != NULL;
}

void ui_model_event(struct ui_model *m, const struct event *ev, uint64_t now)
{
    m->dirty = true;
    switch (ev->kind) {
    case EVENT_EMBEDDING: break; /* never asked for here */
    case EVENT_LOADING:
        m->loading = true;
        progress_set(m, ev);
        break;
    case EVENT_READY:
        m->loading = false;
        m->ready = true;
        break;
    case EVENT_TURN_STARTED:
        turn_started(m);
        progress_set(m, ev);
        m->prefill_at = now;
        m->prefill_from = m->progress_done;
        m->prefill_rate = 0;
        break;
    case EVENT_PREFILL:
        progress_set(m, ev);
        if (now > m->prefill_at && m->progress_done > m->prefill_from)
            m->prefill_rate = (double)(m->progress_done - m->prefill_from) * 1e9 /
                              (double)(now - m->prefill_at);
        break;
    case EVENT_TOKEN: token_came(m, &ev->token); break;
    case EVENT_TURN_DONE:
        turn_done(m, ev);
        m->settle_at = now;
        break;
    case EVENT_PLAN:
        if (ev->wishes >= m->wish) /* else an earlier request's: the newest is still pending */
            m->wanted_plan[0] = 0;
        plans_read(m, ev->text ? ev->text : "");
        break;
    case EVENT_NOTICE:
        if (ev->text && passes(ev->text))
            ui_model_note(m, now, "%s", ev->text);
        else if (ev->text)
            ui_block_add(m, UI_NOTICE, ev->text);
        break;
    case EVENT_PROGRESS:
        if (ev->text)
            ui_model_note(m, now, "%s", ev->text);
        break;
    case EVENT_LOGPROBS: m->likely = ev->logprobs; break;
    case EVENT_REPORT: /* shown as the output of the requesting command */ break;
    case EVENT_ERROR: engine_failed(m, ev->text); break;
    case EVENT_STOPPED:
        m->stopped = true;
        m->wanted_plan[0] = 0;
        m->running = false;
        break;
    }
}

static void marked_light(struct ui_model *m)
{
    uint64_t at = (m->marked - 1) % UI_TOKENS;
    const uint16_t *row = m->token_experts + at * (uint64_t)m->token_width;
    int used = m->live.n_experts_used;

    if (!m->n_cells || !m->tokens[at].has_experts)
        return;
    memset(m->light, 0, (size_t)m->n_cells);
    for (int i = 0; i < m->token_width; i++)
        if (row[i] != TELEMETRY_NO_EXPERT && row[i] < m->live.n_experts)
            m->light[i / used * m->live.n_experts + row[i]] = UI_LIGHT;
}

void ui_model_mark(struct ui_model *m, uint64_t serial)
{
    if (m->marked && !serial && m->light)
        memset(m->light, 0, (size_t)m->n_cells);
    m->marked = serial;
    if (serial)
        marked_light(m);
}

/* Highlights the newest token's cells, and cells that have moved to another device. */
static void light_up(struct ui_model *m, const struct telemetry *t, uint64_t now)
{
    bool new_token = t->recent_count != m->lit_tokens, any = false;
    int i;

    for (i = 0; i < m->n_cells; i++) {
        /* not with the phase: then the whole map changes its colours */
        bool moved = m->live.ran_on[i] != t->ran_on[i] && m->live.ran_on[i] != PLAN_NO_DEVICE &&
                     m->live.phase == t->phase;

        if ((new_token && t->newest[i]) || moved) {
            m->light[i] = UI_LIGHT;
            any = true;
        } else if (new_token && m->light[i] > 1) {
            /* only one token is the newest, at any speed */
            m->light[i] = 1;
        }
    }
    if (any)
        m->light_at = now + UI_FADE_NS;
    m->lit_tokens = t->recent_count;
}

/* Stores the experts of every token since the last call, as far back as the telemetry has them. */
static void token_experts_note(struct ui_model *m, const struct telemetry *t)
{
    uint64_t kept = m->n_tokens < UI_TOKENS ? m->n_tokens : UI_TOKENS,
             made = t->session_generated_tokens, i;

    for (i = 0; i < kept; i++) {
        uint64_t at = (m->n_tokens - 1 - i) % UI_TOKENS;
        struct ui_token *k = &m->tokens[at];

        if (k->has_experts || !k->serial || k->serial + TELEMETRY_ROUTES <= made)
            break;
        if (k->serial > made)
            /* its event arrived before the telemetry */
            continue;
        memcpy(m->token_experts + at * (uint64_t)m->token_width,
               t->routes + (k->serial - 1) % TELEMETRY_ROUTES * (uint64_t)m->token_width,
               (size_t)m->token_width * sizeof *m->token_experts);
        k->has_experts = true;
    }
}

static void answer_forget(struct ui_model *m)
{
    if (m->live.answer)
        memset(m->live.answer, 0, (size_t)m->n_cells * sizeof *m->live.answer);
    m->live.context_used = 0;
}

void ui_model_forget(struct ui_model *m)
{
    m->forgotten = true;
    if (m->inked_block < m->n_blocks && m->blocks[m->inked_block].first_token) {
        m->aside = m->n_tokens;
        m->aside_first = m->blocks[m->inked_block].first_token;
    }
    m->n_tokens = m->marked = m->asked = 0;
    for (size_t i = 0; i < m->n_blocks; i++)
        m->blocks[i].first_token = 0;
    m->token_lists++;
    m->last_stop = STOP_NONE;
    answer_forget(m);
    m->dirty = true;
}

bool ui_model_recall(struct ui_model *m, struct ui_block *answer)
{
    if (!m->aside)
        return false;
    m->forgotten = false;
    m->n_tokens = m->aside;
    m->aside = 0;
    answer->first_token = m->aside_first;
    m->inked_block = (size_t)(answer - m->blocks);
    m->last_stop = answer->stop;
    m->token_lists++;
    m->live.serial = 0; /* take the next telemetry completely, whether or not it is new */
    m->dirty = true;
    return true;
}

void ui_model_telemetry(struct ui_model *m, const struct telemetry *t, uint64_t now)
{
    struct telemetry mine = m->live;
    size_t n = (size_t)m->n_cells;

    assert(t->n_layers >= 0 && t->n_experts >= 0);
    if (t->serial == m->live.serial && t->serial) {
        if (n && t->n_layers * t->n_experts == m->n_cells)
            /* events of tokens already counted in this state */
            token_experts_note(m, t);
        return;
    }
    if (t->n_layers * t->n_experts == 0) { /* a server's: its layers are unknown */
        m->live = *t;
        m->dirty = true;
        return;
    }
    if (t->n_layers * t->n_experts != m->n_cells || !n) {
        if (ui_model_ready(m, t->n_layers, t->n_experts, t->n_experts_used) < 0)
            return;
        mine = m->live;
        n = (size_t)m->n_cells;
    }
    light_up(m, t, now);
    m->live = *t;
    m->live.answer = memcpy(mine.answer, t->answer, n * sizeof *t->answer);
    m->live.session = memcpy(mine.session, t->session, n * sizeof *t->session);
    m->live.now = memcpy(mine.now, t->now, n * sizeof *t->now);
    m->live.ran_on = memcpy(mine.ran_on, t->ran_on, n);
    m->live.planned = memcpy(mine.planned, t->planned, n);
    m->live.newest = memcpy(mine.newest, t->newest, n);
    m->live.here = memcpy(mine.here, t->here, n);
    m->live.edited = t->edited ? memcpy(mine.edited, t->edited, n) : memset(mine.edited, 0, n);
    if (m->forgotten)
        answer_forget(m);
    /* owned by the engine; useful parts are copied next */
    m->live.routes = NULL;
    token_experts_note(m, t);
    if (m->marked)
        marked_light(m);
    m->dirty = true;
}

static void history_add(struct ui_history *h, double v)
{
    h->values[h->count++ % UI_HISTORY] = (float)v;
}

void ui_model_system(struct ui_model *m, const struct ui_system *s)
{
    m->system = *s;
    if (s->valid && s->n_cores > 0 && !isnan(s->process_cores))
        history_add(&m->use[0], s->process_cores / (float)s->n_cores);
    for (int i = 1; i < DEVICE_MAX && i < m->live.n_devices; i++)
        if (!isnan(m->devices[i].use))
            history_add(&m->use[i], m->devices[i].use);
    m->dirty = true;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Updates the displayed figures. */
static void settle(struct ui_model *m)
{
    const struct telemetry *t = &m->live;
    struct ui_metrics *f = &m->shown;
    uint32_t sorted[TELEMETRY_RECENT];
    size_t n = t->recent_count < TELEMETRY_RECENT ? (size_t)t->recent_count : TELEMETRY_RECENT;

    f->state = t->state;
    f->decode_tok_s = m->serving ? m->serving->answers_tok_s : t->decode_tok_s;
    f->prefill_tok_s = m->serving ? m->serving->prompts_tok_s : t->prefill_tok_s;
    if (m->serving)
        f->ttft_s = m->serving->first_p50_s > 0 ? m->serving->first_p50_s : -1;
    else if (t->first_token_ns > t->turn_start_ns && t->turn_start_ns)
        f->ttft_s = (double)(t->first_token_ns - t->turn_start_ns) * 1e-9;
    f->generated = t->generated_tokens;
    f->prompt = t->prompt_tokens;
    f->cached = t->cached_tokens;
    f->session_generated = t->session_generated_tokens;
    f->p50_ms = f->p95_ms = f->max_ms = 0;
    if (n) {
        memcpy(sorted, t->recent_us, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, by_size);
        f->p50_ms = sorted[(n - 1) / 2] * 1e-3;
        f->p95_ms = sorted[(n * 95 + 99) / 100 - 1] * 1e-3;
        f->max_ms = sorted[n - 1] * 1e-3;
    }
}

/* One bar of the history: the computing rate of the tokens since the last sample (without
 * pacing). */
static void sample(struct ui_model *m)
{
    const struct telemetry *t = &m->live;
    uint64_t n = t->recent_count - m->sample_last, i, us = 0;

    if (n > TELEMETRY_RECENT)
        n = TELEMETRY_RECENT;
    for (i = 0; i < n; i++)
        us += t->recent_us[(t->recent_count - 1 - i) % TELEMETRY_RECENT];
    m->sample_last = t->recent_count;
    if (m->serving) { /* continuously, to show when a server idles */
        history_add(&m->decode, m->serving->answers_tok_s);
        history_add(&m->prefill, m->serving->prompts_tok_s);
        return;
    }
    if (t->state == ENGINE_DECODE || n)
        history_add(&m->decode, us ? (double)n * 1e6 / (double)us
                                : m->decode.count
                                    ? m->decode.values[(m->decode.count - 1) % UI_HISTORY]
                                    : 0);
    if (t->state == ENGINE_PREFILL)
        history_add(&m->prefill, t->prefill_tok_s);
}

void ui_model_tick(struct ui_model *m, uint64_t now)
{
    int i;

    m->now = now;
    if (now >= m->sample_at) {
        m->sample_at = now + UI_SAMPLE_NS;
        sample(m);
        m->dirty = m->dirty || m->running;
    }
    if (now >= m->settle_at) {
        m->settle_at = now + m->settle_ns;
        settle(m);
        m->dirty = true;
    }
    if (m->marked)
        m->light_at = 0; /* no fading */
    if (m->light_at && now >= m->light_at) {
        bool any = false;

        for (i = 0; i < m->n_cells; i++)
            if (m->light[i] && --m->light[i])
                any = true;
        m->light_at = any ? now + UI_FADE_NS : 0;
        m->dirty = true;
    }
    if (m->wanted_plan[0] && now >= m->spin_at) {
        m->spin++;
        m->spin_at = now + UI_SPIN_NS;
        m->dirty = true;
    }
    if (m->note[0] && now >= m->note_until) {
        m->note[0] = 0;
        m->dirty = true;
    }
}

uint64_t ui_model_next(const struct ui_model *m)
{
    uint64_t next = m->settle_at;

    if (m->running && m->sample_at < next)
        next = m->sample_at;
    if (m->light_at && m->light_at < next)
        next = m->light_at;
    if (m->wanted_plan[0] && m->spin_at < next)
        next = m->spin_at;
    if (m->note[0] && m->note_until < next)
        next = m->note_until;
    return next;
}

const char *ui_heat_word(const struct ui_model *m)
{
    return m->heat == HEAT_ANSWER    ? "this answer"
           : m->heat == HEAT_SESSION ? m->serving || m->training ? "since the start" : "session"
           : m->heat == HEAT_BESIDE  ? "1 against 2"
           : m->training             ? "newest step"
                                     : "now";
}

void ui_heat_next(struct ui_model *m)
{
    m->heat = (m->heat + 1) % HEAT_MODES;
    if (m->heat == HEAT_BESIDE && !m->beside)
        m->heat = (m->heat + 1) % HEAT_MODES;
    if ((m->serving || m->training) && m->heat == HEAT_ANSWER)
        m->heat = (m->heat + 1) % HEAT_MODES;
}

int ui_cell_device(const struct ui_model *m, int layer, int expert)
{
    int at = layer * m->live.n_experts + expert;
    int device = m->live.ran_on[at] != PLAN_NO_DEVICE ? m->live.ran_on[at] : m->live.planned[at];

    assert(layer >= 0 && layer < m->live.n_layers && expert >= 0 && expert < m->live.n_experts);
    return device < DEVICE_MAX ? device : 0;
}

const char *ui_device_word(const struct ui_model *m, int device)
{
    static const char *const numbered[DEVICE_MAX] = {"cpu",  "gpu1", "gpu2", "gpu3",
                                                     "gpu4", "gpu5", "gpu6", "gpu7"};

    assert(device >= 0 && device < DEVICE_MAX);
    return device && m->live.n_devices <= 2 ? "gpu" : numbered[device];
}

static int plan_row_add(struct ui_plan_row *out, int n, int max, const char *name, int figures,
                        int key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(out[i].name, name) == 0) {
            out[i].figures = figures;
            return n;
        }
    if (n == max || !name[0])
        return n;
    snprintf(out[n].name, sizeof out[n].name, "%s", name);
    out[n].figures = figures;
    out[n].key = key;
    return n + 1;
}

int ui_plan_rows(const struct ui_model *m, struct ui_plan_row *out, int max)
{
    int n = 0;

    assert(out && max > 0);
    for (int i = 0; i < KEYS_PLANS; i++)
        n = plan_row_add(out, n, max, keys_plans[i], -1, KEYS_PLANS_FIRST + i);
    if (strncmp(m->wanted_plan, "prompt ", 7) != 0)
        n = plan_row_add(out, n, max, m->wanted_plan, -1, 0);
    n = plan_row_add(out, n, max, m->live.prompt_plan, -1, 0);
    for (int i = 0; i < m->live.n_plans && i < TELEMETRY_PLANS; i++)
        n = plan_row_add(out, n, max, m->live.plans[i].name, i, 0);
    return n;
}
